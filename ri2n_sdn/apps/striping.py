# SPDX-License-Identifier: Apache-2.0
"""The striping app: tells each helper its NICs and links, and takes in the helpers' reports."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.cluster import App, Cluster, Member
from ri2n_sdn.apps.measured import Reported
from ri2n_sdn.fabric.model import Fabric, PairKey
from ri2n_sdn.pipeline import helper_frames
from ri2n_sdn.pipeline.helper_frames import HelperLink, Mode
from ri2n_sdn.pipeline.helper_texts import (
    channels_to,
    even_parts,
    links_to,
    nearly_equal,
    nics_of,
)
from ri2n_sdn.pipeline.job_plan import Channels
from ri2n_sdn.pipeline.layout import HELPER_VLAN, WIRE_PORT

__all__ = ["ControlFrames", "StripingApp", "take_report"]

_LOG = logging.getLogger("ri2n.striping")
_TURN_S = 0.1
# If more time passes between two turns, this controller was held up, and what helpers report may be
# late for that reason.
_LATE_S = 1.0
# Each frame is repeated after this time. The kernel may not tell that a helper started anew, when
# its TAPs are back quickly; that helper waits no longer than this for its links.
_REPEAT_S = 1.0
# All helpers together get so many repeated frames a second.
_FRAMES_PER_S = 2000.0
# One helper gets so many frames in a turn, because its TAP's queue is short.
_BURST = 32
_FAREWELLS = 3
_THIS_HOST = ""


@dataclass
class _ControlFrame:
    """One control frame: its content, its bytes, and when it is sent next.

    `repeats_left` is how often it is still sent; None means for ever.
    """

    content: Hashable
    frame: bytes
    due_s: float = 0.0
    repeats_left: int | None = None


@dataclass
class ControlFrames:
    """The control frames for one helper, by the peer's MAC address and a number.

    The address of its own host is "". The number is 0, or from 1 on for the frames about channels
    to a peer. A frame keeps its generation until its content changes.
    """

    by_key: dict[tuple[str, int], _ControlFrame] = field(default_factory=dict)
    compared_s: float = -1e9
    """When the peers that the helper reports were last compared with those that it should have."""
    min_generation: int = 0
    """The newest generation that the helper knows, if another controller's clock was ahead.

    The helper refuses frames of an older generation.
    """

    def set(self, mac: str, content: Hashable, encode: Callable[[], bytes]) -> None:
        """Send a frame about a peer from now on. Nothing changes when its content is the same."""
        old = self.by_key.get((mac, 0))
        if old is None or old.content != content:
            self.by_key[mac, 0] = _ControlFrame(content, encode())

    def set_gone(self, mac: str, generation: int) -> None:
        """Send a few times that a peer is gone, then nothing more about it."""
        self._drop_channels(mac)
        old = self.by_key.get((mac, 0))
        if old is None or old.repeats_left is None:
            self.by_key[mac, 0] = _ControlFrame(
                "gone", helper_frames.gone(generation, mac), repeats_left=_FAREWELLS
            )

    def peers(self) -> frozenset[str]:
        """The addresses of the peers about which there are frames, and "" for the own host."""
        return frozenset(mac for mac, _ in self.by_key)

    def set_channels(
        self, mac: str, content: Hashable, encode: Callable[[], tuple[bytes, ...]]
    ) -> None:
        """Send the frames about the channels to a peer from now on, after the one about its links.

        Nothing changes when their content is the same.
        """
        old = self.by_key.get((mac, 1))
        if old is None or old.content != content:
            self._drop_channels(mac)
            for number, frame in enumerate(encode(), 1):
                self.by_key[mac, number] = _ControlFrame(content, frame)

    def _drop_channels(self, mac: str) -> None:
        for key in [key for key in self.by_key if key[0] == mac and key[1]]:
            del self.by_key[key]

    def links(self, mac: str) -> tuple[bool, bool, tuple[HelperLink, ...]] | None:
        """(whether to stripe, whether beside the bridge, helper links) as last told for a peer."""
        old = self.by_key.get((mac, 0))
        if old is None or not isinstance(old.content, tuple):
            return None
        stripe, beside, links = old.content
        return stripe, beside, links

    def repeat_all(self) -> None:
        """Make all frames due at once, because the helper may not have received any of them."""
        for control in self.by_key.values():
            control.due_s = 0.0

    def due(self, now_s: float, repeat_s: float) -> list[bytes]:
        """The frames to send now, at most _BURST, those that are due longest first.

        Of frames that are due at the same time, the own host's is the first. Each is due again
        after `repeat_s`.
        """
        order = sorted((control.due_s, key) for key, control in self.by_key.items())
        frames = []
        for due_s, key in order[:_BURST]:
            if due_s > now_s:
                break
            control = self.by_key[key]
            frames.append(control.frame)
            control.due_s = now_s + repeat_s
            if control.repeats_left is not None:
                control.repeats_left -= 1
                if not control.repeats_left:
                    del self.by_key[key]
        return frames


class StripingApp(App):
    """One thread, which sends control frames to the helpers' wire ports by packet-out."""

    loop = "striping"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._frames_of: dict[str, ControlFrames] = {}
        self._planned: tuple[Fabric, str, Channels] | None = None
        self._decided: set[PairKey] = set()
        # Hosts that put TCP in order that comes beside the bridge, and no job of which was promised
        # a rate; and those of which that changed.
        self._ordering: frozenset[str] = frozenset()
        self._moved: frozenset[str] = frozenset()
        self._even_parts: dict[str, float] = {}
        self._generation = 0
        self._listened_s = -math.inf

    def _turn(self) -> None:
        cluster = self.cluster
        cluster.wake.striping.wait(_TURN_S)
        cluster.wake.striping.clear()
        with cluster.lock:
            # A silent helper is told its links, too: a helper reports nothing until it knows its
            # own host.
            helpers = {
                member.name: member for member, _ in cluster.connections() if member.helper_runs
            }
            self._listen(helpers)
            if not cluster.started:
                return
            fabric = cluster.fabric()
            for name in [name for name in self._frames_of if name not in helpers]:
                del self._frames_of[name]
            self._compose(fabric, helpers)
            self._send(helpers)

    def _listen(self, helpers: dict[str, Member]) -> None:
        """Find the helpers that have stopped reporting, and those that report again."""
        cluster, now_s = self.cluster, time.monotonic()
        late, self._listened_s = now_s - self._listened_s > _LATE_S, now_s
        if not late:
            fast = cluster.measured.fast
            # TCP beside the bridge keeps to what receivers grant only on average: each connection
            # has a segment on its way in any case. Where that could take from what a job was
            # promised, all goes by the helpers.
            promised = {
                host
                for pair, channels in cluster.jobs.channels.items()
                if any(channel.min_rate_bps for channel in channels.values())
                for host in pair
            }
            ordering = frozenset(
                name for name, path in fast.items() if name not in promised and path.orders(now_s)
            )
            self._moved, self._ordering = self._ordering ^ ordering, ordering
        for name, member in helpers.items():
            # A helper that was told nothing reports nothing, and the bridge may not have the row
            # that sends its reports to the controller yet.
            if late or not cluster.started or not member.accepts_wire:
                member.silence.since_s = now_s
                continue
            assert member.channel is not None
            reported = cluster.measured.reports.get(name)
            if member.silence.judge(
                reported.heard_s if reported is not None else -math.inf, member.channel.answered_s
            ):
                silent = member.silence.silent
                cluster.note("helper_silent" if silent else "helper_reports_again", {"host": name})
                cluster.topology_changed()

    def _compose(self, fabric: Fabric, helpers: dict[str, Member]) -> None:
        """Update the control frames of all helpers.

        Frames about all pairs are compared when the fabric or the strategy has changed, otherwise
        only those about pairs that carry traffic or did so before.
        """
        cluster = self.cluster
        now_s = time.monotonic()
        # The generation is the time, so that helpers accept the frames of a controller that has
        # started anew. It does not go back when the clock is set back.
        self._generation = max(self._generation, int(time.time()))
        planned = (fabric, cluster.loop.strategy_name, cluster.jobs.channels)
        everything = (
            self._planned is None
            or self._planned[0] is not fabric
            or self._planned[1:] != planned[1:]
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
            pair: {key: path.tx_bps or 0.0 for key, path in paths.items()}
            for pair, paths in rates.items()
        }
        self._even_parts = even_parts(fabric, sent) if fabric.routing is not None else {}
        for name, member in helpers.items():
            with cluster.contain_fault("helper_not_told", member):
                self._compose_for(fabric, name, everything, changed, now_s)
        cluster.helpers_to_greet.clear()

    def _compose_for(
        self, fabric: Fabric, name: str, everything: bool, changed: set[PairKey], now_s: float
    ) -> None:
        heard, known = self.cluster.measured.reports.get(name), self._frames_of.get(name)
        newest = max(self._generation, known.min_generation if known is not None else 0)
        if heard is not None and heard.generation > newest:
            # A controller whose clock was ahead of this one's told the helper its links, or this
            # one's clock was set back. The helper would refuse frames of the older generation.
            ahead_s = heard.generation - self._generation
            self.cluster.note("helper_clock_ahead", {"host": name}, ahead_s=ahead_s)
            self._frames_of[name] = ControlFrames(min_generation=heard.generation)
            everything = True
        new = name not in self._frames_of
        frames = self._frames_of.setdefault(name, ControlFrames())
        if name in self.cluster.helpers_to_greet:
            frames.repeat_all()
        if everything or new:
            self._tell_host(frames, fabric, name)
        if everything or new or now_s > frames.compared_s + _REPEAT_S:
            frames.compared_s = now_s
            peers = [
                peer for peer in fabric.hosts if peer != name and fabric.helper_links(name, peer)
            ]
            self._tell_gone(frames, {fabric.hosts[peer].mac for peer in peers}, name)
        elif name in self._moved:
            peers = [peer for peer in fabric.hosts if peer != name]
        else:
            mine = {peer for sender, peer in changed if sender == name} | self._moved
            peers = [peer for peer in mine if peer in fabric.hosts]
        for peer in peers:
            self._tell_peer(frames, fabric, name, peer)

    def _tell_host(self, frames: ControlFrames, fabric: Fabric, name: str) -> None:
        host, mode = fabric.hosts[name], Mode.of_strategy(self.cluster.loop.strategy_name)
        nics, generation = nics_of(host), max(self._generation, frames.min_generation)
        frames.set(
            _THIS_HOST,
            (host.mac, mode, nics),
            lambda: helper_frames.this_host(generation, host.mac, mode, nics),
        )

    def _tell_peer(self, frames: ControlFrames, fabric: Fabric, name: str, peer: str) -> None:
        decided = self.cluster.measured.rates.get((name, peer), {})
        channels = self.cluster.jobs.channels.get((name, peer), {})
        links = links_to(
            fabric,
            name,
            peer,
            {path: rates.share for path, rates in decided.items() if rates.share is not None},
            {path: rates.rate_bps for path, rates in decided.items() if rates.rate_bps is not None},
            self._even_parts,
            {path.key for channel in channels.values() for path in channel.paths},
        )
        if not links:
            return
        mac, stripe = fabric.hosts[peer].mac, fabric.striped(name, peer)
        beside = stripe and {name, peer} <= self._ordering
        generation = max(self._generation, frames.min_generation)
        before = frames.links(mac)
        if before is None or before[:2] != (stripe, beside) or not nearly_equal(links, before[2]):
            frames.set(
                mac,
                (stripe, beside, links),
                lambda: helper_frames.peer(generation, mac, stripe, links, beside),
            )

        wanted, common = channels_to(fabric, name, peer, list(channels.values()))
        if wanted or (mac, 1) in frames.by_key:
            content = (tuple(wanted), common)
            frames.set_channels(
                mac, content, lambda: helper_frames.channels(generation, mac, wanted, common)
            )

    def _tell_gone(self, frames: ControlFrames, peer_macs: set[str], name: str) -> None:
        """Tell a helper which peers are gone: those that it knows and that are not in `peer_macs`.

        It may know some of them from an earlier controller; its reports show these.
        """
        heard = self.cluster.measured.reports.get(name)
        reported = heard.peers() if heard is not None else set()
        for mac in (reported | frames.peers()) - peer_macs - {_THIS_HOST}:
            frames.set_gone(mac, max(self._generation, frames.min_generation))

    def _send(self, helpers: dict[str, Member]) -> None:
        now_s = time.monotonic()
        repeat_s = max(
            _REPEAT_S,
            sum(len(frames.by_key) for frames in self._frames_of.values()) / _FRAMES_PER_S,
        )
        for name, member in helpers.items():
            assert member.channel is not None
            due = self._frames_of[name].due(now_s, repeat_s)
            for frame in due:
                member.channel.send_frame(WIRE_PORT, codec.tagged(frame, HELPER_VLAN))
            self.cluster.counters.add("helper_frames_sent", len(due))


def take_report(cluster: Cluster, member: Member, frame: bytes, now_s: float) -> None:
    """Keep a report of a host's helper; one that is malformed or of another host is counted."""
    try:
        report = helper_frames.decode_report(frame)
    except ValueError:
        cluster.counters.add("dropped_report_malformed")
        return
    with cluster.lock:
        if member.mac != report.mac or member.name not in cluster.members:
            cluster.counters.add("dropped_report_of_stranger")
            return
        cluster.counters.add("helper_reports")
        cluster.measured.reports.setdefault(member.name, Reported()).take(report, now_s)
