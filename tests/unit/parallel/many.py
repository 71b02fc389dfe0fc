# SPDX-License-Identifier: Apache-2.0
"""A thousand transfers at once, in a process of their own.

It is run by `python -m tests.unit.parallel.many threads|asyncio COUNT`. Each transfer has its own
connection over two loopback addresses, its own bytes, and a checksum that comes back. The threads
and descriptors that are left afterwards are printed as JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import resource
import socket
import sys
import threading
import time

from ri2n_parallel import Qos, caretaker, create_connection, create_listener
from ri2n_parallel.aio import (
    ParallelReader,
    ParallelWriter,
    open_parallel_connection,
    start_parallel_server,
)
from tests.unit.parallel.worlds import PATIENCE_S, addresses, descriptors, noise, p_all

DESCRIPTORS = 1 << 15
LINKS = 2
STACK_BYTES = 1 << 18
TIMEOUT_S = 150.0


def size_of(number: int) -> int:
    """The bytes of a transfer: most are short, some are long."""
    return 1_000_000 if number % 50 == 0 else 1 + 37 * number


def with_threads(count: int) -> int:
    """A thread for each end; all are connected before the first transfer begins.

    How many checksums were right.
    """
    right, all_there = [0], threading.Barrier(count, timeout=TIMEOUT_S)
    lock = threading.Lock()
    with create_listener(("127.0.0.1", 0), addresses=addresses(LINKS), backlog=count) as listener:

        def serve() -> None:
            with listener.accept(TIMEOUT_S) as sock:
                sock.settimeout(TIMEOUT_S)
                checksum = hashlib.sha256()
                while part := sock.recv(1 << 16):
                    checksum.update(part)
                sock.sendall(checksum.digest())

        def client(number: int) -> None:
            data = noise(size_of(number), number)
            with create_connection(listener.address, Qos(LINKS), timeout_s=TIMEOUT_S) as sock:
                sock.settimeout(TIMEOUT_S)
                all_there.wait()
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                ok = p_all(sock, 32) == hashlib.sha256(data).digest()
            with lock:
                right[0] += ok

        threading.stack_size(STACK_BYTES)
        threads = [threading.Thread(target=serve) for _ in range(count)]
        threads += [threading.Thread(target=client, args=(number,)) for number in range(count)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    return right[0]


def with_asyncio(count: int) -> int:
    """As `with_threads`, all in one thread."""

    async def run() -> int:
        connected, all_there = [0], asyncio.Event()

        async def serve(reader: ParallelReader, writer: ParallelWriter) -> None:
            checksum = hashlib.sha256()
            while part := await reader.read(1 << 16):
                checksum.update(part)
            writer.write(checksum.digest())
            writer.close()

        async def client(number: int) -> bool:
            data = noise(size_of(number), number)
            reader, writer = await open_parallel_connection(
                server.address, Qos(LINKS), timeout_s=TIMEOUT_S
            )
            connected[0] += 1
            if connected[0] == count:
                all_there.set()
            await all_there.wait()
            for at in range(0, len(data), 10_000):
                writer.write(data[at : at + 10_000])
                await writer.drain()
            writer.write_eof()
            ok = await reader.readexactly(32) == hashlib.sha256(data).digest()
            writer.close()
            await writer.wait_closed()
            return ok

        async with await start_parallel_server(
            serve, ("127.0.0.1", 0), addresses=addresses(LINKS), backlog=count
        ) as server:
            return sum(await asyncio.gather(*(client(number) for number in range(count))))

    return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def main() -> None:
    """Run the transfers, and print how many were right and what is left."""
    how, count = sys.argv[1], int(sys.argv[2])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    before, began_s = set(descriptors()), time.monotonic()
    right = (with_threads if how == "threads" else with_asyncio)(count)
    took_s = time.monotonic() - began_s
    deadline_s = time.monotonic() + PATIENCE_S

    def left() -> dict[str, object]:
        names = [one.name for one in threading.enumerate() if one is not threading.main_thread()]
        fds = {number: name for number, name in descriptors().items() if number not in before}
        return {"sessions": caretaker.count(), "threads": names, "descriptors": fds}

    while any(left().values()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    print(json.dumps({"right": right, "took_s": round(took_s, 2), "left": left()}))


if __name__ == "__main__":
    main()
