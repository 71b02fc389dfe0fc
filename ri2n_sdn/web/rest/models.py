# SPDX-License-Identifier: Apache-2.0
"""What requests look like, and the answers that the controller does not give.

Requests are checked here for their form alone. What a policy or a job must be like beyond that, the
controller says, as it does to every client.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ri2n_sdn.contract.choices import KINDS, Kind, Role
from ri2n_sdn.contract.limits import (
    MAX_DSCP,
    MAX_HOSTS,
    MAX_NAMES,
    MAX_RATE_BPS,
    MAX_SERVICES,
    MAX_TABLES,
    MAX_TIME_S,
    MAX_TOKEN_DAYS,
    MAX_UID,
)
from ri2n_sdn.contract.names import HOST_NAME, JOB_ID, TOKEN_NAME, USER_NAME

__all__ = [
    "Health",
    "JobOrder",
    "Me",
    "NewPolicy",
    "ParameterValue",
    "PolicyBody",
    "Ready",
    "ReservationOrder",
    "RightBody",
    "Samples",
    "Strategy",
    "StrategyName",
    "TokenOrder",
    "VlanRows",
    "Weights",
]

_Id = Annotated[str, Field(pattern=f"^{JOB_ID}$")]
_User = Annotated[str, Field(pattern=f"^{USER_NAME}$")]
_HostName = Annotated[str, Field(pattern=f"^{HOST_NAME}$")]
_PathName = Annotated[str, Field(min_length=1, max_length=130)]
_Rate = Annotated[int, Field(ge=1, le=MAX_RATE_BPS, description="bit/s on the wire, per host")]
_Time = Annotated[float, Field(ge=0, le=MAX_TIME_S, allow_inf_nan=False, description="Unix time")]
_Uid = Annotated[int, Field(ge=0, le=MAX_UID)]
_Hosts = Annotated[list[_HostName], Field(min_length=1, max_length=MAX_HOSTS)]
_Services = Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=MAX_SERVICES)]


class _Body(BaseModel):
    """A request's body: unknown keys are errors, and no text counts as a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _example(**keys: Any) -> ConfigDict:
    """What makes the document show a body with these keys."""
    return ConfigDict(json_schema_extra={"examples": [keys]})


class _Table(_Body):
    dscp: Annotated[int, Field(ge=0, le=MAX_DSCP)]
    paths: Annotated[list[_PathName], Field(min_length=1, max_length=MAX_NAMES)]


class PolicyBody(_Body):
    """A policy. Give either `policy` and what belongs to it, or `named`."""

    model_config = _example(policy="paths", paths=["net1"])

    policy: Kind | None = None
    named: _Id | None = Field(None, description="the name of a policy, in place of the others")
    paths: Annotated[list[_PathName], Field(max_length=MAX_NAMES)] | None = None
    tables: Annotated[list[_Table], Field(max_length=MAX_TABLES)] | None = None
    services: _Services | None = None
    min_rate_bps: _Rate | None = None
    max_rate_bps: _Rate | None = None


class JobOrder(PolicyBody):
    """A job that shall begin. Without a policy it is `shared`."""

    model_config = _example(id="j7", hosts=["A", "B"], user="alice", policy="exclusive")

    id: _Id
    hosts: _Hosts
    user: _User | None = Field(None, description="whose job it is; omitted: the token's user")
    uid: _Uid | None = Field(None, description="omitted: that of the user on this machine")
    begin_s: _Time | None = Field(None, description="Unix time; omitted: now")
    end_s: _Time | None = Field(None, description="Unix time; omitted: when somebody ends it")


class ReservationOrder(PolicyBody):
    """Paths that a user's jobs shall have. Without a policy it is `exclusive`."""

    model_config = _example(
        id="r1", hosts=["A", "B"], user="alice", rate_bps=10**7, end_s=4_000_003_600
    )

    id: _Id
    hosts: _Hosts
    user: _User | None = Field(None, description="whose it is; omitted: the token's user")
    begin_s: _Time | None = Field(None, description="Unix time; omitted: now")
    end_s: _Time
    rate_bps: _Rate | None = None


