# SPDX-License-Identifier: Apache-2.0
"""The entries that tell a helper about its host's NICs and the helper links to a peer.

They are made from the fabric and the weights, as plain data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ri2n_sdn.fabric.helper_links import MAX_PORT
from ri2n_sdn.fabric.model import Fabric, Host, Path, PathKey
from ri2n_sdn.pipeline.helper_frames import (
    NO_LIMIT,
    WHOLE_WEIGHT_PPM,
    HelperChannel,
    HelperLink,
    HelperNic,
)
from ri2n_sdn.pipeline.job_plan import Channel

__all__ = ["channels_to", "even_parts", "links_to", "nearly_equal", "nics_of"]

# Smaller changes of rates (as a part) and weights (in ppm) are not worth a frame.
_RATE_STEP, _WEIGHT_STEP_PPM = 0.05, 20_000
# A path is busy on a link when it sends at least this part of the link's capacity.
_BUSY = 0.01


def nics_of(host: Host) -> tuple[HelperNic, ...]:
    """The NICs of a host that its helper may use."""
    return tuple(
        HelperNic(nic.port, nic.up, _kbps(nic.rate_bps), nic.name)
        for nic in host.nics
        if nic.port <= MAX_PORT
    )


def links_to(
    fabric: Fabric,
    sender: str,
    receiver: str,
    share: Mapping[PathKey, float],
    rate_bps: Mapping[PathKey, float],
    part_bps: Mapping[str, float] | None = None,
    owned: Collection[PathKey] = (),
) -> tuple[HelperLink, ...]:
    """The helper links of a pair in order of their numbers, dead ones too.

    `share` and `rate_bps` are the strategy's decision by path. A pair without a decision begins
    with an even part of each NIC. So its links together never ask more of a NIC than it has.

    A receiver grants rates on its own NICs, but does not know the links between switches. So over
    those a pair has a limit: its rate, or the even part of one more busy pair (`part_bps`, from
    `even_parts`) if that is larger. Because of the even part, a pair that was quiet can begin to
    send without waiting for the next round. In a VLAN that its path table does not allow, where its
    share is 0, the limit is 0. So it is on a path that a job has for itself, unless it is one of
    `owned`: those that jobs between these two hosts use. No round of the weights decides on them.
    """
    links = fabric.helper_links(sender, receiver)
    common = {path.key for path in fabric.common_paths(sender, receiver)} | set(owned)
    even = _even_rates([path for path in links.values() if path.alive and path.key in common])
    decided = {key: rate for key, rate in rate_bps.items() if key not in owned}
    rates = {
        path.key: decided.get(path.key, even.get(path.key, 0.0)) if path.key in common else 0.0
        for path in links.values()
    }
    weights = {
        key: max(0.0, share.get(key, 0.0) if share and key in common else rate)
        for key, rate in rates.items()
    }
    total = sum(weights.values())

    def limit_kbps(path: Path) -> int:
        """The limit of a path over links between switches; NO_LIMIT where it has none."""
        if path.key not in common:
            return 0
        if not path.route.links or path.key not in rate_bps or not part_bps:
            return NO_LIMIT
        if share.get(path.key) == 0.0:
            return 0
        return _kbps(max(rate_bps[path.key], min(part_bps[link] for link in path.route.links)))

    return tuple(
        HelperLink(
            number,
            path.own.port,
            path.peer.port,
            path.alive,
            _kbps(rates[path.key]),
            limit_kbps(path),
            round(weights[path.key] / total * WHOLE_WEIGHT_PPM) if total > 0 else 0,
        )
        for number, path in links.items()
    )


def channels_to(
    fabric: Fabric, sender: str, receiver: str, channels: Sequence[Channel]
) -> tuple[list[HelperChannel], frozenset[int] | None]:
    """What a helper is told of the channels to a peer, and the links for frames of no job.

    The links are None where these may use all. A channel none of whose paths has a helper link is
    left out: its frames go as those of no job.
    """
    numbers = {path.key: number for number, path in fabric.helper_links(sender, receiver).items()}
    told = [
        HelperChannel(
            channel.number,
            channel.tag,
            frozenset(numbers[path.key] for path in channel.paths if path.key in numbers),
            min_kbps=_kbps(channel.min_rate_bps),
            min_in_kbps=_kbps(channel.min_rate_bps),
        )
        for channel in sorted(channels, key=lambda channel: channel.number)
        if any(path.key in numbers for path in channel.paths)
    ]
    common = frozenset(
        numbers[path.key] for path in fabric.common_paths(sender, receiver) if path.key in numbers
    )
    return told, common if 0 < len(common) < len(numbers) else None


def even_parts(
    fabric: Fabric, sent_bps: Mapping[tuple[str, str], Mapping[PathKey, float]]
) -> dict[str, float]:
    """The rate in bit/s that one more busy pair would get on each link between switches.

    It is the even part if that pair and all paths that are busy on the link share it. A path is
    busy when it sends 1 % or more of the link's capacity. `sent_bps` has the sent rates by pair and
    path.
    """
    if fabric.routing is None:
        return {}
    capacity = fabric.routing.capacities_bps()
    busy: Counter[str] = Counter()
    for (sender, receiver), rates in sent_bps.items():
        if sender in fabric.hosts and receiver in fabric.hosts:
            for path in fabric.paths(sender, receiver):
                sent = rates.get(path.key, 0.0)
                busy.update(link for link in path.route.links if sent >= _BUSY * capacity[link])
    return {link: rate / (busy[link] + 1) for link, rate in capacity.items()}


def nearly_equal(now: Sequence[HelperLink], sent: Sequence[HelperLink]) -> bool:
    """Whether `now` differs so little from what was `sent` last that it is not worth a frame.

    That is so if the links are the same, rates differ by 5 % at most, and weights by 2 % at most.
    """
    return len(now) == len(sent) and all(
        (a.number, a.own_port, a.peer_port, a.alive) == (b.number, b.own_port, b.peer_port, b.alive)
        and abs(a.limit_kbps - b.limit_kbps) <= _RATE_STEP * b.limit_kbps
        and (a.limit_kbps == NO_LIMIT) == (b.limit_kbps == NO_LIMIT)
        and abs(a.rate_kbps - b.rate_kbps) <= _RATE_STEP * b.rate_kbps
        and abs(a.weight_ppm - b.weight_ppm) <= _WEIGHT_STEP_PPM
        and (a.weight_ppm == 0) == (b.weight_ppm == 0)
        for a, b in zip(now, sent, strict=True)
    )


def _even_rates(paths: Sequence[Path]) -> dict[PathKey, float]:
    """The rate of each path in bit/s if all paths share both of their NICs evenly."""
    own, peers = Counter(path.own.port for path in paths), Counter(path.peer.port for path in paths)
    return {
        path.key: min(
            path.own.rate_bps / own[path.own.port], path.peer.rate_bps / peers[path.peer.port]
        )
        for path in paths
    }


def _kbps(rate_bps: float) -> int:
    return min(NO_LIMIT - 1, max(0, round(rate_bps / 1000)))
