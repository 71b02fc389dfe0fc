# SPDX-License-Identifier: Apache-2.0
"""What answers of the interface look like that the controller does not give.

Keys that a later controller adds are left out of answers, and no answer fails because of them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from ri2n_sdn.contract.choices import Role

__all__ = ["Health", "Me", "Ready", "Samples", "Strategy", "Weights"]

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


class Ready(BaseModel):
    """The web process knows the controller's state."""

    status: Literal["ok"] = "ok"
    in_charge: bool
    settled: bool
    seq: int
