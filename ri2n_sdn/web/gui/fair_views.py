# SPDX-License-Identifier: Apache-2.0
"""What each client gets of what is fair: in a sentence, and over time beside events. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ri2n_sdn.contract.documents import Documents, Event, FairEntry
from ri2n_sdn.contract.fair import part_of_fair, worst_of
from ri2n_sdn.contract.names import natural
from ri2n_sdn.contract.units import counted, page_rate, percent_text
from ri2n_sdn.web.gui.charts import Lines, rate_chart
from ri2n_sdn.web.gui.words import shortened

__all__ = [
    "MAX_LINES",
    "Mark",
    "clients",
    "fair_chart",
    "lines_of",
    "marks_of",
    "part_text",
    "worst_client",
]

MAX_LINES = 8
"""A chart has lines for so many hosts: there are not more colours that people tell apart."""

MAX_MARKS = 12
"""A chart has so many marks, the newest."""

MARK_LETTERS = 26

# What a mark says, by the event's code; an event of another code has none.
_STRATEGY = {"parameter_set", "parameter_set_by"}
_MARKS: Mapping[str, str] = {
    "takes_charge": "in charge",
    "taken_over": "taken over",
    "host_connected": "{host} joins",
    "host_disconnected": "{host} away",
    **dict.fromkeys(
        ("nic_down", "nic_sends_nothing", "nic_receives_nothing", "nic_cut_off"),
        "{host}:{nic} dead",
    ),
    **dict.fromkeys(("nic_up", "nic_sends_again", "nic_receives_again"), "{host}:{nic} works"),
    "nic_moved": "{host}:{nic} moved",
    **dict.fromkeys(("switch_dead", "switch_cut_off"), "{switch} dead"),
    "switch_works_again": "{switch} works",
    **dict.fromkeys(
        ("cable_dead", "cable_dead_in_vlans", "cable_one_way", "cable_one_way_in_vlans"),
        "{cable} dead",
    ),
    "cable_works_again": "{cable} works",
    "job_begun": "job {job} begins",
    **dict.fromkeys(("job_moved", "job_moved_back", "job_changed"), "job {job} moved"),
    **dict.fromkeys(("job_ended", "job_ended_by"), "job {job} ends"),
}


class Mark(NamedTuple):
    """A moment at which strategy, links or jobs changed, in a few words."""

    time_s: float
    text: str
    bad: bool


def part_text(entry: FairEntry | None) -> str:
    """The part that a host gets of what is fair; `-` where no link limits it."""
    return "-" if entry is None else percent_text(part_of_fair(entry["tx_bps"], entry["fair_bps"]))


def clients(state: Documents) -> list[str]:
    """The senders that a link limits: the one with the pair that gets the smallest part first."""
    fair = state.get("fair", {})

    def rank(name: str) -> tuple[float, Any]:
        return worst_of(fair[name]) or 0.0, natural(name)

    return sorted((name for name in fair if name in state["hosts"]), key=rank)


def lines_of(state: Documents, kept: Sequence[str] = ()) -> list[str]:
    """The hosts that a chart has lines for: all of few; of many, those that get least.

    Those that are there already stay: lines that change places cannot be read.
    """
    hosts = sorted(state["hosts"], key=natural)
    if len(hosts) <= MAX_LINES:
        return hosts
    found = [name for name in kept if name in state["hosts"]]
    found += [name for name in (*clients(state), *hosts) if name not in found]
    return sorted(found[:MAX_LINES], key=natural)


def worst_client(state: Documents, *, old: bool = False) -> str:
    """One sentence on the pair that gets the smallest part of what is fair.

    What is `old` says how it was.
    """
    found = clients(state)
    if not found:
        if state["controller"].get("sampled_s") is None:
            return "It is not known yet what is fair."
        if not any(any(both) for nics in state["rates"].values() for both in nics.values()):
            return f"No host {'sent' if old else 'sends'} anything."
        return "No link limited anybody." if old else "No link limits anybody."
    name = found[0]
    entry = state["fair"][name]
    gets, link = ("got", "limited") if old else ("gets", "limits")
    return (
        f"Worst of {counted(sum(state['fair'][each]['pairs'] for each in found), 'pair')} that a "
        f"link {link}: {name} to {entry['worst']} {gets} {percent_text(worst_of(entry))} of what "
        f"is fair, {page_rate(entry['worst_tx_bps'])} of {page_rate(entry['worst_fair_bps'])}."
    )


def marks_of(events: Sequence[Event], since_s: float) -> list[Mark]:
    """The marks of the events since a time, the oldest first."""
    marks = []
    for event in events:
        code, args = event.get("code", ""), {**event.get("args", {}), **event.get("subject", {})}
        template = _MARKS.get(code)
        if code in _STRATEGY and args.get("parameter") == "strategy":
            template = "strategy {value}"
        if template is None or event["time_s"] < since_s:
            continue
        try:
            said = template.format(**args)
        except KeyError:  # of another version, which says less
            continue
        marks.append(Mark(event["time_s"], said, event.get("severity", "info") != "info"))
    return marks[-MAX_MARKS:]


def fair_chart(
    times: Sequence[float], sent: Lines, fair: Lines, marks: Collection[Mark]
) -> dict[str, Any]:
    """The options of a chart of what hosts send, each beside what is fair for it, dashed."""
    lines = {**sent, **{f"{name}, fair": values for name, values in fair.items()}}
    options = rate_chart("", times, lines)
    colours = dict(zip(sent, options["color"], strict=False))
    for series, name in zip(options["series"], [*sent, *fair], strict=True):
        series["itemStyle"] = {"color": colours[name]}
        series["lineStyle"] = {"type": "solid", "width": 2.5, "color": colours[name]}
        if series["name"] not in sent:
            series["lineStyle"] |= {"type": "dashed", "width": 1.5}
            series["step"] = "end"
    if options["series"]:
        options["series"][0]["markLine"] = {
            "symbol": "none",
            "silent": True,
            "label": {"position": "insideEndTop", "fontSize": 11, "distance": 3},
            "data": [
                {
                    "xAxis": round(mark.time_s * 1000),
                    "label": {"formatter": shortened(mark.text, MARK_LETTERS)},
                    "lineStyle": {
                        "color": "#d4351c" if mark.bad else "#6b7681",
                        "type": "solid",
                        "width": 1.5 if mark.bad else 1,
                    },
                }
                for mark in marks
            ],
        }
    options["legend"]["data"] = list(sent)
    options["grid"]["top"] = 34
    del options["title"]
    return options
