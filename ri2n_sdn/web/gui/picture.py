# SPDX-License-Identifier: Apache-2.0
"""The picture of the network as SVG, and what of it changes: pure.

The SVG is sent once. Afterwards only classes and short notes are sent, and only those of parts that
have changed (`changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ri2n_sdn.contract.documents import Documents, HostEntry
from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.scene import BAR_WIDTH, ROW_X, Bar, Cable, Link, Nic, Row, Scene, nics_at
from ri2n_sdn.web.gui.words import shortened

__all__ = ["HEAT_STEPS", "Paint", "changes", "heat", "paint", "svg"]

HEAT_STEPS = (0.01, 0.25, 0.5, 0.8)
"""The shares of a NIC's speed at which its line gets the next colour."""

Paint = dict[str, list[str]]
"""By the end of an element's id: its class, and for a row what stands beside its name."""

Part = Callable[..., Markup]
"""Makes a part of the picture of its key in a `Paint`, and of what `tag` makes an element of."""

Rates = Mapping[str, Mapping[str, Sequence[float]]]

_MIN_LABEL, _MAX_LABEL = 4, 18
_MANY_CABLES = 60
_LETTER_PX = 6.6


def svg(scene: Scene, painted: Paint, prefix: str = "net") -> Markup:
    """The whole picture. The ids of its parts begin with `prefix` and a hyphen."""

    def part(key: str, name: str, *children: Markup, **attributes: object) -> Markup:
        """A part whose look may change."""
        return tag(name, *children, id=f"{prefix}-{key}", class_=painted[key][0], **attributes)

    parts = [
        *(_title(name, x) for name, x in scene.titles),
        *(_cable(part, number, cable) for number, cable in enumerate(scene.cables)),
        *(_link(part, number, link, scene) for number, link in enumerate(scene.links)),
        *(_bar(part, number, bar) for number, bar in enumerate(scene.bars)),
        *(_dot(part, number, link, scene) for number, link in enumerate(scene.links)),
        *(_row(part, number, scene, painted[f"r{number}"][1]) for number in range(len(scene.rows))),
    ]
    width, height = round(scene.width), round(scene.height)
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
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
) -> Paint:
    """The look of all parts in a state. `nics` and `cables` are emphasized, and row `chosen` is."""
    hosts, rates = state["hosts"], state["rates"]
    painted: Paint = {}
    used_bars = set()
    for number, link in enumerate(scene.links):
        look = _look(link, hosts, rates)
        if nics and any(nic in nics for nic in link.nics):
            look += " way"
            used_bars.add(link.bar)
        painted[f"l{number}"] = [f"link {look}"]
        painted[f"d{number}"] = [f"dot {look}"]
    for number, bar in enumerate(scene.bars):
        kind = "bar switch" if bar.is_switch else "bar"
        painted[f"b{number}"] = [f"{kind} way" if number in used_bars else kind]
    dead = {name for name, cable in state["cables"].items() if not cable["alive"]}
    for number, cable in enumerate(scene.cables):
        way = " way" if cable.name in cables else ""
        painted[f"c{number}"] = [f"cable{' dead' if cable.name in dead else ''}{way}"]
    way_hosts = {nic.host for nic in nics}
    for number, row in enumerate(scene.rows):
        kind, note = _row_state(row, hosts)
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


