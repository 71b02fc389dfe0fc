# SPDX-License-Identifier: Apache-2.0
"""The client: one conversation with a server, over a connection that is made already."""

from __future__ import annotations

import contextlib

from ri2n_parallel.copy.channel import Channel, Transport
from ri2n_parallel.copy.folder import Folder, Source
from ri2n_parallel.copy.messages import (
    VERSION,
    Entries,
    Get,
    Hello,
    List,
    MkDir,
    Offer,
    Ok,
    ProtocolViolation,
    Put,
    Refused,
    Stat,
    Status,
    Touch,
    Welcome,
)
from ri2n_parallel.copy.names import check_name
from ri2n_parallel.copy.transfer import OnArrived, Transferred, receive_file, refuse_file, send_file

__all__ = ["Session"]

MAX_ENTRIES = 10_000_000


class Session:
    """Sends requests to a server, one after another.

    Each raises Refused when the server refuses or says what cannot be, TimeoutError and
    ConnectionError when the connection fails. Nothing here checks who may connect: both ends have
    proven that they know the token before there is a connection (proof.py of the library).
    """

    def __init__(self, transport: Transport, timeout_s: float = 60.0) -> None:
        self.channel = Channel(transport, timeout_s)
        self.channel.send(Hello(VERSION, "ri2n-copy"))
        self.read_only = self.channel.expect(Welcome).read_only

    def status(self, name: str) -> Status:
        """What `name` is on the server; kind `none` when it is not there."""
        self.channel.send(Stat(name))
        return self.channel.expect(Status)

    def entries(self, name: str) -> list[tuple[str, str, int]]:
        """(name, kind, size in bytes) of what is in a directory of the server, by name."""
        self.channel.send(List(name))
        by_name: dict[str, tuple[str, str, int]] = {}
        more = True
        while more:
            page = self.channel.expect(Entries)
            more = page.more
            if more and not page.entries:
                raise ProtocolViolation("an empty page of a directory")
            for entry in page.entries:
                if len(check_name(entry[0])) != 1 or "/" in entry[0]:
                    raise ProtocolViolation("a directory's entry that is no single name")
                by_name[entry[0]] = entry
            if len(by_name) > MAX_ENTRIES:
                raise Refused("io", f"{name}: has more than {MAX_ENTRIES} entries")
        return sorted(by_name.values())

    def make_directory(self, name: str) -> None:
        """Make a directory on the server, unless it is there already."""
        self.channel.send(MkDir(name))
        self.channel.expect(Ok)

    def touch_directory(self, name: str, mode: int, mtime_ns: int) -> None:
        """Set mode and mtime of a directory on the server."""
        self.channel.send(Touch(name, mode, mtime_ns))
        self.channel.expect(Ok)

    def put(
        self, source: Source, name: str, on_arrived: OnArrived, preserve: bool = False
    ) -> Transferred:
        """Copy an open file to the server as `name`; with `preserve` it keeps mode and mtime."""
        self.channel.send(
            Put(name, source.size_bytes, source.mode, source.mtime_ns if preserve else None)
        )
        return send_file(self.channel, source, on_arrived)

    def get(
        self, name: str, folder: Folder, local: str, on_arrived: OnArrived, preserve: bool = False
    ) -> Transferred:
        """Copy a file of the server into `folder` as `local`; `preserve` is that of `put`."""
        self.channel.send(Get(name))
        offer = self.channel.expect(Offer)
        try:
            target = folder.open_target(
                local, offer.size, offer.mode, offer.mtime_ns if preserve else None
            )
        except Refused as error:
            refuse_file(self.channel, error)
            raise
        with contextlib.closing(target):
            return receive_file(self.channel, target, offer.size, on_arrived)

    def close(self) -> None:
        """End the conversation."""
        self.channel.close()
