# SPDX-License-Identifier: Apache-2.0
"""Find the links that lose packets, from what senders and receivers count on each path.

A cable that loses every twentieth packet halves no counter, and no probe is lost for long. But TCP
over it is very slow.

Only paths are counted, and each path crosses several links (that of the sender's NIC, those between
switches, that of the receiver's NIC). A link is suspected when every path over it that carried
enough packets loses some. One path that loses none shows that all its links are healthy. Of the
suspected links, the one with the most lossy paths takes the blame. Its loss is taken off its paths,
and the search goes on with what is left. Links that no counter can tell apart are named together.

A full link has to lose packets. So a path that crosses a link near its rate says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.weights.counters import PairCounters

__all__ = ["Loss", "LossSettings", "LossWatch"]


@dataclass(frozen=True)
class LossSettings:
    """The limits by which losses are judged."""

    # The length of a window. The counters of Open vSwitch are up to half a second old, and at
    # another age on each host, so a window is many times as long.
    window_s: float = 20.0
    # The smallest part of lost packets that is reported. It is a little under 5 %, since a sample
    # of a loss of 5 % may show less. A path is lossy from half of it.
    min_part: float = 0.04
    # A path is judged only when at least so many packets were sent over it in a window.
    min_packets: int = 400
    # Links that carry more than this part of their rate are left out, with the paths over them.
    max_load: float = 0.8
    # A loss is believed for this long after the traffic that showed it has ended.
    keep_s: float = 60.0


@dataclass(frozen=True)
class Loss:
    """The part of the packets that is lost on one of `links`.

    The ids of links are those of `Path.links`. There are several when no counter tells which of
    them it is.
    """

    links: tuple[str, ...]
    part: float


class _Count(NamedTuple):
    sent_bytes: int
    sent_packets: int
    received_packets: int


_PathId = tuple[str, str, PathKey]


class LossWatch:
    """Watches the counters of all pairs for losses.

    It is pure: the caller gives the time. The state is one count per path.
    """

    def __init__(self, settings: LossSettings | None = None) -> None:
        self.settings = settings or LossSettings()
        self._since_s = float("-inf")
        self._counts: dict[_PathId, _Count] = {}
        self._seen: list[Loss] = []
        self._believed: dict[tuple[str, ...], tuple[Loss, float]] = {}

    @property
    def losses(self) -> list[Loss]:
        """The losses that are believed now, the largest first."""
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
        """Take in the counters of a round.

        The counters of hosts in `answered` are new. Those of the other hosts are old and not used.
        `capacities_bps` has the rate of each link by its id.
        """
        window_s = now_s - self._since_s
        if window_s < self.settings.window_s:
            return
        before, self._counts, self._since_s = self._counts, {}, now_s
        links_of: dict[_PathId, tuple[str, ...]] = {}
        counted: dict[_PathId, _Count] = {}
        for pair in pairs:
            if pair.sender not in answered or pair.receiver not in answered:
                continue
            for path in pair.paths:
                key = (pair.sender, pair.receiver, path.path)
                now = _Count(path.sent.bytes, path.sent.packets, path.received.packets)
                self._counts[key] = now
                then = before.get(key)
                if path.alive and then is not None:
                    links_of[key] = path.links
                    counted[key] = _Count(*(new - old for new, old in zip(now, then, strict=True)))
        self._believe(now_s, self._blamed(links_of, counted, window_s, capacities_bps))

    def _blamed(
        self,
        links_of: Mapping[_PathId, tuple[str, ...]],
        counted: Mapping[_PathId, _Count],
        window_s: float,
        capacities_bps: Mapping[str, float],
    ) -> tuple[list[Loss], set[str]]:
        """The losses of this window, and the links that were seen to lose nothing.

        `counted` has what each path counted in the window, `links_of` the links of each path.

        One lossy link makes every path over it lossy, and each such path crosses other links too.
        Those would be accused as well if each link were judged alone. So links are blamed one by
        one. The link that explains the most lossy paths comes first; among equals, the one with the
        largest loss. Then each of its paths is judged by what it loses beyond that.
        """
        load_bps: dict[str, float] = {}
        for key, count in counted.items():
            for link in links_of[key]:
                load_bps[link] = load_bps.get(link, 0.0) + count.sent_bytes * 8 / window_s
        crowded = {
            link
            for link, bps in load_bps.items()
            if bps > self.settings.max_load * capacities_bps.get(link, 0.0)
        }
        arrived = {
            key: min(1.0, count.received_packets / count.sent_packets)
            for key, count in counted.items()
            if count.sent_packets >= self.settings.min_packets
            and count.received_packets >= 0
            and not crowded.intersection(links_of[key])
        }
        weight = {key: counted[key].sent_packets for key in arrived}
        paths_over: dict[str, list[_PathId]] = {}
        for key in arrived:
            for link in links_of[key]:
                paths_over.setdefault(link, []).append(key)
        losses: list[Loss] = []
        while True:
            lossy = {key for key, part in arrived.items() if 1 - part >= self.settings.min_part / 2}
            suspects = {link: keys for link, keys in paths_over.items() if lossy.issuperset(keys)}
            lost = {
                link: 1
                - sum(arrived[key] * weight[key] for key in keys) / sum(weight[key] for key in keys)
                for link, keys in suspects.items()
            }
            lost = {link: part for link, part in lost.items() if part >= self.settings.min_part}
            if not lost:
                healthy = {link for link, keys in paths_over.items() if not lossy.issuperset(keys)}
                return losses, healthy
            worst = max(lost, key=lambda link: (len(suspects[link]), lost[link]))
            keys = suspects[worst]
            alike = tuple(sorted(link for link in lost if suspects[link] == keys))
            losses.append(Loss(alike, lost[worst]))
            for key in keys:
                arrived[key] = min(1.0, arrived[key] / max(1e-9, 1 - lost[worst]))
            for link in alike:
                del paths_over[link]

    def _believe(self, now_s: float, blamed: tuple[list[Loss], set[str]]) -> None:
        """Believe a loss from the second window in a row that shows it.

        The belief ends with a window that shows that all its links are healthy, or `keep_s` after
        the last window that showed the loss.
        """
        losses, healthy = blamed
        for loss in losses:
            believed = [links for links in self._believed if set(links) & set(loss.links)]
            if believed or any(set(seen.links) & set(loss.links) for seen in self._seen):
                for links in believed:
                    del self._believed[links]
                self._believed[loss.links] = (loss, now_s)
        self._seen = losses
        for links, (_, seen_s) in list(self._believed.items()):
            if healthy.issuperset(links) or now_s - seen_s > self.settings.keep_s:
                del self._believed[links]
