"""What a helper is told of its host's NICs and of the links to a peer: the fabric and the weights, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ri2n_sdn.fabric.links import MAX_PORT
from ri2n_sdn.fabric.model import Fabric, Host, Path, PathKey
from ri2n_sdn.pipeline.helper_frames import NO_LIMIT, WHOLE_WEIGHT_PPM, HelperLink, HelperNic

__all__ = ["links_to", "nearly_equal", "nics_of"]

_RATE_STEP, _WEIGHT_STEP_PPM = 0.05, 20_000


def nics_of(host: Host) -> tuple[HelperNic, ...]:
    """The NICs that a helper may use."""
    return tuple(
        HelperNic(nic.port, nic.up, _kbps(nic.rate_bps), nic.name) for nic in host.nics if nic.port <= MAX_PORT
    )


def links_to(
    fabric: Fabric,
    sender: str,
    receiver: str,
    share: Mapping[PathKey, float],
    rate_bps: Mapping[PathKey, float],
) -> tuple[HelperLink, ...]:
    """The links of a pair in order of their numbers, dead ones too.

    `share` and `rate_bps` are what the strategy decided. A pair without a decision begins with an even part of each
    NIC, so that its links together never ask more of a NIC than it has.
    """
    links = fabric.links(sender, receiver)
    even = _even_rates([path for path in links.values() if path.alive])
    rates = {path.key: rate_bps.get(path.key, even.get(path.key, 0.0)) for path in links.values()}
    weights = {path.key: max(0.0, share.get(path.key, 0.0) if share else rates[path.key]) for path in links.values()}
    total = sum(weights.values())
    return tuple(
        HelperLink(
            number,
            path.own.port,
            path.peer.port,
            path.alive,
            _kbps(rates[path.key]),
            NO_LIMIT,
            round(weights[path.key] / total * WHOLE_WEIGHT_PPM) if total > 0 else 0,
        )
        for number, path in links.items()
    )


def nearly_equal(now: Sequence[HelperLink], told: Sequence[HelperLink]) -> bool:
    """Whether the difference is not worth a frame: the same links, rates within 5 %, weights within 2 %."""
    return len(now) == len(told) and all(
        (a.number, a.own_port, a.peer_port, a.alive, a.limit_kbps)
        == (b.number, b.own_port, b.peer_port, b.alive, b.limit_kbps)
        and abs(a.rate_kbps - b.rate_kbps) <= _RATE_STEP * b.rate_kbps
        and abs(a.weight_ppm - b.weight_ppm) <= _WEIGHT_STEP_PPM
        and (a.weight_ppm == 0) == (b.weight_ppm == 0)
        for a, b in zip(now, told, strict=True)
    )


def _even_rates(paths: Sequence[Path]) -> dict[PathKey, float]:
    own, peers = Counter(path.own.port for path in paths), Counter(path.peer.port for path in paths)
    return {
        path.key: min(path.own.rate_bps / own[path.own.port], path.peer.rate_bps / peers[path.peer.port])
        for path in paths
    }


def _kbps(rate_bps: float) -> int:
    return min(NO_LIMIT - 1, max(0, round(rate_bps / 1000)))
