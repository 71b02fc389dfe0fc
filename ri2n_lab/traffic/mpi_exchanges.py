# SPDX-License-Identifier: Apache-2.0
"""The MPI program of `ri2n bench jobs --exchange`, which runs as one rank on each host.

`/usr/bin/python3 mpi_exchanges.py PLAN`. PLAN is JSON: {"kind": "is" | "cg", "begin_s", "end_s"}.
The ranks exchange messages again and again until `end_s`, and rank 0 says how long one exchange
took between `begin_s` and `end_s`, both on CLOCK_MONOTONIC, which all hosts of a lab share. The
kinds are the exchanges of two programs of the NAS Parallel Benchmarks, without their arithmetic:

* is: MPI_Ialltoall of blocks of 128 KiB, as IS sends its keys, and an MPI_Iallreduce of 1 KiB, as
  it adds up the sizes of its buckets.
* cg: 64 KiB to and from the next and the last rank, as CG exchanges its vectors and MG its borders,
  and an MPI_Iallreduce of 8 bytes, as of its inner products.

Rank 0 prints one JSON line: {"seconds": of one exchange, "count": exchanges in the window, "bytes":
that all ranks send in one, "wrong": messages with other bytes than were sent, "late": whether the
first exchange ended after `begin_s`}. `seconds` is null with fewer than two ends in the window. The
program uses nothing but the standard library and mpi4py.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

ALL_BYTES = 1 << 17
NEIGHBOUR_BYTES = 1 << 16
SUM_WORDS = {"is": 128, "cg": 1}
# A rank that spun would take the CPU from processes that forward its packets.
NAP_S = 0.0005


def content(rank: int, receiver: int, length: int) -> bytes:
    """The message of a rank to another one."""
    return bytes([(1 + 17 * rank + receiver) % 256]) * length


def wait(requests: Sequence[Any]) -> None:
    """Wait for the end of all requests, and leave the CPU to others meanwhile."""
    left = list(requests)
    while left := [request for request in left if not request.Test()]:
        time.sleep(NAP_S)


def all_to_all(world: Any) -> tuple[Callable[[], int], int]:
    """A function that does the exchange of IS, and the bytes that this rank sends in it.

    The function returns the number of wrong messages.
    """
    ranks = range(world.size)
    sent = bytearray().join(content(world.rank, rank, ALL_BYTES) for rank in ranks)
    got = bytearray(ALL_BYTES * world.size)
    wanted = [content(rank, world.rank, ALL_BYTES) for rank in ranks]

    def exchange() -> int:
        wait([world.Ialltoall([sent, ALL_BYTES, MPI.BYTE], [got, ALL_BYTES, MPI.BYTE])])
        view = memoryview(got)
        return sum(
            view[rank * ALL_BYTES : (rank + 1) * ALL_BYTES] != wanted[rank] for rank in ranks
        )

    return exchange, ALL_BYTES * (world.size - 1)


def neighbours(world: Any) -> tuple[Callable[[], int], int]:
    """As `all_to_all`, the exchange of CG and MG: with the next rank and with the last one."""
    following, last = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    # With two ranks both neighbours are one rank, and the tags tell their messages apart.
    sent = {
        tag: bytearray(content(world.rank, to, NEIGHBOUR_BYTES))
        for tag, to in enumerate((following, last))
    }
    got = [bytearray(NEIGHBOUR_BYTES) for _ in sent]
    wanted = [content(rank, world.rank, NEIGHBOUR_BYTES) for rank in (last, following)]

    def exchange() -> int:
        requests = [
            world.Irecv([got[0], MPI.BYTE], last, 0),
            world.Irecv([got[1], MPI.BYTE], following, 1),
            world.Isend([sent[0], MPI.BYTE], following, 0),
            world.Isend([sent[1], MPI.BYTE], last, 1),
        ]
        wait(requests)
        return sum(one != other for one, other in zip(got, wanted, strict=True))

    return exchange, NEIGHBOUR_BYTES * len(sent)


KINDS = {"is": all_to_all, "cg": neighbours}


def run(world: Any, plan: dict[str, Any]) -> dict[str, Any]:
    """Exchange until the end of the plan, and return what rank 0 prints."""
    exchange, sent_bytes = KINDS[plan["kind"]](world)
    words = SUM_WORDS[plan["kind"]]
    sent, got = array("q", [0] * words), array("q", [0] * words)
    times_s: list[float] = []
    wrong = 0
    # The first word of the sum says that rank 0 has seen the end: then it is the end for all.
    while not got[0]:
        wrong += exchange()
        if world.rank == 0:
            sent[0] = time.monotonic() >= plan["end_s"]
        wait([world.Iallreduce([sent, MPI.LONG], [got, MPI.LONG], MPI.SUM)])
        times_s.append(time.monotonic())
    inside_s = [time_s for time_s in times_s if plan["begin_s"] <= time_s < plan["end_s"]]
    count = len(inside_s) - 1
    return {
        "seconds": (inside_s[-1] - inside_s[0]) / count if count > 0 else None,
        "count": max(0, count),
        "bytes": world.allreduce(sent_bytes),
        "wrong": world.allreduce(wrong),
        "late": times_s[0] > plan["begin_s"],
    }


def main() -> None:
    """Run the plan of the command line."""
    found = run(MPI.COMM_WORLD, json.loads(sys.argv[1]))
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
