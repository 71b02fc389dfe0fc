# SPDX-License-Identifier: Apache-2.0
"""Where everything stands in the picture of the network: pure geometry, without colours.

Hosts are rows in the middle, and networks stand at both sides of them in turn, so that the picture
fills the page and the lines of two networks do not meet. A network is a rail for all of its NICs,
or a rail for each switch; a NIC is a level line from its host's row to a rail. Where a line passes
a rail that it does not end at, the rail has a gap: no line runs through anything. Switches without
hosts are boxes at the outer edge, those of all networks of a side in common columns.

Up to MAX_HOST_ROWS hosts have a row each. Otherwise a row stands for all hosts that are plugged in
at the same switches, and when even those are too many, for all hosts with the same networks, and
the switches of a network are one rail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ri2n_sdn.contract.documents import CableEntry, Documents, HostEntry, NicEntry
from ri2n_sdn.contract.names import natural

__all__ = [
    "MAX_HOST_ROWS",
    "WIDTH",
    "Bar",
    "Cable",
    "Link",
    "Nic",
    "Row",
    "Scene",
    "nics_at",
    "scene_of",
    "shape_of",
]

MAX_HOST_ROWS = 60

WIDTH = 1120.0
"""The picture is so wide, whatever it shows. The browser fits it to the page."""

TOP, BOTTOM, EDGE = 34.0, 14.0, 34.0
ROW_WIDTH, GROUP_WIDTH = 190.0, 262.0
ROW_GAP, MIN_ROW_HEIGHT, LINK_STEP = 7.0, 25.0, 16.0
LABEL_WIDTH = 190.0  # beside a row, for what stands on its lines
RAIL_WIDTH, BOX_WIDTH = 8.0, 18.0
LANE_STEP, TIER_STEP = 34.0, 96.0
BOX_HEIGHT, RAIL_END, RAIL_GAP = 40.0, 7.0, 4.5
NAME_HEIGHT = 16.0  # above a box
CABLE_STEP, MIN_STEP = 4.0, 16.0


class Nic(NamedTuple):
    """A NIC by the names of its host and its own."""

    host: str
    nic: str


@dataclass(frozen=True)
class Row:
    """A host, or hosts that are plugged in at the same places."""

    label: str
    hosts: tuple[str, ...]
    y: float
    height: float


@dataclass(frozen=True)
class Link:
    """The NICs of a row that are plugged in at one bar, each on its own where the row is a host.

    It is a level line from `x1` at the row to `x2` at the bar.
    """

    row: int
    bar: int
    nics: tuple[Nic, ...]
    y: float
    x1: float
    x2: float


@dataclass(frozen=True)
class Bar:
    """A network without declared switches, or a switch. An `upper` one has no hosts, and is a box.

    * `side`: -1 when it stands to the left of the hosts, and 1 to the right.
    * `gaps`: where lines pass that end elsewhere.
    """

    name: str
    network: str
    is_switch: bool
    side: int
    x: float
    y: float
    height: float
    upper: bool = False
    gaps: tuple[float, ...] = ()

    @property
    def width(self) -> float:
        """How wide it is."""
        return BOX_WIDTH if self.upper else RAIL_WIDTH

    @property
    def middle(self) -> float:
        """The height at which cables end."""
        return self.y + self.height / 2

    @property
    def pieces(self) -> list[tuple[float, float]]:
        """(top, bottom) of each piece between the gaps."""
        pieces, top = [], self.y
        for gap in sorted(self.gaps):
            if gap - RAIL_GAP > top:
                pieces.append((top, gap - RAIL_GAP))
            top = max(top, gap + RAIL_GAP)
        if top < self.y + self.height:
            pieces.append((top, self.y + self.height))
        return pieces


@dataclass(frozen=True)
class Cable:
    """A cable between two switches; `bend` is how far it bends sideways: both are in one column."""

    name: str
    x1: float
    y1: float
    x2: float
    y2: float
    bend: float


@dataclass(frozen=True)
class Scene:
    """Everything of the picture. `titles` are the networks' names and the middles of their places.

    `row_x` is where all rows begin.
    """

    rows: tuple[Row, ...]
    links: tuple[Link, ...]
    bars: tuple[Bar, ...]
    cables: tuple[Cable, ...]
    titles: tuple[tuple[str, float], ...]
    row_x: float
    row_width: float
    height: float
    width: float = WIDTH


class _Plug(NamedTuple):
    """A place at which NICs are plugged in. Without a switch, it is the network itself."""

    network: str
    switch: str | None


def nics_at(hosts: Mapping[str, HostEntry], name: str) -> Mapping[str, NicEntry]:
    """The NICs of a host; none of one that is not known."""
    return hosts[name]["nics"] if name in hosts else {}


def shape_of(state: Documents) -> Hashable:
    """What the picture's geometry depends on. Scenes of states with the same shape are equal."""
    return (
        tuple(
            (name, tuple((nic, *_plug(facts)) for nic, facts in host["nics"].items()))
            for name, host in state["hosts"].items()
        ),
        tuple((name, tuple(net["switches"])) for name, net in state["networks"].items()),
        tuple((name, *cable["ends"]) for name, cable in state["cables"].items()),
    )


