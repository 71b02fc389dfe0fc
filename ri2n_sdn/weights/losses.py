"""Which cable loses packets: found from what senders and receivers count, path by path.

A cable that loses every twentieth packet halves no counter and kills no probe for long, but TCP
over it crawls. Each path crosses several directed links (the sender's NIC, links between switches,
the receiver's NIC), and only paths are counted. A link is suspected when every path over it that
carried enough loses packets: a healthy link is cleared by one path that loses none. Of the suspects
the one with the most lossy paths takes the blame, its part is taken off its paths, and so on; links
that no counter can tell apart are named together.

A full link loses packets by right, so whatever crosses a link near its rate says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.weights.counters import PairCounters

__all__ = ["Loss", "LossSettings", "LossWatch"]


@dataclass(frozen=True)
class LossSettings:
    """`least` is the part that is told of, a little under 5 %, since a sample of 5 % may show less;
    a path is judged by at least `packets` in a window, and is lossy from half of `least`. Links
    above `full` of their rate are left out. A loss is believed after two windows, and for `keep_s`
    after the traffic that showed it has ended. Open vSwitch's counters are up to half a second old,
    and not the same on both ends: a window is many times as long.
    """

    window_s: float = 20.0
    least: float = 0.04
    packets: int = 400
    full: float = 0.8
    keep_s: float = 60.0


@dataclass(frozen=True)
class Loss:
    """`part` of the packets is lost on one of `links`, ids as in `Path.links`.

    Several when nothing tells which.
    """

    links: tuple[str, ...]
    part: float


@dataclass(frozen=True)
class _Count:
    sent_bytes: int
    sent_packets: int
    received_packets: int


_PathId = tuple[str, str, PathKey]


class LossWatch:
    """Pure: the time is given, and the state is one count per path."""

    def __init__(self, settings: LossSettings | None = None) -> None:
        self.settings = settings or LossSettings()
        self._since_s = float("-inf")
        self._counts: dict[_PathId, _Count] = {}
        self._seen: list[Loss] = []
        self._believed: dict[tuple[str, ...], tuple[Loss, float]] = {}

    @property
    def losses(self) -> list[Loss]:
        """What is believed now, the worst first."""
        return sorted(
            (loss for loss, _ in self._believed.values()), key=lambda loss: (-loss.part, loss.links)
        )

    def step(
        self,
        now_s: float,
        pairs: Sequence[PairCounters],
        answered: Collection[str],
        capacities_bps: Mapping[str, float],
    ) -> None:
        """Take the counters of a round, those of hosts in `answered` being new.

        The others' are old and not used.
        """
        window_s = now_s - self._since_s
        if window_s < self.settings.window_s:
            return
        before, self._counts, self._since_s = self._counts, {}, now_s
        new = set(answered)
        ways: dict[_PathId, tuple[str, ...]] = {}
        grown: dict[_PathId, _Count] = {}
        for pair in pairs:
            if pair.sender not in new or pair.receiver not in new:
                continue
            for path in pair.paths:
                key = (pair.sender, pair.receiver, path.path)
                now = _Count(path.sent_bytes, path.sent_packets, path.received_packets)
                self._counts[key] = now
                then = before.get(key)
                if path.alive and then is not None:
                    ways[key] = path.links
                    grown[key] = _Count(
                        now.sent_bytes - then.sent_bytes,
                        now.sent_packets - then.sent_packets,
                        now.received_packets - then.received_packets,
                    )
        self._believe(now_s, self._blamed(ways, grown, window_s, capacities_bps))

    def _blamed(
        self,
        ways: Mapping[_PathId, tuple[str, ...]],
        grown: Mapping[_PathId, _Count],
        window_s: float,
        capacities_bps: Mapping[str, float],
    ) -> tuple[list[Loss], set[str]]:
        """What was lost in this window, and the links that were seen to lose nothing."""
        load_bps: dict[str, float] = {}
        for key, count in grown.items():
            for link in ways[key]:
                load_bps[link] = load_bps.get(link, 0.0) + count.sent_bytes * 8 / window_s
        crowded = {
            link
            for link, bps in load_bps.items()
            if bps > self.settings.full * capacities_bps.get(link, 0.0)
        }
        arrived = {
            key: min(1.0, count.received_packets / count.sent_packets)
            for key, count in grown.items()
            if count.sent_packets >= self.settings.packets
            and count.received_packets >= 0
            and not crowded.intersection(ways[key])
        }
        weight = {key: grown[key].sent_packets for key in arrived}
        over: dict[str, list[_PathId]] = {}
        for key in arrived:
            for link in ways[key]:
                over.setdefault(link, []).append(key)
        found: list[Loss] = []
        while True:
            lossy = {key for key, part in arrived.items() if 1 - part >= self.settings.least / 2}
            suspects = {link: keys for link, keys in over.items() if lossy.issuperset(keys)}
            parts = {
                link: 1
                - sum(arrived[key] * weight[key] for key in keys) / sum(weight[key] for key in keys)
                for link, keys in suspects.items()
            }
            parts = {link: part for link, part in parts.items() if part >= self.settings.least}
            if not parts:
                return found, {link for link, keys in over.items() if not lossy.issuperset(keys)}
            most = max(len(suspects[link]) for link in parts)
            first = max(
                (link for link in parts if len(suspects[link]) == most),
                key=lambda link: parts[link],
            )
            keys = suspects[first]
            alike = tuple(sorted(link for link in parts if suspects[link] == keys))
            found.append(Loss(alike, parts[first]))
            for key in keys:
                arrived[key] = min(1.0, arrived[key] / max(1e-9, 1 - parts[first]))
            for link in alike:
                del over[link]

    def _believe(self, now_s: float, blamed: tuple[list[Loss], set[str]]) -> None:
        """A loss counts from the second window in a row.

        It ends with a window that shows its links in order.
        """
        found, healthy = blamed
        for loss in found:
            same = [links for links in self._believed if set(links) & set(loss.links)]
            if same or any(set(seen.links) & set(loss.links) for seen in self._seen):
                for links in same:
                    del self._believed[links]
                self._believed[loss.links] = (loss, now_s)
        self._seen = found
        for links, (_, seen_s) in list(self._believed.items()):
            if healthy.issuperset(links) or now_s - seen_s > self.settings.keep_s:
                del self._believed[links]
