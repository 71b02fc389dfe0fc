# SPDX-License-Identifier: Apache-2.0
"""A relay between a client and a server on loopback addresses, whose links can be cut.

It has one address for each of the server's, each with a port of its own. It writes these into the
server's answer, so that clients connect to it. There are two cuts. `swallow`: connections stay,
nothing passes, and new ones get no answer; TCP itself sees no fault, since this machine's kernel
acknowledges what it can keep. `reset`: connections are reset, and new ones are refused.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from ri2n_parallel.frames import GREETING, HELLO, REPLY, Endpoint, Reply

__all__ = ["PASS", "RESET", "SWALLOW", "Relay"]

PASS, SWALLOW, RESET = "pass", "swallow", "reset"
BUFFER_BYTES = 1 << 16
NOW = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which `close` sends a reset."""


class _Flow:
    """A connection of a client, and the connection to the server that belongs to it."""

    def __init__(self, address: str, client: socket.socket, server: socket.socket) -> None:
        self.address, self.ends = address, (client, server)
        # Bytes that wait for the client and for the server.
        self.waiting = [b"", b""]
        # Whether the stream of the client and that of the server have ended.
        self.ended = [False, False]
        # Whether the end was passed on to the client and to the server.
        self.shut = [False, False]
        # The first bytes of the client, until its greeting is known.
        self.head: bytes | None = b""
        # The server's answer, which is changed before the client gets it.
        self.answer: bytes | None = None


def _hold(address: str) -> socket.socket:
    """A socket bound to a free port.

    Nobody else gets the port while the relay does not listen there.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    return held


class Relay:
    """A relay, in a thread until it is closed; `through` maps its own addresses to the server's."""

    def __init__(self, port: int, through: Mapping[str, str]) -> None:
        self.port, self.through = port, dict(through)
        self._held = {address: _hold(address) for address in through}
        self.passed = dict.fromkeys(through, 0)
        """Bytes in both directions, by own address."""
        self.modes = dict.fromkeys(through, PASS)
        self._limits: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()
        self._listening: dict[str, socket.socket] = {}
        self._flows: list[_Flow] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._stop = False
        for address in through:
            self._listen(address)
        self._thread = threading.Thread(target=self._run, name="relay")
        self._thread.start()

    def at(self, address: str) -> tuple[str, int]:
        """The address and port at which it listens for this address."""
        return address, self._held[address].getsockname()[1]

    def set(self, mode: str, *addresses: str) -> None:
        """Change what happens to everything that goes through these addresses."""
        with self._lock:
            for address in addresses:
                self._set(mode, address)
        os.eventfd_write(self._wake, 1)

    def after(self, count: int, mode: str, *addresses: str) -> None:
        """As `set`, for each address when `count` more bytes have passed it."""
        with self._lock:
            for address in addresses:
                self._limits[address] = (self.passed[address] + count, mode)

    def close(self) -> None:
        self._stop = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        for flow in list(self._flows):
            self._drop(flow)
        for one in [*self._listening.values(), *self._held.values()]:
            one.close()
        os.close(self._wake)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- inside; the lock is held

    def _listen(self, address: str) -> None:
        self._listening[address] = socket.create_server(self.at(address), backlog=64)
        self._listening[address].setblocking(False)

    def _set(self, mode: str, address: str) -> None:
        self.modes[address] = mode
        if mode == RESET:
            self._listening.pop(address).close()
            for flow in [each for each in self._flows if each.address == address]:
                self._drop(flow, reset=True)
        elif address not in self._listening:
            self._listen(address)

    def _drop(self, flow: _Flow, *, reset: bool = False) -> None:
        self._flows.remove(flow)
        for end in flow.ends:
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOW)
            end.close()

    def _run(self) -> None:
        while not self._stop:
            with self._lock, selectors.EpollSelector() as selector:
                selector.register(self._wake, selectors.EVENT_READ)
                self._register(selector)
                self._lock.release()
                try:
                    events = selector.select()
                finally:
                    self._lock.acquire()
                for key, _ in events:
                    if key.fileobj == self._wake:
                        with contextlib.suppress(BlockingIOError):
                            os.eventfd_read(self._wake)
                    elif isinstance(key.data, str):
                        self._accept(key.data)
                    elif key.data in self._flows:
                        self._move(key.data)

    def _register(self, selector: selectors.BaseSelector) -> None:
        for address, one in self._listening.items():
            if self.modes[address] == PASS:
                selector.register(one, selectors.EVENT_READ, address)
        for flow in self._flows:
            if self.modes[flow.address] != PASS:
                continue
            for place, end in enumerate(flow.ends):
                wanted = (
                    selectors.EVENT_READ
                    if not flow.ended[place] and not flow.waiting[1 - place]
                    else 0
                )
                wanted |= selectors.EVENT_WRITE if flow.waiting[place] else 0
                if wanted:
                    selector.register(end, wanted, flow)

    def _accept(self, address: str) -> None:
        listening = self._listening.get(address)
        if listening is None or self.modes[address] != PASS:
            return
        with contextlib.suppress(BlockingIOError):
            client, _ = listening.accept()
            try:
                server = socket.create_connection((self.through[address], self.port), 5)
            except OSError:
                client.close()
                return
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._flows.append(_Flow(address, client, server))

    def _move(self, flow: _Flow) -> None:
        try:
            for place, end in enumerate(flow.ends):
                if not flow.ended[place] and not flow.waiting[1 - place]:
                    with contextlib.suppress(BlockingIOError):
                        part = end.recv(BUFFER_BYTES)
                        flow.ended[place] = not part
                        flow.waiting[1 - place] += self._seen(flow, place, part)
            for place, end in enumerate(flow.ends):
                if flow.waiting[place]:
                    with contextlib.suppress(BlockingIOError):
                        flow.waiting[place] = flow.waiting[place][end.send(flow.waiting[place]) :]
                if flow.ended[1 - place] and not flow.waiting[place] and not flow.shut[place]:
                    flow.shut[place] = True
                    end.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(flow, reset=True)
            return
        if all(flow.shut):
            self._drop(flow)
        limit = self._limits.get(flow.address)
        if limit is not None and self.passed[flow.address] >= limit[0]:
            del self._limits[flow.address]
            self._set(limit[1], flow.address)

    def _seen(self, flow: _Flow, place: int, part: bytes) -> bytes:
        """What the other side gets of these bytes now."""
        self.passed[flow.address] += len(part)
        if place == 0 and flow.head is not None:
            flow.head += part
            if len(flow.head) >= GREETING.size:
                flow.answer = b"" if GREETING.unpack_from(flow.head)[2] == HELLO else None
                flow.head = None
        elif place == 1 and flow.answer is not None:
            flow.answer += part
            if len(flow.answer) < REPLY.size or len(flow.answer) < (
                size := REPLY.size + Reply.more(flow.answer[: REPLY.size])
            ):
                return b""
            own_addresses = {server: own for own, server in reversed(self.through.items())}
            reply = Reply.unpack(flow.answer[:size])
            places = [self.at(own_addresses[each.address]) for each in reply.endpoints]
            endpoints = tuple(Endpoint(*each) for each in places)
            part, flow.answer = (
                replace(reply, endpoints=endpoints).pack() + flow.answer[size:],
                None,
            )
        return part