def scene_of(state: Documents) -> Scene:
    """The scene of a state. It is the same for equal states, whatever the order of their keys."""
    plugs = {
        name: {nic: _plug(facts) for nic, facts in host["nics"].items()}
        for name, host in state["hosts"].items()
    }
    switches = {name: list(net["switches"]) for name, net in state["networks"].items()}
    cables = state["cables"]
    groups = _groups(plugs)
    if len(groups) > MAX_HOST_ROWS:
        plugs = {
            name: {nic: _Plug(plug.network, None) for nic, plug in nics.items()}
            for name, nics in plugs.items()
        }
        groups, switches, cables = _groups(plugs), {}, {}
    return _Builder(plugs, switches, cables, groups).scene()


class _Builder:
    """Makes one scene."""

    def __init__(
        self,
        plugs: Mapping[str, Mapping[str, _Plug]],
        switches: Mapping[str, Sequence[str]],
        cables: Mapping[str, CableEntry],
        groups: Sequence[tuple[str, ...]],
    ) -> None:
        self._plugs, self._cables = plugs, cables
        self._rows: list[Row] = []
        self._links: list[tuple[int, _Plug, tuple[Nic, ...], float]] = []
        self._bars: dict[_Plug, Bar] = {}
        self._titles: list[tuple[str, float]] = []
        used = {plug for nics in plugs.values() for plug in nics.values()}
        self._networks: dict[str, list[_Plug]] = defaultdict(list)
        for plug in sorted(used, key=_in_order):
            self._networks[plug.network].append(plug)
        for network in sorted(switches, key=natural):
            known = {plug.switch for plug in self._networks[network]}
            self._networks[network] += [
                _Plug(network, name)
                for name in sorted(switches[network], key=natural)
                if name not in known
            ]
        names = [name for name in sorted(self._networks, key=natural) if self._networks[name]]
        # One network stands to the right of the hosts, and several stand left and right in turn.
        first = 1 if len(names) == 1 else -1
        self._side = {name: -first if place % 2 else first for place, name in enumerate(names)}
        wide = any(len(hosts) > 1 for hosts in groups)
        self._row_width = GROUP_WIDTH if wide else ROW_WIDTH
        self._row_x = (WIDTH - self._row_width) / 2 if len(names) > 1 else 4.0
        self._height = self._add_rows(groups)

    def scene(self) -> Scene:
        for side in (-1, 1):
            networks = [name for name, where in self._side.items() if where == side]
            if networks:
                self._add_side(side, networks)
        numbers = {plug: number for number, plug in enumerate(self._bars)}
        links = tuple(
            Link(row, numbers[plug], nics, y, self._edge(bar.side), bar.x + bar.width / 2)
            for row, plug, nics, y in self._links
            for bar in (self._bars[plug],)
        )
        return Scene(
            tuple(self._rows),
            links,
            tuple(_with_gaps(number, bar, links) for number, bar in enumerate(self._bars.values())),
            tuple(self._drawn_cables()),
            tuple(self._titles),
            self._row_x,
            self._row_width,
            max([self._height, *(bar.y + bar.height for bar in self._bars.values())]) + BOTTOM,
        )

    def _edge(self, side: int) -> float:
        """Where lines to this side begin."""
        return self._row_x + (self._row_width if side > 0 else 0.0)

    def _add_rows(self, groups: Sequence[tuple[str, ...]]) -> float:
        y = TOP
        for number, hosts in enumerate(groups):
            by_plug: list[tuple[_Plug, tuple[Nic, ...]]]
            if len(hosts) == 1:
                own = self._plugs[hosts[0]]
                by_plug = [(own[nic], (Nic(hosts[0], nic),)) for nic in sorted(own, key=natural)]
            else:
                gathered = defaultdict[_Plug, list[Nic]](list)
                for host in hosts:
                    for nic, plug in self._plugs[host].items():
                        gathered[plug].append(Nic(host, nic))
                by_plug = [(plug, tuple(gathered[plug])) for plug in sorted(gathered, key=str)]
            sides = [
                [each for each in by_plug if self._side[each[0].network] == side]
                for side in (-1, 1)
            ]
            height = max(MIN_ROW_HEIGHT, LINK_STEP * max(map(len, sides)) + 6)
            label = hosts[0] if len(hosts) == 1 else f"{hosts[0]} - {hosts[-1]}"
            self._rows.append(Row(label, hosts, y, height))
            for each in sides:
                # What stands on a line has its place above the line.
                first = y + height / 2 + 3 - LINK_STEP * (len(each) - 1) / 2
                for place, (plug, nics) in enumerate(each):
                    self._links.append((number, plug, nics, first + place * LINK_STEP))
            y += height + ROW_GAP
        return y

    def _add_side(self, side: int, networks: Sequence[str]) -> None:
        """Place all bars of a side: the rails of its networks, and the boxes behind them."""
        spans = {name: self._spans(name) for name in networks}
        tiers: list[list[_Plug]] = []
        for name in networks:
            for number, tier in enumerate(self._upper_tiers(name, set(spans[name]))):
                tiers += [[]] * (number + 1 - len(tiers))
                tiers[number] = tiers[number] + tier
        begin = self._edge(side)
        outer = EDGE if side < 0 else WIDTH - EDGE
        inner = outer - side * TIER_STEP * len(tiers)  # where the outermost rail stands
        step = (abs(inner - begin) - LABEL_WIDTH) / len(networks)
        for place, name in enumerate(networks):
            x = begin + side * (LABEL_WIDTH + step * (place + 1))
            self._add_rails(side, name, spans[name], x, step)
        for number, tier in enumerate(tiers):
            x = inner + side * TIER_STEP * (number + 1)
            # Declared switches are there before the first host is.
            height_step = max((self._height - TOP) / len(tier), MIN_STEP)
            for place, plug in enumerate(tier):
                height = min(BOX_HEIGHT, height_step - (NAME_HEIGHT if height_step > 26 else 4))
                y = TOP + (place + 0.5) * height_step - height / 2
                self._add_bar(plug, side, x - BOX_WIDTH / 2, y, height, upper=True)
            for name in networks:
                if not spans[name] and number == 0:
                    self._titles.append((name, x))

    def _spans(self, network: str) -> dict[_Plug, tuple[float, float]]:
        """From where to where the lines of each bar of a network reach."""
        spans: dict[_Plug, tuple[float, float]] = {}
        for _, plug, _, y in self._links:
            if plug.network == network:
                low, high = spans.get(plug, (y, y))
                spans[plug] = (min(low, y), max(high, y))
        return spans

    def _add_rails(
        self,
        side: int,
        network: str,
        spans: Mapping[_Plug, tuple[float, float]],
        x: float,
        room: float,
    ) -> None:
        """Place the rails of a network in lanes within `room`, the last one at `x`."""
        lanes: list[float] = []  # how far down each lane is taken
        places: list[tuple[_Plug, int, float, float]] = []
        for plug, (low, high) in sorted(spans.items(), key=lambda item: item[1]):
            top, bottom = low - RAIL_END, high + RAIL_END
            lane = next((lane for lane, taken in enumerate(lanes) if taken < top), len(lanes))
            lanes[lane : lane + 1] = [bottom]
            places.append((plug, lane, top, bottom - top))
        step = min(LANE_STEP, room / max(1, len(lanes)))
        for plug, lane, top, height in places:
            at = x - side * step * (len(lanes) - 1 - lane)
            self._add_bar(plug, side, at - RAIL_WIDTH / 2, top, height)
        if spans:
            self._titles.append((network, x))

    def _add_bar(
        self, plug: _Plug, side: int, x: float, y: float, height: float, *, upper: bool = False
    ) -> None:
        is_switch = plug.switch is not None
        name = plug.switch or plug.network
        self._bars[plug] = Bar(name, plug.network, is_switch, side, x, y, height, upper)

    def _upper_tiers(self, network: str, placed: set[_Plug]) -> Iterable[list[_Plug]]:
        """The switches without hosts, by how far they are from those with hosts."""
        waiting = [plug for plug in self._networks[network] if plug not in placed]
        names = {plug.switch for plug in placed}
        while waiting:
            beside = {
                end
                for cable in self._cables.values()
                if names & set(cable["ends"])
                for end in cable["ends"]
            }
            tier = [plug for plug in waiting if plug.switch in beside] or waiting
            yield tier
            names |= {plug.switch for plug in tier}
            waiting = [plug for plug in waiting if plug not in tier]

    def _drawn_cables(self) -> Iterable[Cable]:
        bars = {plug.switch: bar for plug, bar in self._bars.items() if plug.switch is not None}
        parallel: dict[frozenset[str], list[str]] = defaultdict(list)
        for name in sorted(self._cables, key=natural):
            ends = self._cables[name]["ends"]
            if ends[0] != ends[1] and all(end in bars for end in ends):
                parallel[frozenset(ends)].append(name)
        for names in parallel.values():
            inner, outer = sorted(
                (bars[end] for end in self._cables[names[0]]["ends"]),
                key=lambda bar: abs(bar.x - WIDTH / 2),
            )
            side = inner.side
            same = abs(outer.x - inner.x) < LANE_STEP * 2 and not outer.upper
            begin = inner.x + (inner.width if side > 0 else 0.0)
            end = outer.x + (outer.width if (side > 0) == same else 0.0)
            bend = side * min(70.0, 14 + abs(outer.middle - inner.middle) / 4) if same else 0.0
            for place, name in enumerate(names):
                shift = (place - (len(names) - 1) / 2) * CABLE_STEP
                yield Cable(name, begin, inner.middle + shift, end, outer.middle + shift, bend)


