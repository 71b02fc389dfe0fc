"""The striping app:

tells every helper its host's NICs and the links to each peer, and takes in what helpers report.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.cluster import Cluster, Member, guarded_loop
from ri2n_sdn.apps.openflow import OSKenApp, ofp
from ri2n_sdn.apps.reported import Reported
from ri2n_sdn.fabric.model import Fabric, PairKey
from ri2n_sdn.pipeline import helper_frames
from ri2n_sdn.pipeline.helper_frames import HelperLink, Mode
from ri2n_sdn.pipeline.helper_texts import even_parts, links_to, nearly_equal, nics_of
from ri2n_sdn.pipeline.layout import HELPER_VLAN, WIRE_PORT

__all__ = ["StripingApp", "Told", "take_report"]

_LOG = logging.getLogger("ri2n.striping")
_TURN_S = 0.1
_LATE_S = 1.0  # between two turns: then it is this controller that was late, with what it says, too
# a helper that began anew unseen (its TAPs were back before the kernel had told) waits for no
# longer
_REPEAT_S = 1.0
_FRAMES_PER_S = 2000.0  # of repeats, to all helpers together
_BURST = 32  # frames to one helper in a turn: its TAP's queue is short
_FAREWELLS = 3
_THIS_HOST = ""


@dataclass
class _Text:
    """One control frame:

    what it says, how it is encoded, when it is sent next, and how often (None: always).
    """

    says: Hashable
    frame: bytes
    due_s: float = 0.0
    left: int | None = None


@dataclass
class Told:
    """What one helper was told: by the peer's MAC address, or "" for what is about its own host.

    Frames keep their generation until they say something new.
    """

    texts: dict[str, _Text] = field(default_factory=dict)
    compared_s: float = -1e9
    """When it was last looked whether the helper reports peers that it should not have."""
    floor: int = 0
    """What the helper believed before, if that is newer than all of this controller:

    it refuses what is older.
    """

    def say(self, about: str, says: Hashable, encode: Callable[[], bytes]) -> None:
        """Say something about a peer from now on; nothing happens when it is what was said
        before.
        """
        old = self.texts.get(about)
        if old is None or old.says != says:
            self.texts[about] = _Text(says, encode())

    def part(self, mac: str, generation: int) -> None:
        """Say a few times that a peer is gone."""
        old = self.texts.get(mac)
        if old is None or old.left is None:
            self.texts[mac] = _Text("gone", helper_frames.gone(generation, mac), left=_FAREWELLS)

    def links(self, mac: str) -> tuple[bool, tuple[HelperLink, ...]] | None:
        """What was last said of a peer: whether to stripe, and the links."""
        old = self.texts.get(mac)
        if old is None or not isinstance(old.says, tuple):
            return None
        stripe, links = old.says
        return stripe, links

    def repeat_all(self) -> None:
        """The helper may have heard nothing of it yet."""
        for text in self.texts.values():
            text.due_s = 0.0

    def due(self, now_s: float, repeat_s: float) -> list[bytes]:
        """Frames to send now, the most urgent ones first; what is about the own host before all."""
        order = sorted(
            (text.due_s, about != _THIS_HOST, about) for about, text in self.texts.items()
        )
        frames = []
        for due_s, _, about in order[:_BURST]:
            if due_s > now_s:
                break
            text = self.texts[about]
            frames.append(text.frame)
            text.due_s = now_s + repeat_s
            if text.left is not None:
                text.left -= 1
                if not text.left:
                    del self.texts[about]
        return frames


class StripingApp(OSKenApp):
    """One thread, which sends by packet-out to the helpers' wire ports."""

    OFP_VERSIONS = [ofp.OFP_VERSION]  # noqa: RUF012 - os-ken's interface
    cluster: Cluster

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._told: dict[str, Told] = {}
        self._planned: tuple[Fabric, str] | None = None
        self._decided: set[PairKey] = set()
        self._parts: dict[str, float] = {}
        self._generation = 0
        self._listened_s = -math.inf

    def start(self) -> None:
        super().start()
        guarded_loop(self.cluster, "striping", self._turn)

    def _turn(self) -> None:
        cluster = self.cluster
        cluster.wake.striping.wait(_TURN_S)
        cluster.wake.striping.clear()
        with cluster.lock:
            # One that is silent is spoken to as well: a helper has nothing to report until it is
            # told who it is.
            helpers = {
                name: member
                for name, member in cluster.members.items()
                if member.channel is not None and member.helper_runs
            }
            self._listen(helpers)
            if not cluster.started:
                return
            fabric = cluster.fabric()
            for name in [name for name in self._told if name not in helpers]:
                del self._told[name]
            self._compose(fabric, helpers)
            self._send(helpers)

    def _listen(self, helpers: dict[str, Member]) -> None:
        """Find the helpers that hang, and those that are heard again."""
        cluster, now_s = self.cluster, time.monotonic()
        late, self._listened_s = now_s - self._listened_s > _LATE_S, now_s
        for name, member in helpers.items():
            # One that was told nothing says nothing, and the row that reports come by may not be
            # there either.
            if late or not cluster.started or not member.accepts_wire:
                member.silence.postpone(now_s)
                continue
            assert member.channel is not None
            said = cluster.measured.reports.get(name)
            if member.silence.judge(
                said.heard_s if said is not None else -math.inf, member.channel.answered_s
            ):
                hangs = "has stopped reporting: its traffic goes by flows"
                cluster.note(
                    f"{name}'s helper {hangs if member.silence.silent else 'reports again'}"
                )
                cluster.topology_changed()

    def _compose(self, fabric: Fabric, helpers: dict[str, Member]) -> None:
        """Put into words what changed:

        of all pairs when the fabric did, else of those that carry traffic.
        """
        cluster = self.cluster
        now_s = time.monotonic()
        # A controller that starts again must be believed; a clock that is set back meanwhile does
        # not matter.
        self._generation = max(self._generation, int(time.time()))
        planned = (fabric, cluster.loop.strategy_name)
        everything = (
            self._planned is None
            or self._planned[0] is not fabric
            or self._planned[1] != planned[1]
        )
        self._planned = planned
        rates = cluster.measured.rates
        decided = {
            pair
            for pair, paths in rates.items()
            if any(path.share is not None for path in paths.values())
        }
        changed, self._decided = decided | self._decided, decided
        sent = {
            pair: {key: path.tx_bps for key, path in paths.items()} for pair, paths in rates.items()
        }
        self._parts = even_parts(fabric, sent) if fabric.routing is not None else {}
        for name, member in helpers.items():
            with cluster.contain_host_fault(member, "its helper cannot be told its links"):
                self._compose_for(fabric, name, everything, changed, now_s)
        cluster.helpers_to_greet.clear()

    def _compose_for(
        self, fabric: Fabric, name: str, everything: bool, changed: set[PairKey], now_s: float
    ) -> None:
        heard = self.cluster.measured.reports.get(name)
        if heard is not None and heard.generation > max(self._generation, self._floor(name)):
            # Another controller told it by a clock ahead of ours, or ours was set back: else all is
            # refused.
            ahead_s = heard.generation - self._generation
            self.cluster.note(
                f"{name}: its helper was told by a clock that went {ahead_s} s ahead of this one's"
            )
            self._told[name] = Told(floor=heard.generation)
            everything = True
        new = name not in self._told
        told = self._told.setdefault(name, Told())
        if name in self.cluster.helpers_to_greet:
            told.repeat_all()
        if everything or new:
            self._tell_host(told, fabric, name)
        if everything or new or now_s > told.compared_s + _REPEAT_S:
            told.compared_s = now_s
            peers = [peer for peer in fabric.hosts if peer != name and fabric.links(name, peer)]
            self._part(told, {fabric.hosts[peer].mac for peer in peers}, name)
        else:
            peers = [peer for sender, peer in changed if sender == name and peer in fabric.hosts]
        for peer in peers:
            self._tell_peer(told, fabric, name, peer)

    def _floor(self, name: str) -> int:
        return self._told[name].floor if name in self._told else 0

    def _tell_host(self, told: Told, fabric: Fabric, name: str) -> None:
        host, mode = fabric.hosts[name], Mode.of_strategy(self.cluster.loop.strategy_name)
        nics, age = nics_of(host), max(self._generation, told.floor)
        told.say(
            _THIS_HOST,
            (host.mac, mode, nics),
            lambda: helper_frames.this_host(age, host.mac, mode, nics),
        )

    def _tell_peer(self, told: Told, fabric: Fabric, name: str, peer: str) -> None:
        decided = self.cluster.measured.rates.get((name, peer), {})
        links = links_to(
            fabric,
            name,
            peer,
            {path: of.share for path, of in decided.items() if of.share is not None},
            {path: of.rate_bps for path, of in decided.items() if of.rate_bps is not None},
            self._parts,
        )
        if not links:
            return
        mac, stripe, age = (
            fabric.hosts[peer].mac,
            fabric.striped(name, peer),
            max(self._generation, told.floor),
        )
        before = told.links(mac)
        if before is None or before[0] != stripe or not nearly_equal(links, before[1]):
            told.say(mac, (stripe, links), lambda: helper_frames.peer(age, mac, stripe, links))

    def _part(self, told: Told, known: set[str], name: str) -> None:
        """Peers that are gone, among them those that an earlier controller spoke of and the
        helper still reports.
        """
        heard = self.cluster.measured.reports.get(name)
        reported = heard.peers() if heard is not None else set()
        for mac in (reported | told.texts.keys()) - known - {_THIS_HOST}:
            told.part(mac, max(self._generation, told.floor))

    def _send(self, helpers: dict[str, Member]) -> None:
        now_s = time.monotonic()
        repeat_s = max(
            _REPEAT_S, sum(len(told.texts) for told in self._told.values()) / _FRAMES_PER_S
        )
        for name, member in helpers.items():
            channel = member.channel
            assert channel is not None
            frames = self._told[name].due(now_s, repeat_s)
            channel.send_bytes(
                b"".join(
                    codec.packet_out(
                        WIRE_PORT, codec.tagged(frame, HELPER_VLAN), channel.next_xid()
                    )
                    for frame in frames
                )
            )
            self.cluster.counters["helper_frames_sent"] += len(frames)


def take_report(cluster: Cluster, dpid: int, frame: bytes, now_s: float) -> None:
    """Keep a helper's report; one that is malformed or speaks of another host costs a counter."""
    try:
        report = helper_frames.decode_report(frame)
    except ValueError:
        cluster.counters["dropped_report_malformed"] += 1
        return
    with cluster.lock:
        member = next((member for member in cluster.members.values() if member.dpid == dpid), None)
        if member is None or member.mac != report.mac:
            cluster.counters["dropped_report_of_stranger"] += 1
            return
        cluster.counters["helper_reports"] += 1
        cluster.measured.reports.setdefault(member.name, Reported()).take(report, now_s)
