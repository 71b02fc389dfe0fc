# SPDX-License-Identifier: Apache-2.0
"""Routes of what there is: hosts, NICs, networks, switches and cables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from ri2n_sdn.contract.documents import (
    Cable,
    Documents,
    Host,
    HostEntry,
    Network,
    Nic,
    NicEntry,
    Switch,
    SwitchEntry,
)
from ri2n_sdn.web.rest.access import Viewer, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.models import Samples
from ri2n_sdn.web.rest.pages import Descending, PartOf, page_of, text_filter

__all__ = ["api"]

Rates = Mapping[str, Mapping[str, Sequence[float]]]
Text = Annotated[str | None, Query(max_length=100, alias="q", description="a part of the name")]
OnlyThose = Annotated[bool | None, Query(description="only those that are, or not")]
Sort = Annotated[Literal["name", "tx", "rx"], Query(description="rates: the highest first")]

api = APIRouter(tags=["fabric"])


@api.get("/hosts", response_model=page(Host), operation_id="list_hosts")
def hosts(
    part: PartOf,
    asked: Viewer,
    q: Text = None,
    connected: OnlyThose = None,
    sort: Sort = "name",
    descending: Descending = False,
) -> Any:
    """The hosts, with their NICs and what these send and receive."""
    fits = text_filter(q)
    known = asked.state["hosts"]  # another map after each change
    found = [
        name
        for name, host in known.items()
        if fits(name, host["address"], host["mac"]) and connected in (None, host["connected"])
    ]
    rates = asked.state["rates"]

    def order(name: str) -> tuple[float, str]:
        return _by_rate(rates.get(name, {}).values(), sort, descending), name

    page = page_of(found, part, order, descending and sort == "name")
    page["items"] = [_host(name, known[name], rates) for name in page["items"]]
    return page


@api.get("/hosts/{host}", response_model=answer(Host), operation_id="show_host")
def host(host: str, asked: Viewer) -> Any:
    """One host."""
    found = entry_of(asked.state["hosts"], host, "host")
    return asked.shown(_host(host, found, asked.state["rates"]))


@api.get("/hosts/{host}/nics/{nic}", response_model=answer(Nic), operation_id="show_nic")
def nic(host: str, nic: str, asked: Viewer) -> Any:
    """One NIC."""
    found = entry_of(entry_of(asked.state["hosts"], host, "host")["nics"], nic, "nic")
    return asked.shown(_nic(host, nic, found, asked.state["rates"]))


@api.get("/hosts/{host}/history", response_model=Samples, operation_id="host_history")
def host_history(host: str, asked: Viewer) -> Any:
    """What a host sent and received in the last minutes, all NICs together."""
    entry_of(asked.state["hosts"], host, "host")
    return asked.access.feed.history.host(host)._asdict()


@api.get("/hosts/{host}/nics/{nic}/history", response_model=Samples, operation_id="nic_history")
def nic_history(host: str, nic: str, asked: Viewer) -> Any:
    """What a NIC sent and received in the last minutes."""
    entry_of(entry_of(asked.state["hosts"], host, "host")["nics"], nic, "nic")
    return asked.access.feed.history.series(host, nic)._asdict()


@api.get("/nics", response_model=page(Nic), operation_id="list_nics")
def nics(
    part: PartOf,
    asked: Viewer,
    host: Annotated[str | None, Query(max_length=64, description="of this host")] = None,
    network: Annotated[str | None, Query(max_length=64, description="in this one")] = None,
    switch: Annotated[str | None, Query(max_length=64, description="at this one")] = None,
    alive: OnlyThose = None,
    sort: Sort = "name",
    descending: Descending = False,
) -> Any:
    """The NICs of all hosts."""
    rates = asked.state["rates"]
    found = [
        (name, each, document)
        for name, each, document in _nics(asked.state["hosts"])
        if host in (None, name)
        and network in (None, document["network"])
        and switch in (None, document["switch"])
        and alive in (None, document["alive"])
    ]

    def order(each: tuple[str, str, NicEntry]) -> tuple[float, str, str]:
        rate = rates.get(each[0], {}).get(each[1], (0, 0))
        return _by_rate([rate], sort, descending), each[0], each[1]

    page = page_of(found, part, order, descending and sort == "name")
    page["items"] = [_nic(host, nic, each, rates) for host, nic, each in page["items"]]
    return page


@api.get("/networks", response_model=page(Network), operation_id="list_networks")
def networks(part: PartOf, asked: Viewer, q: Text = None) -> Any:
    """The networks that were found."""
    return _named(asked.state["networks"], "id", part, q)


@api.get("/networks/{network}", response_model=answer(Network), operation_id="show_network")
def network(network: str, asked: Viewer) -> Any:
    """One network."""
    found = entry_of(asked.state["networks"], network, "network")
    return asked.shown({"id": network, **found})


@api.get("/switches", response_model=page(Switch), operation_id="list_switches")
def switches(part: PartOf, asked: Viewer, q: Text = None) -> Any:
    """The switches that cluster.yaml declares."""
    page = _named(asked.state["switches"], "name", part, q)
    page["items"] = [_switch(asked.state, each["name"], each) for each in page["items"]]
    return page


@api.get("/switches/{switch}", response_model=answer(Switch), operation_id="show_switch")
def switch(switch: str, asked: Viewer) -> Any:
    """One switch, with what is plugged into it."""
    found = entry_of(asked.state["switches"], switch, "switch")
    return asked.shown(_switch(asked.state, switch, found))


@api.get("/cables", response_model=page(Cable), operation_id="list_cables")
def cables(part: PartOf, asked: Viewer, q: Text = None, alive: OnlyThose = None) -> Any:
    """The cables between switches that cluster.yaml declares."""
    found = {
        name: each for name, each in asked.state["cables"].items() if alive in (None, each["alive"])
    }
    return _named(found, "id", part, q)


@api.get("/cables/{cable:path}", response_model=answer(Cable), operation_id="show_cable")
def cable(cable: str, asked: Viewer) -> Any:
    """One cable; its id is `SWITCH/PORT-SWITCH/PORT`."""
    found = entry_of(asked.state["cables"], cable, "cable")
    return asked.shown({"id": cable, **found})


def _by_rate(rates: Iterable[Sequence[float]], sort: str, descending: bool) -> float:
    """What puts the highest rates first, or last; 0 when names are the order."""
    if sort == "name":
        return 0.0
    total_bps = sum(rate[0 if sort == "tx" else 1] for rate in rates)
    return total_bps if descending else -total_bps


def _named(part: Mapping[str, Any], key: str, wanted: Any, q: str | None) -> dict[str, Any]:
    """A page of the documents of a part, in order of their names, which are under `key`."""
    fits = text_filter(q)
    found = ({key: name, **document} for name, document in part.items() if fits(name))
    return page_of(found, wanted, lambda document: str(document[key]))


def _nics(hosts: Mapping[str, HostEntry]) -> Iterator[tuple[str, str, NicEntry]]:
    for name, host in hosts.items():
        for nic, document in host["nics"].items():
            yield name, nic, document


def _nic(host: str, name: str, document: NicEntry, rates: Rates) -> Nic:
    tx_bps, rx_bps = rates.get(host, {}).get(name, (None, None))
    return {"host": host, "name": name, **document, "tx_bps": tx_bps, "rx_bps": rx_bps}


def _host(name: str, document: HostEntry, rates: Rates) -> Host:
    nics = [_nic(name, nic, each, rates) for nic, each in document["nics"].items()]
    return {**document, "name": name, "nics": nics}


def _switch(state: Documents, name: str, document: SwitchEntry) -> Switch:
    cables = [key for key, cable in state["cables"].items() if name in cable["ends"]]
    nics = [f"{host}:{nic}" for host, nic, each in _nics(state["hosts"]) if each["switch"] == name]
    return {**document, "name": name, "cables": sorted(cables), "nics": sorted(nics)}
