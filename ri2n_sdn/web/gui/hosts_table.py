# SPDX-License-Identifier: Apache-2.0
"""The table of hosts, and the details of one: pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ri2n_sdn.contract.documents import Documents, HostEntry, NicEntry
from ri2n_sdn.contract.fast_words import fast_text
from ri2n_sdn.contract.names import natural
from ri2n_sdn.contract.units import counted, page_rate
from ri2n_sdn.web.gui import markup
from ri2n_sdn.web.gui.event_views import cures
from ri2n_sdn.web.gui.fair_views import part_text
from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.picture import Paint, nic_note
from ri2n_sdn.web.gui.scene import nics_at
from ri2n_sdn.web.gui.words import address

__all__ = ["PAGE_ROWS", "cells", "details", "found", "nic_words", "rate_cells", "table"]

PAGE_ROWS = 50
"""A page of the table has so many hosts."""

COLUMNS = (
    ("Host", ""),
    ("State", ""),
    ("NICs", "num"),
    ("Sends", "num"),
    ("Receives", "num"),
    ("Part of what is fair", "num"),
    ("What to do", "cure"),
    ("Each NIC", "phone-only"),
)
"""The columns, and the classes of their cells. On a phone, a row is a card, and shows its NICs."""


def found(
    state: Documents,
    search: str,
    among: Collection[str] | None = None,
    *,
    only_bad: bool = False,
) -> list[str]:
    """The hosts whose name or address has what is searched for, in natural order.

    With `only_bad` they are those that are away, or have a dead NIC.
    """
    wanted = search.strip().lower()
    return sorted(
        (
            name
            for name, host in state["hosts"].items()
            if (among is None or name in among)
            and not (only_bad and _is_good(host))
            and (
                wanted in name.lower()
                or wanted in host["mac"]
                or wanted in (host["address"] or "").lower()
            )
        ),
        key=natural,
    )


def _is_good(host: HostEntry) -> bool:
    return bool(host["connected"]) and all(
        nic["up"] and nic["alive"] for nic in host["nics"].values()
    )


def table(names: Sequence[str], shown: Paint) -> Markup:
    """The table of these hosts. Each cell has an id, so that it can change in place."""
    head = tag("tr", *(tag("th", name, class_=kind or None, scope="col") for name, kind in COLUMNS))
    rows = [
        tag(
            "tr",
            tag(
                "th",
                tag("button", name, type="button", class_="plain host", data_host=name),
                scope="row",
            ),
            *(
                tag(
                    "td",
                    shown[f"{row}-{column}"][1],
                    id=f"cell-{row}-{column}",
                    class_=shown[f"{row}-{column}"][0],
                )
                for column in range(1, len(COLUMNS))
            ),
        )
        for row, name in enumerate(names)
    ]
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="table hosts")


def cells(state: Documents, names: Sequence[str], *, old: bool = False) -> Paint:
    """By `ROW-COLUMN`: the class and the text of each cell that may change.

    What is `old` says how it was, and not how it is.
    """
    hosts, rates, fair, advised = (
        state["hosts"],
        state["rates"],
        state.get("fair", {}),
        cures(state),
    )
    shown: Paint = {}
    for row, name in enumerate(names):
        host, of_nics = hosts.get(name), rates.get(name, {})
        nics = host["nics"] if host is not None else {}
        good = sum(bool(nic["up"] and nic["alive"]) for nic in nics.values())
        there = host is not None and host["connected"]
        dead = len(nics) - good if there else 0
        words = "away" if not there else f"{counted(dead, 'dead NIC')}" if dead else "good"
        words = f"{'had' if there and dead else 'was'} {words}" if old else words
        sums = [sum(nic[direction] for nic in of_nics.values()) for direction in (0, 1)]
        each = [
            nic_note(nic, nics[nic], of_nics.get(nic), old=old).replace(" ", "\u00a0")
            for nic in sorted(nics, key=natural)
        ]
        said = [
            *(words, f"{good} of {len(nics)}"),
            *(page_rate(rate_bps if there else None) for rate_bps in sums),
            *(part_text(fair.get(name) if there else None), advised.get(name, "")),
            ", ".join(each),
        ]
        for column, ((_, kind), cell) in enumerate(zip(COLUMNS[1:], said, strict=True), 1):
            shown[f"{row}-{column}"] = [kind, cell]
        shown[f"{row}-1"][0] = "said bad" if dead else "said muted" if not there else "said"
    return shown


def details(state: Documents, name: str, *, old: bool = False) -> Markup:
    """All that is known of a host and its NICs. Its rates are in cells of their own.

    What is `old` says how it was.
    """
    host = state["hosts"].get(name)
    if host is None:
        return text(tag("h2", name), tag("p", "This host is no longer known to the controller."))
    helper = host["helper"]
    facts = [
        ("State", ("was " if old else "") + ("connected" if host["connected"] else "away")),
        ("Address", host["address"] or "unknown while it is away"),
        ("MAC address", host["mac"]),
        ("Open vSwitch", f"{host['ovs'] or 'unknown'}, datapath {host['datapath'] or 'unknown'}"),
        (
            "Helper",
            "none"
            if helper is None
            else "stripes packets"
            if helper["running"] and helper["reports"]
            else "runs, but does not report"
            if helper["running"]
            else "does not run",
        ),
        ("Fast path", "none" if (fast := host.get("fast")) is None else fast_text(fast)),
    ]
    look = rate_cells(state, name)
    texts, numbers = ("NIC", "State", "Network", "Switch"), ("NIC's rate", "Sends", "Receives")
    rows = []
    for number, nic in enumerate(sorted(host["nics"], key=natural)):
        known = host["nics"][nic]
        words, kind = nic_words(known, old=old)
        rows.append(
            tag(
                "tr",
                tag("th", nic, scope="row"),
                tag("td", words, class_=f"said {kind}".rstrip()),
                tag("td", known["network"]),
                tag("td", known["switch"] or "-"),
                tag("td", page_rate(known["speed_bps"]), class_="num"),
                *(
                    tag("td", look[key][1], id=f"cell-{key}", class_="num")
                    for key in (f"nic-{number}-tx", f"nic-{number}-rx")
                ),
            )
        )
    return text(
        tag("h2", f"Host {name}"),
        tag("dl", *(text(tag("dt", key), tag("dd", value)) for key, value in facts)),
        markup.table(f"NICs of {name}", texts, numbers, rows),
        tag(
            "p",
            *(
                text(tag("a", words, href=address(page, host=name)), " ")
                for words, page in (("Its traffic", "/traffic"), ("Its events", "/events"))
            ),
            class_="ways",
        ),
    )


def rate_cells(state: Documents, name: str) -> Paint:
    """The class and the text of the cells in the details of a host that have its NICs' rates."""
    nics = nics_at(state["hosts"], name)
    rates = state["rates"].get(name, {})
    return {
        f"nic-{number}-{side}": ["num", page_rate(rate_bps)]
        for number, nic in enumerate(sorted(nics, key=natural))
        for side, rate_bps in zip(("tx", "rx"), rates.get(nic, (None, None)), strict=True)
    }


def nic_words(nic: NicEntry, *, old: bool = False) -> tuple[str, str]:
    """(the state of a NIC in words, the class of these words). What is `old` says how it was."""
    was = "was " if old else ""
    if nic["alive"] is None:
        return f"host {was}away", "muted"
    if not nic["up"]:
        return f"{was}dead: no link", "bad"
    return (f"{was}good", "") if nic["alive"] else (f"{was}dead: nothing arrives", "bad")
