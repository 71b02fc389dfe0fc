# SPDX-License-Identifier: Apache-2.0
"""The picture of the network as SVG, and what of it changes: pure.

The SVG is sent once. Afterwards only classes and short notes are sent, and only those of parts that
have changed (`changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ri2n_sdn.contract.documents import Documents, HostEntry, NicEntry
from ri2n_sdn.contract.fair import part_of_fair
from ri2n_sdn.contract.units import short_rate
from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.scene import NAME_HEIGHT, Bar, Cable, Link, Nic, Row, Scene, nics_at
from ri2n_sdn.web.gui.words import shortened

__all__ = ["HEAT_STEPS", "Paint", "changes", "heat", "nic_note", "paint", "svg"]

HEAT_STEPS = (0.01, 0.25, 0.5, 0.8)
"""The shares of a NIC's rate at which its line gets the next colour."""

Paint = dict[str, list[str]]
"""By the end of an element's id: its class, and for rows and lines what stands beside them."""

Part = Callable[..., Markup]
"""Makes a part of the picture of its key in a `Paint`, and of what `tag` makes an element of."""

Rates = Mapping[str, Mapping[str, Sequence[float]]]

_MAX_LABEL, _MAX_NIC, _MAX_SWITCH = 18, 12, 11
_MANY_CABLES = 60
_LETTER_PX = 6.6
_BESIDE = 7  # between a part and what stands beside it


def svg(scene: Scene, painted: Paint, prefix: str = "net") -> Markup:
    """The whole picture. The ids of its parts begin with `prefix` and a hyphen."""

    def part(key: str, name: str, *children: object, **attributes: object) -> Markup:
        """A part whose look may change."""
        return tag(name, *children, id=f"{prefix}-{key}", class_=painted[key][0], **attributes)

    parts = [
        *(_title(name, x) for name, x in scene.titles),
        *(_cable(part, number, cable) for number, cable in enumerate(scene.cables)),
        *(_link(part, number, link) for number, link in enumerate(scene.links)),
        *(_bar(part, number, bar) for number, bar in enumerate(scene.bars)),
        *(_dot(part, number, link) for number, link in enumerate(scene.links)),
        *(_note(part, number, link, painted) for number, link in enumerate(scene.links)),
        *(_row(part, number, scene, painted[f"r{number}"][1]) for number in range(len(scene.rows))),
    ]
    width, height = round(scene.width), round(scene.height)
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        role="group",
        aria_label="Hosts, NICs and networks",
        class_="net many" if len(scene.cables) > _MANY_CABLES else "net",
    )


def paint(
    scene: Scene,
    state: Documents,
    *,
    nics: Collection[Nic] = (),
    cables: Collection[str] = (),
    chosen: str | None = None,
    old: bool = False,
) -> Paint:
    """The look of all parts in a state. `nics` and `cables` are emphasized, and row `chosen` is.

    What is `old` says how it was, and not how it is.
    """
    hosts, rates = state["hosts"], state["rates"]
    painted: Paint = {}
    used_bars = set()
    for number, link in enumerate(scene.links):
        look, note = _look(link, hosts, rates, old=old)
        if nics and any(nic in nics for nic in link.nics):
            look += " way"
            used_bars.add(link.bar)
        painted[f"l{number}"] = [f"link {look}"]
        painted[f"d{number}"] = [f"dot {look}"]
        painted[f"t{number}"] = [f"nic {look}", note]
    for number, bar in enumerate(scene.bars):
        kind = "bar switch" if bar.is_switch else "bar"
        painted[f"b{number}"] = [f"{kind} way" if number in used_bars else kind]
    dead = {name for name, cable in state["cables"].items() if not cable["alive"]}
    for number, cable in enumerate(scene.cables):
        way = " way" if cable.name in cables else ""
        painted[f"c{number}"] = [f"cable{' dead' if cable.name in dead else ''}{way}"]
    way_hosts = {nic.host for nic in nics}
    for number, row in enumerate(scene.rows):
        kind, note = _row_state(row, state, old=old)
        kinds = ["row", kind]
        if way_hosts.intersection(row.hosts):
            kinds.append("way")
        if chosen == row.label:
            kinds.append("chosen")
        painted[f"r{number}"] = [" ".join(filter(None, kinds)), note]
    return painted


