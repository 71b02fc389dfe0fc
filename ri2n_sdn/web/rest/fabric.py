# SPDX-License-Identifier: Apache-2.0
"""Routes of what there is: hosts, NICs, networks, switches and cables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from ri2n_sdn.contract.documents import (
    Cable,
    Host,
    HostEntry,
    Network,
    Nic,
    NicEntry,
    Switch,
    SwitchEntry,
)
from ri2n_sdn.web.history import Series
from ri2n_sdn.web.rest.access import Access, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.etag import cached
from ri2n_sdn.web.rest.models import Samples
from ri2n_sdn.web.rest.pages import Descending, PartOf, page_of, text_filter
from ri2n_sdn.web.who import Who

__all__ = ["router"]

Rates = Mapping[str, Mapping[str, Sequence[float]]]
Text = Annotated[str | None, Query(max_length=100, alias="q", description="a part of the name")]
OnlyThose = Annotated[bool | None, Query(description="only those that are, or not")]
Sort = Annotated[Literal["name", "tx", "rx"], Query(description="rates: the highest first")]


def router(access: Access) -> APIRouter:
    """The routes."""
    api = APIRouter(tags=["fabric"])
    viewer: Who = access.needs("viewer")

    @api.get("/hosts", response_model=page(Host), operation_id="list_hosts")
    def hosts(
        part: PartOf,
        q: Text = None,
        connected: OnlyThose = None,
        sort: Sort = "name",
        descending: Descending = False,
        who: Who = viewer,
    ) -> Any:
        """The hosts, with their NICs and what these send and receive."""
        fits = text_filter(q)
        known = access.state["hosts"]  # another map after each change
        found = [
            name
            for name, host in known.items()
            if fits(name, host["address"], host["mac"]) and connected in (None, host["connected"])
        ]
        rates = access.state["rates"]

        def order(name: str) -> tuple[float, str]:
            return _by_rate(rates.get(name, {}).values(), sort, descending), name

        page = page_of(found, part, order, descending and sort == "name")
        page["items"] = [_host(name, known[name], rates) for name in page["items"]]
        return page

    @api.get("/hosts/{host}", response_model=answer(Host), operation_id="show_host")
    def host(host: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """One host."""
        found = entry_of(access.state["hosts"], host, "host")
        return cached(request, response, _host(host, found, access.state["rates"]))

    @api.get("/hosts/{host}/nics/{nic}", response_model=answer(Nic), operation_id="show_nic")
    def nic(host: str, nic: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """One NIC."""
        found = entry_of(entry_of(access.state["hosts"], host, "host")["nics"], nic, "nic")
        return cached(request, response, _nic(host, nic, found, access.state["rates"]))

    @api.get("/hosts/{host}/history", response_model=Samples, operation_id="host_history")
    def host_history(host: str, who: Who = viewer) -> Any:
        """What a host sent and received in the last minutes, all NICs together."""
        entry_of(access.state["hosts"], host, "host")
        return _samples(access.feed.history.host(host))

    @api.get("/hosts/{host}/nics/{nic}/history", response_model=Samples, operation_id="nic_history")
    def nic_history(host: str, nic: str, who: Who = viewer) -> Any:
        """What a NIC sent and received in the last minutes."""
        entry_of(entry_of(access.state["hosts"], host, "host")["nics"], nic, "nic")
        return _samples(access.feed.history.series(host, nic))

    @api.get("/nics", response_model=page(Nic), operation_id="list_nics")
    def nics(
        part: PartOf,
        host: Annotated[str | None, Query(max_length=64, description="of this host")] = None,
        network: Annotated[str | None, Query(max_length=64, description="in this one")] = None,
        switch: Annotated[str | None, Query(max_length=64, description="at this one")] = None,
        alive: OnlyThose = None,
        sort: Sort = "name",
        descending: Descending = False,
        who: Who = viewer,
    ) -> Any:
        """The NICs of all hosts."""
        rates = access.state["rates"]
        found = [
            (name, each, document)
            for name, each, document in _nics(access.state["hosts"])
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
    def networks(part: PartOf, q: Text = None, who: Who = viewer) -> Any:
        """The networks that were found."""
        return _named(access.state["networks"], "id", part, q)

    @api.get("/networks/{network}", response_model=answer(Network), operation_id="show_network")
    def network(network: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """One network."""
        found = entry_of(access.state["networks"], network, "network")
        return cached(request, response, {"id": network, **found})

    @api.get("/switches", response_model=page(Switch), operation_id="list_switches")
    def switches(part: PartOf, q: Text = None, who: Who = viewer) -> Any:
        """The switches that cluster.yaml declares."""
        page = _named(access.state["switches"], "name", part, q)
        page["items"] = [_switch(access, each["name"], each) for each in page["items"]]
        return page

    @api.get("/switches/{switch}", response_model=answer(Switch), operation_id="show_switch")
    def switch(switch: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """One switch, with what is plugged into it."""
        found = entry_of(access.state["switches"], switch, "switch")
        return cached(request, response, _switch(access, switch, found))

    @api.get("/cables", response_model=page(Cable), operation_id="list_cables")
    def cables(
        part: PartOf,
        q: Text = None,
        alive: OnlyThose = None,
        who: Who = viewer,
    ) -> Any:
        """The cables between switches that cluster.yaml declares."""
        found = {
            name: each
            for name, each in access.state["cables"].items()
            if alive in (None, each["alive"])
        }
        return _named(found, "id", part, q)

    @api.get("/cables/{cable:path}", response_model=answer(Cable), operation_id="show_cable")
    def cable(cable: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """One cable; its id is `SWITCH/PORT-SWITCH/PORT`."""
        found = entry_of(access.state["cables"], cable, "cable")
        return cached(request, response, {"id": cable, **found})

    return api


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


def _switch(access: Access, name: str, document: SwitchEntry) -> Switch:
    cables = [key for key, cable in access.state["cables"].items() if name in cable["ends"]]
    nics = [
        f"{host}:{nic}"
        for host, nic, each in _nics(access.state["hosts"])
        if each["switch"] == name
    ]
    return {**document, "name": name, "cables": sorted(cables), "nics": sorted(nics)}


def _samples(series: Series) -> dict[str, Any]:
    """The samples of a series, where what is not known is None and not NaN, which JSON lacks."""
    names = ("time_s", "tx_bps", "rx_bps")
    return {
        name: [None if isnan(value) else float(value) for value in each]
        for name, each in zip(names, series, strict=True)
    }
