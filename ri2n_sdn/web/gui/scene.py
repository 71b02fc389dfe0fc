# SPDX-License-Identifier: Apache-2.0
"""Where everything stands in the picture of the network: pure geometry, without colours.

Hosts are rows. Networks are columns to the right of them: one bar for a network without declared
switches, otherwise a bar for each switch, the ones with hosts first. A NIC is a line from its
host's row to a bar. So nothing crosses that need not, and a row costs little height.

Up to MAX_HOST_ROWS hosts have a row each. Otherwise a row stands for all hosts that are plugged in
at the same switches, and when even those are too many, for all hosts with the same networks, and
the switches of a network are one bar.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ri2n_sdn.contract.documents import CableEntry, Documents, HostEntry, NicEntry
from ri2n_sdn.contract.names import natural

__all__ = [
    "MAX_HOST_ROWS",
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

TOP, BOTTOM = 34.0, 14.0
ROW_X, ROW_WIDTH, GROUP_WIDTH = 4.0, 132.0, 228.0
SHORT_LABEL = 10
COLUMN_GAP = 50.0
ROW_GAP, MIN_ROW_HEIGHT, LINK_STEP = 5.0, 20.0, 9.0
BAR_WIDTH, LANE_STEP, TIER_STEP, NETWORK_STEP = 18.0, 30.0, 130.0, 84.0
MIN_BAR_HEIGHT = 46.0
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
    """The NICs of a row that are plugged in at one bar, each on its own where the row is a host."""

    row: int
    bar: int
    nics: tuple[Nic, ...]
    y: float


@dataclass(frozen=True)
class Bar:
    """A network without declared switches, or a switch. An `upper` one has no hosts."""

    name: str
    network: str
    is_switch: bool
    x: float
    y: float
    height: float
    upper: bool = False

    @property
    def middle(self) -> float:
        """The height at which cables end."""
        return self.y + self.height / 2


@dataclass(frozen=True)
class Cable:
    """A cable between two switches, from left to right; `bent` when both stand in one column."""

    name: str
    x1: float
    y1: float
    x2: float
    y2: float
    bent: bool


@dataclass(frozen=True)
class Scene:
    """Everything of the picture. `titles` are the networks' names and where they begin."""

    rows: tuple[Row, ...]
    links: tuple[Link, ...]
    bars: tuple[Bar, ...]
    cables: tuple[Cable, ...]
    titles: tuple[tuple[str, float], ...]
    row_width: float
    width: float
    height: float


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
        self._height = self._add_rows(groups)

    def scene(self) -> Scene:
        # What is wrong with a host stands beside its name, which needs room when it is long.
        long = any(len(row.hosts) > 1 or len(row.label) > SHORT_LABEL for row in self._rows)
        row_width = GROUP_WIDTH if long else ROW_WIDTH
        x = first_x = ROW_X + row_width + COLUMN_GAP
        for network in sorted(self._networks, key=natural):
            if self._networks[network]:
                self._titles.append((network, x))
                x = self._add_network(network, x) + NETWORK_STEP
        numbers = {plug: number for number, plug in enumerate(self._bars)}
        return Scene(
            tuple(self._rows),
            tuple(Link(row, numbers[plug], nics, y) for row, plug, nics, y in self._links),
            tuple(self._bars.values()),
            tuple(self._drawn_cables()),
            tuple(self._titles),
            row_width,
            max(x - NETWORK_STEP, first_x) + 44,
            max([self._height, *(bar.y + bar.height for bar in self._bars.values())]) + BOTTOM,
        )

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
            height = max(MIN_ROW_HEIGHT, LINK_STEP * len(by_plug) + 4)
            label = hosts[0] if len(hosts) == 1 else f"{hosts[0]} - {hosts[-1]}"
            self._rows.append(Row(label, hosts, y, height))
            first = y + height / 2 - LINK_STEP * (len(by_plug) - 1) / 2
            for place, (plug, nics) in enumerate(by_plug):
                self._links.append((number, plug, nics, first + place * LINK_STEP))
            y += height + ROW_GAP
        return y

    def _add_network(self, network: str, x: float) -> float:
        """Place the bars of a network from `x` on, and return where they end."""
        spans: dict[_Plug, tuple[float, float]] = {}
        for _, plug, _, y in self._links:
            if plug.network == network:
                low, high = spans.get(plug, (y, y))
                spans[plug] = (min(low, y), max(high, y))
        lanes: list[float] = []  # how far down each lane is taken
        for plug, (low, high) in sorted(spans.items(), key=lambda item: item[1]):
            top, bottom = low - 7, high + 7
            if bottom - top < MIN_BAR_HEIGHT and plug.switch is None:
                bottom = top + MIN_BAR_HEIGHT
            lane = next((lane for lane, taken in enumerate(lanes) if taken < top), len(lanes))
            lanes[lane : lane + 1] = [bottom]
            self._bars[plug] = self._bar(plug, x + lane * LANE_STEP, top, bottom - top)
        end = x + max(0, len(lanes) - 1) * LANE_STEP + BAR_WIDTH
        for tier in self._upper_tiers(network, set(spans)):
            end += TIER_STEP
            # Declared switches are there before the first host is.
            step = max((self._height - TOP) / len(tier), MIN_STEP)
            for place, plug in enumerate(tier):
                height = min(MIN_BAR_HEIGHT, step - 4)
                middle = TOP + (place + 0.5) * step
                place_y = middle - height / 2
                self._bars[plug] = self._bar(plug, end - BAR_WIDTH, place_y, height, upper=True)
        return end

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
            left, right = sorted(
                (bars[end] for end in self._cables[names[0]]["ends"]), key=lambda bar: bar.x
            )
            bent = right.x - left.x < TIER_STEP / 2
            for place, name in enumerate(names):
                shift = (place - (len(names) - 1) / 2) * CABLE_STEP
                end = right.x + BAR_WIDTH if bent else right.x
                yield Cable(
                    name,
                    *(left.x + BAR_WIDTH, left.middle + shift),
                    *(end, right.middle + shift),
                    bent,
                )

    @staticmethod
    def _bar(plug: _Plug, x: float, y: float, height: float, upper: bool = False) -> Bar:
        is_switch = plug.switch is not None
        return Bar(plug.switch or plug.network, plug.network, is_switch, x, y, height, upper)


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