def changes(before: Paint, after: Paint) -> Paint:
    """What must be sent so that a picture that looks like `before` looks like `after`."""
    return {key: look for key, look in after.items() if before.get(key) != look}


def heat(tx_bps: float, rx_bps: float, speed_bps: float) -> int:
    """How hot a line is, 0 to 4, by the direction that carries more."""
    share = max(tx_bps, rx_bps) / speed_bps if speed_bps > 0 else 0.0
    return sum(share >= step for step in HEAT_STEPS)


def _look(
    link: Link, hosts: Mapping[str, HostEntry], rates: Rates, *, old: bool
) -> tuple[str, str]:
    """(class, what stands on it) of a link.

    A NIC is dead when it is down, or when nothing arrives. Of many NICs, one that is dead shows.
    The heat of many NICs is that of all of them together.
    """
    dead = away = 0
    speed_bps, sums = 0.0, [0.0, 0.0]
    for host, name in link.nics:
        nic = nics_at(hosts, host).get(name)
        if nic is None or nic["alive"] is None:
            away += 1
            continue
        if not nic["alive"] or not nic["up"]:
            dead += 1
        speed_bps += nic["speed_bps"] or 0
        for direction, rate_bps in enumerate(rates.get(host, {}).get(name, (0, 0))):
            sums[direction] += rate_bps
    count = len(link.nics)
    if count == 1:
        (host, name), *_ = link.nics
        said = nic_note(
            name, nics_at(hosts, host).get(name), rates.get(host, {}).get(name), old=old
        )
    elif dead:
        said = f"{dead} of {count} NICs {('was ' if dead == 1 else 'were ') if old else ''}dead"
    else:
        said = f"{count} NICs" + ("" if away == count else _both(sums))
    if dead:
        return ("dead" if dead + away == count else "some-dead"), said
    return "away" if away == count else f"heat-{heat(sums[0], sums[1], speed_bps)}", said


def nic_note(
    name: str, nic: NicEntry | None, rates: Sequence[float] | None, *, old: bool = False
) -> str:
    """A NIC in a few words: what it sends and receives, or that it is dead.

    What is `old` says how it was.
    """
    shown = shortened(name, _MAX_NIC)
    if nic is None or nic["alive"] is None:
        return shown
    if not nic["alive"] or not nic["up"]:
        return f"{shown} {'was ' if old else ''}dead"
    return shown + _both(rates or (0, 0))


def _both(rates: Sequence[float]) -> str:
    """What is sent and received."""
    return f" ↑{short_rate(rates[0])} ↓{short_rate(rates[1])}"


def _row_state(row: Row, state: Documents, *, old: bool) -> tuple[str, str]:
    """(class, what stands beside the name) of a row.

    Of a host that is well, that is the part that it gets of what is fair, if a link limits it.
    """
    away = dead = 0
    for name in row.hosts:
        host = state["hosts"].get(name)
        if host is None or not host["connected"]:
            away += 1
            continue
        dead += sum(not nic["alive"] or not nic["up"] for nic in host["nics"].values())
    said = []
    if dead:
        said.append(f"{'had ' if old else ''}{dead} dead")
    if away:
        words = "away" if len(row.hosts) == 1 else f"{away} away"
        said.append(f"{'was ' if old else ''}{words}")
    if len(row.hosts) > 1:
        said.insert(0, f"{len(row.hosts)} hosts")
    elif (entry := state.get("fair", {}).get(row.hosts[0])) is not None and not away:
        part = part_of_fair(entry["tx_bps"], entry["fair_bps"])
        said += [] if part is None else [f"{part:.0%} of fair"]
    kind = "dead" if dead else "away" if away == len(row.hosts) else ""
    return kind, ", ".join(said)


