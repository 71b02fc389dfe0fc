# SPDX-License-Identifier: Apache-2.0
"""Routes of how things are: the controller, faults, events, audit, checks, health, and who asks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

from ri2n_sdn import __version__
from ri2n_sdn.contract.answers import AuditEntry
from ri2n_sdn.contract.choices import ROLES
from ri2n_sdn.contract.documents import Check, ControllerState, Event, FaultOf
from ri2n_sdn.contract.operations import AUDIT, VLAN_CHECK
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.rest.access import Access, Admin, Asked, Viewer, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.models import Health, Me, Ready
from ri2n_sdn.web.rest.pages import PartOf, page_of, text_filter

__all__ = ["audit_api", "health_api", "state_api"]

Text = Annotated[str | None, Query(max_length=100, description="a part of the text")]


state_api = APIRouter(tags=["state"])
audit_api = APIRouter(tags=["control"])
health_api = APIRouter(tags=["health"])


@state_api.get("/controller", response_model=answer(ControllerState), operation_id="controller")
def controller(asked: Viewer) -> Any:
    """The controller, and how much there is of everything."""
    state = asked.state
    hosts = state["hosts"].values()
    nics = [nic for host in hosts for nic in host["nics"].values()]
    return {
        **state["controller"],
        "counters": state["counters"],
        "hosts": len(hosts),
        "hosts_connected": sum(host["connected"] for host in hosts),
        "nics": len(nics),
        "nics_alive": sum(bool(nic["alive"]) for nic in nics),
        "faults": len(state["problems"]),
        "jobs": len(state["jobs"]),
        "seq": asked.access.feed.seq,
    }


@state_api.get("/faults", response_model=page(FaultOf), operation_id="list_faults")
def faults(
    part: PartOf,
    asked: Viewer,
    severity: Annotated[Literal["bad", "warning"] | None, Query()] = None,
    q: Text = None,
) -> Any:
    """What is wrong now, the worst first, each with what to do."""
    fits = text_filter(q)
    found = [
        fault
        for fault in _faults(asked)
        if severity in (None, fault["severity"]) and fits(fault["text"], fault["advice"])
    ]
    return page_of(found, part)


@state_api.get("/faults/{fault}", response_model=answer(FaultOf), operation_id="show_fault")
def fault(fault: str, asked: Viewer) -> Any:
    """One fault. When it is gone, so is its address."""
    return {"id": fault, **entry_of(asked.state["problems"], fault, "fault")}


@state_api.get("/check", response_model=answer(Check), operation_id="check")
async def check(asked: Viewer) -> Any:
    """Whether all is as it must be: faults, and where switches are declared, probes.

    The probes go through all switches, cables and VLANs, as those of `ri2n vlan check`. They
    take a second or more. A second check at the same time is refused (409).
    """
    found = _faults(asked)
    vlans = None
    if asked.state["cables"]:
        try:
            vlans = await asked.request(VLAN_CHECK)
        except BadInput as error:
            if error.code != "no_switch_links":
                raise
    bad = any(fault["severity"] == "bad" for fault in found)
    return {
        "ok": not bad and not (vlans is not None and vlans["findings"]),
        "faults": found,
        "vlans": vlans,
    }


@state_api.get("/events", response_model=page(Event), operation_id="list_events")
def events(
    part: PartOf,
    asked: Viewer,
    since: Annotated[int, Query(ge=0, le=2**53, description="only those with a higher number")] = 0,
    q: Text = None,
    descending: Annotated[bool, Query(description="the newest first")] = True,
) -> Any:
    """What has happened, the newest 200 events."""
    fits, known = text_filter(q), asked.state["events"]
    found = [each for each in known if each["seq"] > since and fits(each["text"])]
    return page_of(found, part, None, descending)


@audit_api.get("/audit", response_model=page(AuditEntry), operation_id="audit")
async def audit(
    part: PartOf,
    asked: Admin,
    user: Annotated[str | None, Query(max_length=65, description="by this user")] = None,
    op: Annotated[str | None, Query(max_length=40, description="of this operation")] = None,
    ok: Annotated[bool | None, Query(description="only what was done, or refused")] = None,
) -> Any:
    """Who has changed what, or tried to, the last one first; since the controller began."""
    found = [
        entry
        for entry in await asked.listed(AUDIT, "entries")
        if user in (None, entry["user"]) and op in (None, entry["op"]) and ok in (None, entry["ok"])
    ]
    return page_of(found, part, lambda entry: -int(entry["seq"]))


@health_api.get("/me", response_model=Me, operation_id="who_am_i")
def me(asked: Viewer) -> Any:
    """Who asks, and as what."""
    who = asked.who
    return {
        "name": who.name,
        "role": who.role,
        "user": who.user,
        "may": [role for role in ROLES if who.may(role)],
    }


@health_api.get("/health", response_model=Health, operation_id="health")
def health(request: Request) -> Any:
    """Whether the web process runs, and how old what it knows is; for everybody."""
    feed = request.app.state.access.feed
    return {"version": __version__, "controller": feed.connected, "age_s": feed.age_s}


@health_api.get("/ready", response_model=Ready, operation_id="ready")
def ready(request: Request) -> Any:
    """Whether the web process knows the controller's state; for everybody. Otherwise 503."""
    access: Access = request.app.state.access
    known = access.state["controller"]
    return {
        "in_charge": bool(known.get("in_charge")),
        "settled": bool(known.get("settled")),
        "seq": access.feed.seq,
    }


def _faults(asked: Asked) -> list[FaultOf]:
    """The faults, the worst first."""
    found = [FaultOf(id=key, **problem) for key, problem in asked.state["problems"].items()]
    return sorted(found, key=lambda fault: fault["rank"])