def _look(link: Link, hosts: Mapping[str, HostEntry], rates: Rates) -> str:
    """The class of a link.

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
    if dead:
        return "dead" if dead + away == len(link.nics) else "some-dead"
    if away == len(link.nics):
        return "away"
    return f"heat-{heat(sums[0], sums[1], speed_bps)}"


def _row_state(row: Row, hosts: Mapping[str, HostEntry]) -> tuple[str, str]:
    """(class, what stands beside the name) of a row."""
    away = dead = 0
    for name in row.hosts:
        host = hosts.get(name)
        if host is None or not host["connected"]:
            away += 1
            continue
        dead += sum(not nic["alive"] or not nic["up"] for nic in host["nics"].values())
    said = []
    if dead:
        said.append(f"{dead} dead")
    if away:
        said.append("away" if len(row.hosts) == 1 else f"{away} away")
    if len(row.hosts) > 1:
        said.insert(0, f"{len(row.hosts)} hosts")
    kind = "dead" if dead else "away" if away == len(row.hosts) else ""
    return kind, ", ".join(said)


def _title(name: str, x: float) -> Markup:
    return tag(
        "text",
        shortened(name, _MAX_LABEL),
        tag("title", f"network {name}"),
        x=round(x),
        y=16,
        class_="network",
    )


def _row(part: Part, number: int, scene: Scene, note: str) -> Markup:
    row, width = scene.rows[number], scene.row_width
    name = f"{'hosts' if len(row.hosts) > 1 else 'host'} {row.label}"
    half = row.height / 2
    return part(
        f"r{number}",
        "g",
        tag("title", row.label),
        tag("rect", x=ROW_X, y=row.y, width=width, height=row.height, rx=4),
        tag(
            "text",
            shortened(row.label, _MAX_LABEL),
            x=ROW_X + 7,
            y=_round(row.y + half + 4),
            class_="name",
        ),
        tag(
            "text",
            note,
            x=ROW_X + width - 6,
            y=_round(row.y + half + 4),
            text_anchor="end",
            class_="note",
        ),
        role="button",
        tabindex=0,
        data_row=number,
        data_name=name,
        aria_label=f"{name}: {note}" if note else name,
    )


def _link(part: Part, number: int, link: Link, scene: Scene) -> Markup:
    bar = scene.bars[link.bar]
    return part(
        f"l{number}",
        "line",
        x1=ROW_X + scene.row_width,
        y1=_round(link.y),
        x2=_round(bar.x + BAR_WIDTH / 2),
        y2=_round(link.y),
    )


def _dot(part: Part, number: int, link: Link, scene: Scene) -> Markup:
    bar = scene.bars[link.bar]
    said = ", ".join(f"{nic.host} {nic.nic}" for nic in link.nics[:3])
    more = f" and {len(link.nics) - 3} more" if len(link.nics) > 3 else ""
    return part(
        f"d{number}",
        "circle",
        tag("title", f"{said}{more}"),
        cx=_round(bar.x + BAR_WIDTH / 2),
        cy=_round(link.y),
        r=4,
    )


def _bar(part: Part, number: int, bar: Bar) -> Markup:
    kind = "switch" if bar.is_switch else "network"
    label = text()  # A network's name stands above its column already.
    if bar.upper:
        x, y = _round(bar.x + BAR_WIDTH / 2), _round(bar.y - 4)
        label = tag("text", shortened(bar.name, _MAX_LABEL), x=x, y=y, text_anchor="middle")
    elif bar.is_switch:
        x, y = _round(bar.x + BAR_WIDTH + 11), _round(bar.middle)
        letters = int((bar.height - 4) / _LETTER_PX)
        shown = shortened(bar.name, letters) if letters >= _MIN_LABEL else ""
        turn = f"rotate(-90 {x} {y})"
        label = tag("text", shown, x=x, y=y, transform=turn, text_anchor="middle")
    x, y, height = _round(bar.x), _round(bar.y), _round(bar.height)
    place = tag("rect", x=x, y=y, width=BAR_WIDTH, height=height)
    return part(f"b{number}", "g", tag("title", f"{kind} {bar.name}"), place, label)


def _cable(part: Part, number: int, cable: Cable) -> Markup:
    bend = min(70.0, 14 + abs(cable.y2 - cable.y1) / 4)
    middle = f"Q {cable.x1 + bend:.1f} {(cable.y1 + cable.y2) / 2:.1f}" if cable.bent else "L"
    way = f"M {cable.x1:.1f} {cable.y1:.1f} {middle} {cable.x2:.1f} {cable.y2:.1f}"
    return part(f"c{number}", "path", tag("title", f"cable {cable.name}"), d=way)


def _round(value: float) -> float:
    return round(value, 1)
