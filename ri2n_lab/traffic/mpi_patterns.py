# SPDX-License-Identifier: Apache-2.0
"""The MPI program of `ri2n bench vbft`, which runs as one rank on each host.

`/usr/bin/python3 mpi_patterns.py SCHEDULE`. SCHEDULE is JSON: {"collective": bool, "phases":
[[[sender, receiver], ...], ...], "warmup_s", "window_s"}, with hosts named by their ranks. With
"collective", all ranks call MPI_Ialltoall again and again, as FT and IS of NPB do; else each pair
has a stream of messages. Rank 0 prints one JSON line, which has for each phase {"received":
[[sender, receiver, bytes in the window], ...], "wrong": how many messages did not have the content
that their sender sent}. The program uses nothing but the standard library and mpi4py.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

MESSAGE_BYTES = 1 << 16
BLOCK_BYTES = 1 << 15  # of each pair in one all-to-all
DEPTH = 4  # messages of each pair that are under way
NAP_S = 0.0005  # a rank that spun would take the CPU from processes that forward its packets
TAIL_S = 0.2
LEAD_S = 0.2
MORE, LAST = 0, 1  # the first byte of each message


class Window:
    """The times of one phase, the same for all ranks, since they share CLOCK_MONOTONIC."""

    def __init__(self, world: Any, warmup_s: float, window_s: float) -> None:
        world.Barrier()
        start_s: float = world.bcast(time.monotonic() + LEAD_S if world.rank == 0 else None)
        self.begin_s = start_s + warmup_s
        self.end_s = self.begin_s + window_s
        while time.monotonic() < start_s:
            time.sleep(NAP_S)

    def holds(self, time_s: float) -> bool:
        return self.begin_s <= time_s < self.end_s

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.end_s + TAIL_S


def content(rank: int, length: int) -> bytes:
    """A rank's message without its first byte, which says whether the message is the last."""
    return bytes([(rank + 1) % 256]) * (length - 1)


class Outgoing:
    """The messages from this rank to another one, DEPTH of them under way."""

    def __init__(self, world: Any, receiver: int) -> None:
        self.world, self.receiver, self.ended = world, receiver, False
        self.buffers = [
            bytearray([MORE]) + content(world.rank, MESSAGE_BYTES) for _ in range(DEPTH)
        ]
        self.requests: list[Any] = [self._send(buffer) for buffer in self.buffers]

    def _send(self, buffer: bytearray) -> Any:
        return self.world.Isend([buffer, MPI.BYTE], self.receiver, 0)

    def turn(self, over: bool) -> bool:
        moved = False
        for place, request in enumerate(self.requests):
            if request is None or not request.Test():
                continue
            moved, self.requests[place] = True, None
            if not self.ended:
                self.ended = over
                self.buffers[place][0] = LAST if over else MORE
                self.requests[place] = self._send(self.buffers[place])
        return moved

    @property
    def done(self) -> bool:
        return self.ended and not any(self.requests)


class Incoming:
    """The messages from another rank to this one, which arrive in the order of sending."""

    def __init__(self, world: Any, sender: int) -> None:
        self.world, self.sender, self.done = world, sender, False
        self.received = self.wrong = self.next = 0
        self.content = content(sender, MESSAGE_BYTES)
        self.buffers = [bytearray(MESSAGE_BYTES) for _ in range(DEPTH)]
        self.requests = [self._take(buffer) for buffer in self.buffers]

    def _take(self, buffer: bytearray) -> Any:
        return self.world.Irecv([buffer, MPI.BYTE], self.sender, 0)

    def turn(self, window: Window) -> bool:
        moved = False
        while not self.done and self.requests[self.next].Test():
            moved, buffer = True, self.buffers[self.next]
            self.received += MESSAGE_BYTES if window.holds(time.monotonic()) else 0
            self.wrong += memoryview(buffer)[1:] != self.content
            self.done = buffer[0] == LAST
            if not self.done:
                self.requests[self.next] = self._take(buffer)
                self.next = (self.next + 1) % DEPTH
        return moved

    def close(self) -> None:
        for place, request in enumerate(self.requests):
            if place != self.next:
                request.Cancel()
                request.Wait()


def streams(
    world: Any, pairs: Sequence[Sequence[int]], window: Window
) -> tuple[dict[int, int], int]:
    """Exchange the messages of all pairs of a phase at once.

    Returns the bytes that arrived in the window at this rank, by sender, and the number of wrong
    messages.
    """
    incoming = [Incoming(world, sender) for sender, receiver in pairs if receiver == world.rank]
    world.Barrier()  # then every message finds a buffer
    outgoing = [Outgoing(world, receiver) for sender, receiver in pairs if sender == world.rank]
    while not (all(pair.done for pair in incoming) and all(pair.done for pair in outgoing)):
        moved = [pair.turn(window.over) for pair in outgoing]
        moved += [pair.turn(window) for pair in incoming]
        if not any(moved):
            time.sleep(NAP_S)
    for pair in incoming:
        pair.close()
    return {pair.sender: pair.received for pair in incoming}, sum(pair.wrong for pair in incoming)


def collective(world: Any, window: Window) -> tuple[dict[int, int], int]:
    """Call MPI_Ialltoall until the phase is over; rank 0's block says which call is the last.

    Returns the bytes that arrived in the window at this rank, by sender, and the number of wrong
    blocks.
    """
    sent = (bytearray([MORE]) + content(world.rank, BLOCK_BYTES)) * world.size
    got = bytearray(BLOCK_BYTES * world.size)
    contents = [content(rank, BLOCK_BYTES) for rank in range(world.size)]
    times: list[float] = []
    wrong, last = 0, False
    while not last:
        if world.rank == 0 and window.over:
            for place in range(world.size):
                sent[place * BLOCK_BYTES] = LAST
        request = world.Ialltoall([sent, BLOCK_BYTES, MPI.BYTE], [got, BLOCK_BYTES, MPI.BYTE])
        while not request.Test():
            time.sleep(NAP_S)
        times.append(time.monotonic())
        view = memoryview(got)
        for rank, wanted in enumerate(contents):
            wrong += view[rank * BLOCK_BYTES + 1 : (rank + 1) * BLOCK_BYTES] != wanted
        last = got[0] == LAST
    # The rate is measured from the end of one call to the end of another one. If calls were only
    # counted, a call that is partly in the window would count as a whole one or as none.
    inside = [time_s for time_s in times if window.holds(time_s)]
    rounds = 0.0
    if len(inside) > 1:
        rounds = (len(inside) - 1) / (inside[-1] - inside[0]) * (window.end_s - window.begin_s)
    elif len(times) > 1:
        rounds = (len(times) - 1) / (times[-1] - times[0]) * (window.end_s - window.begin_s)
    received = int(rounds * BLOCK_BYTES)
    return {rank: received for rank in range(world.size) if rank != world.rank}, wrong


def main() -> None:
    schedule = json.loads(sys.argv[1])
    world = MPI.COMM_WORLD
    results = []
    for pairs in schedule["phases"]:
        window = Window(world, schedule["warmup_s"], schedule["window_s"])
        received, wrong = (
            collective(world, window) if schedule["collective"] else streams(world, pairs, window)
        )
        parts = world.gather((received, wrong))
        if world.rank == 0:
            rows = [
                [sender, place, count]
                for place, part in enumerate(parts)
                for sender, count in part[0].items()
            ]
            results.append({"received": rows, "wrong": sum(part[1] for part in parts)})
    if world.rank == 0:
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
