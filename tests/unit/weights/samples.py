# SPDX-License-Identifier: Apache-2.0
"""Random and hand-made TrafficSamples for the weight tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ri2n_sdn import weights
from ri2n_sdn.rates.arrays import FloatArray
from ri2n_sdn.weights.sample import TrafficSample, to_shares

PRODUCT = str(Path(weights.__file__).parent)


def work_of(call: Callable[[], object]) -> int:
    """The number of lines of ri2n_sdn.weights that a call runs.

    It is a measure of the time that is the same on every machine.
    """
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        return count if frame.f_code.co_filename.startswith(PRODUCT) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


BYTES = st.sampled_from([0.0, 0.0, 1.0, 100.0, 1e4, 1.1e7, 1.2e7, 1e9])


@st.composite
def samples(draw: st.DrawFn) -> tuple[TrafficSample, FloatArray]:
    """A sample of a random cluster, and previous shares.

    Each network is one switch. Hosts have different NICs, and some paths are dead.
    """
    hosts = draw(st.integers(2, 5))
    nics = [
        draw(st.sets(st.integers(0, 3), min_size=1, max_size=4).map(sorted)) for _ in range(hosts)
    ]
    pairs = [
        (s, r) for s in range(hosts) for r in range(hosts) if s != r and set(nics[s]) & set(nics[r])
    ]
    if not pairs:
        nics = [[0] for _ in range(hosts)]
        pairs = [(0, 1), (1, 0)]
    pairs = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=8, unique=True))
    width = max(len(set(nics[s]) & set(nics[r])) for s, r in pairs) + draw(st.integers(0, 1))
    capacity = draw(
        st.lists(st.sampled_from([1e7, 1e8, 1e8, 1e9]), min_size=hosts * 8, max_size=hosts * 8)
    )
    shape = (len(pairs), width)
    links = np.full((*shape, 2), -1, dtype=np.int64)
    alive = np.zeros(shape, dtype=np.bool_)
    for row, (s, r) in enumerate(pairs):
        for column, k in enumerate(sorted(set(nics[s]) & set(nics[r]))):
            links[row, column] = (s * 8 + k, r * 8 + 4 + k)
            alive[row, column] = draw(st.booleans()) or draw(st.booleans())

    def counters() -> FloatArray:
        size = len(pairs) * width
        values = draw(st.lists(BYTES, min_size=size, max_size=size))
        return np.where(links[:, :, 0] >= 0, np.array(values).reshape(shape), 0.0)

    sent, received = counters(), counters()
    previous = to_shares(counters() * alive, alive) if draw(st.booleans()) else np.zeros(shape)
    return (
        TrafficSample(
            sent_bytes=sent,
            received_bytes=received,
            alive=alive,
            sender=np.array([s for s, _ in pairs], dtype=np.int64),
            receiver=np.array([r for _, r in pairs], dtype=np.int64),
            receiver_link=links[:, :, 1],
            path_links=links,
            capacity_bps=np.array(capacity),
            fast_bps=sent * 8.0,
            slow_bps=received * 8.0,
            settled=np.array([draw(st.booleans()) for _ in pairs], dtype=np.bool_),
        ),
        previous,
    )


def figure_4(
    clients: Mapping[str, Sequence[int]],
    mbit: Mapping[str, Sequence[float]],
    down: Sequence[tuple[str, int]] = (),
) -> tuple[TrafficSample, FloatArray]:
    """A sample of clients that send `mbit` (Mbit/s) on links 0 and 1 to a server with both links.

    All that they sent arrived. The previous shares are equal.
    """
    names = list(clients)
    shape = (len(names), 2)
    alive = np.array([[k in clients[c] and (c, k) not in down for k in (0, 1)] for c in names])
    links = np.full((*shape, 2), -1, dtype=np.int64)
    for row, client in enumerate(names):
        for k in clients[client]:
            links[row, k] = (2 + 2 * row + k, k)
    rate = np.array([mbit[c] for c in names], dtype=np.float64) * 1e6
    sample = TrafficSample(
        sent_bytes=rate / 8,
        received_bytes=rate / 8,
        alive=alive,
        sender=np.arange(1, len(names) + 1),
        receiver=np.zeros(len(names), dtype=np.int64),
        receiver_link=links[:, :, 1],
        path_links=links,
        capacity_bps=np.full(2 + 2 * len(names), 1e8),
        fast_bps=rate,
        slow_bps=rate,
        settled=np.ones(len(names), dtype=np.bool_),
    )
    return sample, to_shares(alive.astype(float), alive)
