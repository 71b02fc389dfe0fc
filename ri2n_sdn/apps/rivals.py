# SPDX-License-Identifier: Apache-2.0
"""Other controllers of the same hosts, which say so by a hello through every host's switch.

A controller sends its hello by packet-out to the port CONTROLLER. So the switch hands it to all its
controllers. No host can send such a frame: it would come in by another port.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field

from ri2n_sdn.apps.counts import Dropped
from ri2n_sdn.contract.printing import printable

__all__ = ["ETH_RI2N", "MAX_RIVALS", "SILENT_S", "Hello", "Rivals"]

MAX_RIVALS = 16
"""Hellos of more controllers are dropped. A switch that lies may make up any number."""

SILENT_S = 6.0
"""A controller that was not heard for this time has gone; hellos are sent every second."""

ETH_RI2N = 0x88B5
_HEADER = bytes.fromhex("03000052494a" + "020000000000") + ETH_RI2N.to_bytes(2, "big")
_MAGIC = b"RI2N hello\0"
_MAX_BYTES = 1024
_MAX_NAME = 80


@dataclass(frozen=True, order=True)
class Hello:
    """What a controller says of itself: since when it is there (Unix time), its run and its name.

    The smaller one of two was first. `store` is the identity of its store, when that is common to
    several controllers.
    """

    since_s: float
    run: str
    name: str = field(compare=False)
    store: str = field(compare=False, default="")

    def encode(self) -> bytes:
        """The Ethernet frame."""
        fields = {"v": 1, "since_s": self.since_s, "run": self.run, "name": self.name}
        return _HEADER + _MAGIC + json.dumps({**fields, "store": self.store}).encode()

    @classmethod
    def decode(cls, frame: bytes) -> Hello:
        """The hello in a frame. Raises Dropped."""
        if frame[: len(_HEADER) + len(_MAGIC)] != _HEADER + _MAGIC:
            raise Dropped("dropped_hello_unknown")
        if len(frame) > _MAX_BYTES:
            raise Dropped("dropped_hello_too_long")
        try:
            said = json.loads(frame[len(_HEADER) + len(_MAGIC) :].rstrip(b"\0"))
            since_s = float(said["since_s"])
            texts = [said["run"], said["name"], said["store"]]
            wrong = said["v"] != 1 or not 0 <= since_s < 1e11
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Dropped("dropped_hello_malformed") from None
        if wrong or not all(isinstance(text, str) for text in texts):
            raise Dropped("dropped_hello_malformed")
        return cls(since_s, *(printable(text, _MAX_NAME)[:_MAX_NAME] for text in texts))


@dataclass
class _Rival:
    hello: Hello
    heard_s: dict[str, float] = field(default_factory=dict)


class Rivals:
    """The controllers that were heard, and by which hosts."""

    def __init__(self) -> None:
        self._rivals: dict[str, _Rival] = {}

    def heard(self, hello: Hello, host: str, now_s: float) -> bool:
        """A host has handed on a hello; returns whether it was the first one there of its sender.

        Raises Dropped when there are too many.
        """
        self._forget(now_s)
        rival = self._rivals.get(hello.run)
        if rival is None:
            if len(self._rivals) >= MAX_RIVALS:
                raise Dropped("dropped_hello_of_too_many")
            rival = self._rivals[hello.run] = _Rival(hello)
        new = host not in rival.heard_s
        rival.heard_s[host] = now_s
        return new

    def known(self, hosts: Collection[str], now_s: float) -> list[Hello]:
        """The others that one of these connected hosts shows, those that were first in front."""
        self._forget(now_s)
        return sorted(
            rival.hello
            for rival in self._rivals.values()
            if not rival.heard_s.keys().isdisjoint(hosts)
        )

    def first(self, own: Hello, hosts: Collection[str], now_s: float) -> Hello | None:
        """The one that is in charge of most of these connected hosts and was there before `own`.

        Most, since a single host might make one up to stop the controller.
        """
        self._forget(now_s)
        earlier = [
            rival.hello
            for rival in self._rivals.values()
            if rival.hello < own and 2 * len(rival.heard_s.keys() & set(hosts)) > len(hosts)
        ]
        return min(earlier, default=None)

    def _forget(self, now_s: float) -> None:
        for run, rival in list(self._rivals.items()):
            for host, heard_s in list(rival.heard_s.items()):
                if now_s - heard_s > SILENT_S:
                    del rival.heard_s[host]
            if not rival.heard_s:
                del self._rivals[run]
