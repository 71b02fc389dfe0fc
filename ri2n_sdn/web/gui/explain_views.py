# SPDX-License-Identifier: Apache-2.0
"""The question of the page `explain` as a request, and its answer as HTML: pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ri2n_sdn.contract.answers import ExplainedPath, Explanation, Path
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.units import page_rate
from ri2n_sdn.web.gui.commands import copyable
from ri2n_sdn.web.gui.markup import Markup, table, tag, text
from ri2n_sdn.web.gui.scene import Nic

__all__ = ["PROTOCOLS", "answer_view", "nics_of", "only", "request_of"]

PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1}
MAX_PORT = 65535
_PORT = re.compile(r"[0-9]{1,5}")


def request_of(
    src: str,
    dst: str,
    protocol: str,
    sport: str,
    dport: str,
    job: str,
    src_ip: str = "",
    dst_ip: str = "",
) -> dict[str, Any]:
    """The arguments of the operation `explain`.

    Without a port and an address, or without a protocol, it asks about all packets of the two
    hosts. Raises BadInput for what is missing or no port, for ports of a protocol that has none,
    and for an address without a protocol. The controller says which addresses are wrong.
    """
    request: dict[str, Any] = {}
    for key, label, name in (("src", "From host", src), ("dst", "To host", dst)):
        if not name.strip():
            raise refusal("name_a_host", label)
        request[key] = name.strip()
    ports = {}
    for key, label, port in (("sport", "Source port", sport), ("dport", "Destination port", dport)):
        if not port.strip():
            continue
        if not (_PORT.fullmatch(port.strip()) and int(port) <= MAX_PORT):
            raise refusal("not_number_up_to", label, high=MAX_PORT)
        if protocol not in ("tcp", "udp"):
            raise refusal("ports_need_protocol", label)
        ports[key] = int(port)
    ends = (("src_ip", "Source address", src_ip), ("dst_ip", "Destination address", dst_ip))
    addresses = {}
    for key, label, address in ends:
        if not address.strip():
            continue
        if not protocol:
            raise refusal("address_needs_protocol", label)
        addresses[key] = address.strip()
    if protocol and (ports or addresses or protocol == "icmp"):
        request["flow"] = {"protocol": PROTOCOLS[protocol], **ports, **addresses}
    if job.strip():
        request["job"] = job.strip()
    return request


def nics_of(answer: Explanation) -> frozenset[Nic]:
    """The NICs at both ends that the packets of an answer use.

    It is the path of the flow if there is one, those over which the helpers spread the packets, or
    else all living paths that have a share.
    """
    path, links = answer.get("path"), answer.get("links")
    shared = [each for each in answer.get("paths", ()) if each["alive"] and each["share"] > 0]
    paths: Sequence[ExplainedPath | Path] = shared if links is None else links
    if path is not None:
        paths = [path]
    return frozenset(
        Nic(host, nic)
        for each in paths
        for host, nic in ((answer["src"], each["own"]), (answer["dst"], each["peer"]))
    )


def only(state: Documents, hosts: Collection[str]) -> Documents:
    """A state with these hosts alone, and all networks and switches."""
    return {
        **state,
        "hosts": {name: host for name, host in state["hosts"].items() if name in hosts},
    }


def answer_view(answer: Explanation, command: str | None = None) -> Markup:
    """The answer: the way in one line, the reasons as steps, and the paths as a table.

    `command` is the command that says the same.
    """
    way = answer.get("path")
    if way is not None:
        tree = f", tree {way['vlan']}" if way["vlan"] else ""
        said = (
            f"{answer['src']} {way['own']} → network {way['network']}{tree}"
            f" → {answer['dst']} {way['peer']}"
        )
    elif "links" in answer:
        said = (
            "The helpers spread these packets, one by one, over all living links that they may use."
        )
    elif answer["kind"] == "managed":
        said = "These packets are spread over the paths below, each connection on one of them."
    else:
        said = answer["reason"]
    flow = answer.get("flow")
    return text(
        tag("h2", f"From {answer['src']} to {answer['dst']}"),
        *((tag("p", flow, class_="muted"),) if flow else ()),
        tag("p", tag("strong", said)),
        tag("ol", *(tag("li", _sentence(each)) for each in answer["why"]), class_="steps"),
        *((_paths(answer),) if answer.get("paths") else ()),
        *((_command(command),) if command else ()),
    )


def _command(command: str) -> Markup:
    return tag("details", tag("summary", "The same as a command"), copyable(command), class_="fold")


def _paths(answer: Explanation) -> Markup:
    texts = ("Path", "Network", "State")
    numbers = ("Share", "Rate", "Planned rate", "NIC's rate")
    way: Mapping[str, object] = answer.get("path") or {}
    rows = []
    for path in answer["paths"]:
        chosen = all(way.get(key) == path[key] for key in ("own", "peer", "vlan"))
        tree = f", tree {path['vlan']}" if path["vlan"] else ""
        dead = "" if path["alive"] else " bad"
        rows.append(
            tag(
                "tr",
                tag(
                    "th",
                    f"{path['own']} → {path['peer']}{' (this one)' if chosen else ''}",
                    scope="row",
                ),
                tag("td", f"{path['network']}{tree}"),
                tag("td", "good" if path["alive"] else "dead", class_=f"said{dead}"),
                tag("td", f"{path['share']:.0%}", class_="num"),
                tag("td", page_rate(path["tx_bps"]), class_="num"),
                tag("td", page_rate(path["rate_bps"]), class_="num"),
                tag("td", page_rate(path["speed_bps"]), class_="num"),
                class_="chosen" if chosen else None,
            )
        )
    return table("The paths", texts, numbers, rows)


def _sentence(words: str) -> str:
    """A sentence as the controller says it, with a full stop."""
    return words if words.endswith((".", "!", "?")) else f"{words}."