def _title(name: str, x: float) -> Markup:
    return tag(
        "text",
        shortened(name, _MAX_LABEL),
        tag("title", f"network {name}"),
        x=round(x),
        y=16,
        text_anchor="middle",
        class_="network",
    )


def _row(part: Part, number: int, scene: Scene, note: str) -> Markup:
    row, x, width = scene.rows[number], round(scene.row_x), round(scene.row_width)
    name = f"{'hosts' if len(row.hosts) > 1 else 'host'} {row.label}"
    y = _round(row.y + row.height / 2 + 4)
    return part(
        f"r{number}",
        "g",
        tag("title", row.label),
        tag("rect", x=x, y=row.y, width=width, height=row.height, rx=4),
        tag("text", shortened(row.label, _MAX_LABEL), x=x + _BESIDE, y=y, class_="name"),
        tag("text", note, x=x + width - _BESIDE, y=y, text_anchor="end", class_="note"),
        role="button",
        tabindex=0,
        data_row=number,
        data_name=name,
        aria_label=f"{name}: {note}" if note else name,
    )


def _link(part: Part, number: int, link: Link) -> Markup:
    y = _round(link.y)
    return part(f"l{number}", "line", x1=_round(link.x1), y1=y, x2=_round(link.x2), y2=y)


def _dot(part: Part, number: int, link: Link) -> Markup:
    said = ", ".join(f"{nic.host} {nic.nic}" for nic in link.nics[:3])
    more = f" and {len(link.nics) - 3} more" if len(link.nics) > 3 else ""
    title = tag("title", f"{said}{more}")
    return part(f"d{number}", "circle", title, cx=_round(link.x2), cy=_round(link.y), r=4)


def _note(part: Part, number: int, link: Link, painted: Paint) -> Markup:
    """What stands above a line, beside its row."""
    left = link.x2 < link.x1
    return part(
        f"t{number}",
        "text",
        painted[f"t{number}"][1],
        x=_round(link.x1 + (-_BESIDE if left else _BESIDE)),
        y=_round(link.y - 5),
        text_anchor="end" if left else None,
    )


def _bar(part: Part, number: int, bar: Bar) -> Markup:
    kind = "switch" if bar.is_switch else "network"
    x = _round(bar.x)
    places = [
        tag("rect", x=x, y=_round(top), width=bar.width, height=_round(bottom - top))
        for top, bottom in bar.pieces
    ]
    label = text()  # A network's name stands above its column already.
    if bar.upper:
        if bar.height >= NAME_HEIGHT - 6:
            name, middle = shortened(bar.name, _MAX_SWITCH + 3), _round(bar.x + bar.width / 2)
            label = tag("text", name, x=middle, y=_round(bar.y - 4), text_anchor="middle")
    elif bar.is_switch:
        out = bar.x + bar.width + 4 if bar.side > 0 else bar.x - 4
        anchor = None if bar.side > 0 else "end"
        name, y = shortened(bar.name, _MAX_SWITCH), _round(bar.y + 7)
        label = tag("text", name, x=_round(out), y=y, text_anchor=anchor)
    return part(f"b{number}", "g", tag("title", f"{kind} {bar.name}"), *places, label)


def _cable(part: Part, number: int, cable: Cable) -> Markup:
    middle = ""
    if cable.bend:
        x, y = (cable.x1 + cable.x2) / 2 + cable.bend, (cable.y1 + cable.y2) / 2
        middle = f"Q {x:.1f} {y:.1f} "
    way = f"M {cable.x1:.1f} {cable.y1:.1f} {middle or 'L '}{cable.x2:.1f} {cable.y2:.1f}"
    return part(f"c{number}", "path", tag("title", f"cable {cable.name}"), d=way)


def _round(value: float) -> float:
    return round(value, 1)