def _with_gaps(number: int, bar: Bar, links: Iterable[Link]) -> Bar:
    """A bar with a gap wherever a line passes that ends at another one."""
    passing = tuple(
        link.y
        for link in links
        if link.bar != number
        and min(link.x1, link.x2) < bar.x + bar.width
        and max(link.x1, link.x2) > bar.x
        and bar.y - RAIL_GAP < link.y < bar.y + bar.height + RAIL_GAP
    )
    return replace(bar, gaps=passing) if passing else bar


def _plug(nic: NicEntry) -> _Plug:
    return _Plug(str(nic["network"]), None if nic["switch"] is None else str(nic["switch"]))


def _in_order(plug: _Plug) -> Any:
    return natural(plug.network), natural(plug.switch or "")


def _groups(plugs: Mapping[str, Mapping[str, _Plug]]) -> list[tuple[str, ...]]:
    """The hosts of each row, those at the same switches beside each other."""

    def places(name: str) -> list[Any]:
        return [_in_order(plug) for plug in sorted(plugs[name].values(), key=str)]

    ordered = sorted(plugs, key=lambda name: (places(name), natural(name)))
    if len(ordered) <= MAX_HOST_ROWS:
        return [(name,) for name in ordered]
    gathered: dict[str, list[str]] = defaultdict(list)
    for name in ordered:
        gathered[str(places(name))].append(name)
    return [tuple(names) for names in gathered.values()]
