# SPDX-License-Identifier: Apache-2.0
"""Whether this controller is in charge of the hosts, or another one is.

* With a common store, the one that the store calls active is in charge. Each switch takes it for
  its master, by the role of that name, and fences off those with an earlier epoch.
* Without one, the controller that was there first is in charge (rivals.py). The others stand back.

A controller that is not in charge is connected to all hosts and listens, and sends them nothing but
signs of life. It must be connected: Open vSwitch 3.1 tries an address where nobody listens only
every 8 s.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from collections.abc import Callable

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, guarded_loop
from ri2n_sdn.apps.openflow import ofp
from ri2n_sdn.apps.remembered import remembered
from ri2n_sdn.apps.rivals import Hello

__all__ = ["Charge"]

_TURN_S = 0.05
_HELLO_S = 1.0
# A controller that stands back goes on doing so for this time after most hosts have shown the other
# one last: hosts that have just connected have shown nothing yet.
_GONE_S = 3.0
_ROLE = struct.Struct("!IH2xQ")
_STALE = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
_IS_SLAVE = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)


class Charge:
    """Finds out who is in charge, and tells the cluster and the switches.

    `start_anew` is called when this controller was in charge and another one is now: a new start
    forgets everything that is not true any more.
    """

    def __init__(
        self, cluster: Cluster, name: str, start_anew: Callable[[], None] = lambda: None
    ) -> None:
        self._cluster, self._start_anew = cluster, start_anew
        store = cluster.memory.store
        self._store = store if cluster.memory.common else None
        self._name, self._run = name, store.run if store is not None else f"{time.time_ns():x}"
        self._since_s = time.time()
        self._hello_s = self._rival_s = -math.inf
        self._ended = False
        # Hosts whose switch has another master.
        self._fenced: set[str] = set()
        if self._store is not None:
            cluster.stand_by(self._waits_for())

    def start(self) -> threading.Thread:
        """Start the thread."""
        return guarded_loop(self._cluster, "charge", self._turn)

    def own_hello(self) -> Hello:
        """What this controller says of itself."""
        store = self._store.state().identity if self._store is not None else ""
        return Hello(self._since_s, self._run, self._name, store)

    # ---- what connections tell

    def greet(self, channel: Channel) -> None:
        """Tell a switch that has connected which role this controller has there."""
        if self._store is None:
            return
        in_charge = self._cluster.passive is None
        cluster = self._store.state().cluster
        epoch = self._store.epoch if in_charge else cluster.epoch if cluster is not None else 0
        role = ofp.OFPCR_ROLE_MASTER if in_charge else ofp.OFPCR_ROLE_SLAVE
        channel.send(ofp.OFPT_ROLE_REQUEST, _ROLE.pack(role, ofp.OFPCID_UNDEFINED, epoch))

    def came(self, member: Member) -> None:
        """A host was let in (the lock is held)."""
        assert member.channel is not None
        self._fenced.discard(member.name)
        self.greet(member.channel)
        self._say_hello(member.channel)

    def refused(self, member: Member | None, kind: int, code: int) -> bool:
        """Take in a switch's error, and return whether it is about roles (the lock is held).

        `member` is None before the switch is let in. When it is, it is asked for its role again.
        """
        if self._store is None or (kind, code) not in (_STALE, _IS_SLAVE):
            return False
        if member is not None and self._cluster.passive is None:
            self._fence(member)
        return True

    def has_role(self, member: Member, role: int) -> None:
        """A switch tells which role this controller has there (the lock is held)."""
        if self._store is None or self._cluster.passive is not None:
            return
        if role == ofp.OFPCR_ROLE_SLAVE:
            self._fence(member)
        elif role == ofp.OFPCR_ROLE_MASTER:
            self._fenced.discard(member.name)

    def _fence(self, member: Member) -> None:
        if member.name not in self._fenced:
            self._fenced.add(member.name)
            self._cluster.note("host_has_other_master", {"host": member.name})

    def heard(self, frame: bytes, member: Member) -> None:
        """Take in a hello that a switch has handed on (the lock is held).

        Raises Dropped.
        """
        hello = Hello.decode(frame)
        own = self.own_hello()
        if hello.run == own.run or (own.store and hello.store == own.store):
            return
        if self._cluster.rivals.heard(hello, member.name, time.monotonic()):
            self._cluster.note("rival_met", {"host": member.name}, controller=hello.name)
            assert member.channel is not None
            self._say_hello(member.channel)

    # ---- the thread

    def _turn(self) -> None:
        cluster, store = self._cluster, self._store
        cluster.wake.stop.wait(_TURN_S)
        if self._ended:
            return
        if store is not None:
            self._follow(store.active, store.deposed, store.problem is None)
        else:
            self._follow_hellos()
        now_s = time.monotonic()
        if now_s - self._hello_s >= _HELLO_S:
            self._hello_s = now_s
            with cluster.lock:
                for _, channel in cluster.connections():
                    self._say_hello(channel)

    def _follow(self, active: bool, deposed: bool, answers: bool) -> None:
        """Do what the store says."""
        cluster = self._cluster
        with cluster.lock:
            if cluster.passive is not None:
                if not active:
                    cluster.passive = self._waits_for()
                    return
                assert self._store is not None
                cluster.take_charge(time.monotonic(), remembered(self._store.state()))
                for _, channel in cluster.connections():
                    self.greet(channel)
                return
            connected = cluster.connected()
            # Hosts alone may lie. Most of them count while the store cannot be asked.
            most = 2 * len(self._fenced & connected) > len(connected)
        if deposed or (most and not answers):
            self._stand_back("taken_over")

    def _follow_hellos(self) -> None:
        """Stand back for a controller that was there first, as long as it is there."""
        cluster, now_s = self._cluster, time.monotonic()
        with cluster.lock:
            first = cluster.rivals.first(self.own_hello(), cluster.connected(), now_s)
            if first is not None:
                self._rival_s = now_s
                if cluster.passive is None:
                    why = f"another controller, {first.name}, was there first"
                    cluster.stand_by(why, first)
                return
            if cluster.passive is None or now_s - self._rival_s < _GONE_S:
                return
            if not cluster.was_in_charge:
                cluster.take_charge(now_s)
                return
        self._stand_back("rival_gone")

    def _stand_back(self, code: str) -> None:
        self._ended = True
        self._cluster.note(code)
        self._start_anew()

    def _waits_for(self) -> str:
        """Whom a controller with a common store stands by for, in words."""
        assert self._store is not None
        cluster = self._store.state().cluster
        if self._store.problem is not None:
            return f"nobody knows who is in charge: {self._store.problem}"
        return f"{cluster.active} is in charge" if cluster is not None else "nobody is in charge"

    def _say_hello(self, channel: Channel) -> None:
        if self._store is not None and self._cluster.passive is not None:
            return  # a slave must not send
        channel.send_frame(codec.CONTROLLER, self.own_hello().encode())