class RightBody(_Body):
    """What a user may ask for."""

    model_config = _example(policies=["shared", "exclusive"], reserve=True)

    policies: Annotated[list[Kind], Field(max_length=len(KINDS))]
    max_rate_bps: Annotated[int, Field(ge=0, le=MAX_RATE_BPS)] | None = Field(
        None, description="bit/s on the wire, per host; omitted: no limit"
    )
    max_hosts: Annotated[int, Field(ge=0, le=MAX_HOSTS)] | None = Field(
        None, description="of one job; omitted: no limit"
    )
    reserve: bool = Field(False, description="whether the user may make reservations")


class NewPolicy(_Body):
    """A policy, with the name that orders may give in its place."""

    model_config = _example(name="quiet", policy="exclusive")

    name: _Id
    policy: Kind
    paths: Annotated[list[_PathName], Field(max_length=MAX_NAMES)] | None = None
    tables: Annotated[list[_Table], Field(max_length=MAX_TABLES)] | None = None
    services: _Services | None = None
    min_rate_bps: _Rate | None = None
    max_rate_bps: _Rate | None = None


class StrategyName(_Body):
    """The strategy that shall compute weights from now on."""

    model_config = _example(name="max_min")

    name: Annotated[str, Field(max_length=64)]


class ParameterValue(_Body):
    """The value that a parameter shall have from now on."""

    model_config = _example(value=0.1)

    value: Annotated[str, Field(max_length=64)] | int | float = Field(
        description="in the unit of the parameter"
    )


class TokenOrder(_Body):
    """A token that shall be made."""

    model_config = _example(name="grafana", role="viewer", days=90)

    name: Annotated[str, Field(pattern=f"^{TOKEN_NAME}$")]
    role: Role
    user: _User | None = Field(None, description="whose jobs it is for; needed by the role `user`")
    days: Annotated[int, Field(ge=1, le=MAX_TOKEN_DAYS)] | None = Field(
        None, description="it is good for so long; omitted: until it is removed"
    )


class VlanRows(_Body):
    """The rows of a program's path table."""

    model_config = _example(rows=[["A", "B", 101]])

    rows: Annotated[
        list[
            Annotated[
                list[str | int],
                Field(min_length=3, max_length=3, description="sender, receiver and VLAN"),
            ]
        ],
        Field(min_length=1, max_length=4096),
    ]


# Answers. Keys that a later controller adds are left out, and no answer fails because of them.

_SAMPLES_NULL = "bit/s; null where a rate was not known, for example of a host that was away"


class Samples(BaseModel):
    """What a NIC, or all NICs of a host, sent and received in the last minutes."""

    time_s: list[float] = Field(description="Unix times, one for each sample")
    tx_bps: list[float | None] = Field(description=_SAMPLES_NULL)
    rx_bps: list[float | None] = Field(description=_SAMPLES_NULL)


class Weight(BaseModel):
    """The weight of one path of a pair."""

    own: str
    peer: str
    network: str | None = None
    vlan: int | None = None
    share: float = Field(description="0 to 1; those of a pair add up to 1")
    slots: int


class Weights(BaseModel):
    """The weights of a pair's paths."""

    src: str
    dst: str
    strategy: str = Field(description="what decides them")
    slots: int = Field(description="the number of slots of its table")
    weights: list[Weight]


class Strategy(BaseModel):
    """How weights are computed."""

    name: str
    choices: list[str] = Field(description="the strategies that there are")


class Me(BaseModel):
    """Who asks."""

    name: str = Field(description="the token's name, or `anonymous`")
    role: Role
    user: str | None = None
    may: list[str] = Field(description="the roles whose rights the asker has")


class Health(BaseModel):
    """The web process runs."""

    status: Literal["ok"] = "ok"
    version: str
    controller: bool = Field(description="whether the controller answers")
    age_s: float | None = Field(
        description="the time since the controller read rates and counters last; null: never"
    )


class Ready(BaseModel):
    """The web process knows the controller's state."""

    status: Literal["ok"] = "ok"
    in_charge: bool
    settled: bool
    seq: int
