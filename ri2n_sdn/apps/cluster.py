"""What the controller knows now, shared by its apps under one lock:

hosts, wiring, installed rows, slot tables.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.fat_tree import FatTree
from ri2n_sdn.apps.measured import Measured
from ri2n_sdn.apps.patience import LONG_MUTE_S, MUTE_S
from ri2n_sdn.apps.probes import ProbeCodec
from ri2n_sdn.apps.refusals import Refusals
from ri2n_sdn.apps.running_check import RunningCheck
from ri2n_sdn.apps.silence import Silence
from ri2n_sdn.apps.texts import printable
from ri2n_sdn.apps.wakes import Wakes
from ri2n_sdn.discovery.wiring import Wiring
from ri2n_sdn.fabric.links import number_links
from ri2n_sdn.fabric.model import Fabric, Guest, Host, LinkNumbers, Nic, NicId, PairKey, PathKey
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from ri2n_sdn.pipeline.messages import Wanted
from ri2n_sdn.weights.loop import LoopSettings, WeightLoop

__all__ = ["EMPTIED_CALM_S", "Cluster", "Member", "Port", "guarded_loop"]

_LOG = logging.getLogger("ri2n.cluster")
_DEFAULT_RATE_BPS = 1_000_000_000
# How long hosts that cluster.yaml does not name are waited for. Open vSwitch tries to connect again
# every 8 s at worst.
FRESH_GRACE_S = 3.0
TAKEOVER_GRACE_S = 10.0
EMPTIED_CALM_S = 60.0  # tables that were not emptied for this long are in order again


@dataclass
class Port:
    """A NIC as the switch describes it."""

    number: int
    name: str
    mac: str
    up: bool
    speed_bps: int
    tx_bytes: int = 0
    rx_bytes: int = 0
    tx_bps: float = 0.0
    rx_bps: float = 0.0
    counted_s: float = 0.0


@dataclass
class Member:
    """A host that has connected at least once.

    `installed` None: must be read from the switch before it is used. `dirty`: must be planned anew.
    `busy`: the trunk app is reading or changing it, so nobody else may. `reports_probes`: its probe
    rows are acknowledged. `adopted`: slot tables that an earlier controller left there were taken
    over. `taps`: the helper's ports by number, and whether they have carrier; `silence`: whether
    its helper has stopped reporting. `faults`: what failed for this host alone when it was last
    tried. `extra_macs`, `guests`: addresses behind it that `host-up` was told of. `emptied_s`,
    `emptied`: when its tables were found empty last, and how often in a row; `repairs`: how many
    audits in a row found rows that were missing or strange.
    """

    name: str
    dpid: int
    mac: str
    ovs: str
    ports: dict[int, Port]
    channel: Channel | None = None
    left_s: float = 0.0
    accepts_wire: bool = False
    installed: Installed | None = None
    wanted: Wanted | None = None
    dirty: bool = True
    busy: bool = False
    retry_s: float = 0.0
    reports_probes: bool = False
    adopted: bool = False
    datapath: str = ""
    hash_algorithm: int = 0
    control_port: int | None = None
    audited_s: float = 0.0
    sweep_s: float = math.inf  # when groups that no row uses any more may be deleted
    taps: dict[int, bool] = field(default_factory=dict)
    silence: Silence = field(default_factory=lambda: Silence(time.monotonic()))
    faults: dict[str, str] = field(default_factory=dict)
    extra_macs: tuple[str, ...] = ()
    guests: tuple[Guest, ...] = ()
    emptied_s: float = -math.inf
    emptied: int = 0
    repairs: int = 0

    @property
    def has_taps(self) -> bool:
        """Its bridge is made for a helper."""
        return {PLAIN_PORT, WIRE_PORT} <= self.taps.keys()

    @property
    def helper_runs(self) -> bool:
        """A process holds both TAPs open."""
        return self.has_taps and self.taps[PLAIN_PORT] and self.taps[WIRE_PORT]


@dataclass
class Cluster:
    """Everything is read and written under `lock`.

    Who is there: `members`, `wiring`, `fat_tree`, `refusals`. What is wanted: `pair_slots`, the
    slot tables of pairs in use, which `loop` decides on; what each bridge holds is in its `Member`.
    What was measured: `measured`. Who is to wake: `wake`. What people are told: `counters`,
    `events`, `faults`. `helpers_to_greet` are hosts whose helper may be a new one. `syn_acks` are
    the answers to requests for connections that are to be placed, by the switch's datapath id
    (apps.placement).
    """

    config: ClusterConfig
    strategy: str
    socket_path: Path
    probes: ProbeCodec = field(default_factory=ProbeCodec)
    lock: threading.RLock = field(default_factory=threading.RLock)
    members: dict[str, Member] = field(default_factory=dict)
    wiring: Wiring = field(init=False)
    pair_slots: dict[PairKey, tuple[PathKey, ...]] = field(default_factory=dict)
    helpers_to_greet: set[str] = field(default_factory=set)
    syn_acks: dict[int, deque[bytes]] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    events: deque[tuple[int, float, str]] = field(default_factory=lambda: deque(maxlen=1000))
    started_s: float = field(default_factory=time.monotonic)
    wake: Wakes = field(default_factory=Wakes)
    measured: Measured = field(default_factory=Measured)
    refusals: Refusals = field(init=False)
    started: bool = False
    failed: bool = False
    loop: WeightLoop = field(init=False)
    fat_tree: FatTree | None = None
    vlan_check: RunningCheck | None = None
    faults: dict[str, str] = field(default_factory=dict)
    _fabric: Fabric | None = None
    _link_numbers: LinkNumbers = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.measured.hbspan_s = self.config.hbspan_s.min
        self.refusals = Refusals(self.lock, self.counters, self.note)
        self.fat_tree = FatTree.of(self.config, self.nic_label)
        self.wiring = Wiring(label=self.nic_label, switch=self._switch_of)
        self.loop = WeightLoop(
            LoopSettings(
                strategy=self.strategy,
                slots=self.config.slots,
                hbspan_min_s=self.config.hbspan_s.min,
                hbspan_max_s=self.config.hbspan_s.max,
            )
        )

    def fabric(self) -> Fabric:
        """The fabric as it is known now."""
        if self._fabric is None:
            declared = self._declared_networks()
            hosts = dict[str, Host]()
            for name, member in self.members.items():
                with self.alone(member, "what it says of itself makes no sense"):
                    hosts[name] = self._host(member, declared)
            routing = self.fat_tree.routing(hosts) if self.fat_tree is not None else None
            self._link_numbers = number_links(Fabric(hosts, routing=routing), self._link_numbers)
            self._fabric = Fabric(
                hosts,
                self._link_numbers,
                self.config.traffic_by_flows(),
                routing,
                self.config.placed_ports(),
            )
        return self._fabric

    def extra_macs(self, member: Member) -> tuple[str, ...]:
        """The addresses behind a host's LOCAL port, declared in the configuration or to its
        `host-up`.
        """
        elsewhere = {guest.mac for guest in member.guests}
        found = dict.fromkeys([*self.config.extra_macs(member.name), *member.extra_macs])
        return tuple(mac for mac in found if mac.lower() not in elsewhere)

    def topology_changed(self) -> None:
        """Hosts, NICs or wiring are others than before: every host is planned anew."""
        self._fabric = None
        for member in self.members.values():
            member.dirty = True
        self.wake.planners()

    def may_start(self, now_s: float) -> bool:
        """The first full plan needs all hosts: one made without them would take rows away that are
        in use.

        Declared hosts are waited for, and others for a moment: longer when an earlier controller's
        rows are in use, and when nobody has come yet but hosts that share no network with others.
        Whoever is quickest, and mute or without rows, must not make us begin without those that are
        in use.
        """
        if self.started:
            return True
        if not self.members or not self.wiring.settled:
            return False
        connected = {name for name, member in self.members.items() if member.channel is not None}
        answering = {name for name in connected if not self._is_mute(name, now_s)}
        if not all(self.members[name].reports_probes for name in answering):
            return False
        complete = bool(self.config.hosts) and set(self.config.hosts) <= answering
        taken_over = any(
            member.installed is not None and member.installed.groups
            for member in self.members.values()
        )
        fresh = not taken_over and bool(answering - {member.name for member in self.expendable()})
        if complete or now_s > self.started_s + (FRESH_GRACE_S if fresh else TAKEOVER_GRACE_S):
            self.started = True
            self.note(f"in charge of {len(connected)} hosts: {', '.join(sorted(connected))}")
            self.topology_changed()
        return self.started

    def _is_mute(self, name: str, now_s: float, limit_s: float = MUTE_S) -> bool:
        """It has left a request open for long: nobody waits for it."""
        channel = self.members[name].channel
        return channel is not None and channel.mute_s(now_s) > limit_s

    def settled(self) -> bool:
        """All that is known is installed and acknowledged, but for hosts that have long been
        mute.
        """
        now_s = time.monotonic()
        return (
            self.started
            and self.wiring.settled
            and all(
                member.accepts_wire and not member.dirty and not member.busy
                for name, member in self.members.items()
                if member.channel is not None and not self._is_mute(name, now_s, LONG_MUTE_S)
            )
        )

    def note(self, text: str) -> None:
        """An event for the operator: logged, and kept for `ri2n status` and the like."""
        _LOG.info("%s", text)
        number = self.events[-1][0] + 1 if self.events else 1
        self.events.append((number, time.time(), text))

    @contextmanager
    def alone(self, member: Member, what: str) -> Iterator[None]:
        """What fails in this block is `member`'s fault: `what` stands in `status`, and everybody
        else goes on.

        The host keeps what it has until it works again. Nothing is raised.
        """
        with self._kept_in(member.faults, f"{member.name}: ", what, "host_faults"):
            yield

    @contextmanager
    def together(self, what: str) -> Iterator[None]:
        """What fails in this block is about all hosts, and may still be one host's fault: `what`
        stands in `status`.

        All goes on with what there is, since a controller that begins anew would get the same data
        again.
        """
        with self._kept_in(self.faults, "", what, "cluster_faults"):
            yield

    @contextmanager
    def _kept_in(
        self, faults: dict[str, str], whose: str, what: str, counter: str
    ) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            with self.lock:
                self.counters[counter] += 1
                fault = printable(f"{type(error).__name__}: {error}")
                if faults.get(what) != fault:
                    faults[what] = fault
                    _LOG.warning("%s%s: %s", whose, what, fault, exc_info=error)
        else:
            faults.pop(what, None)

    def matters(self, member: Member) -> bool:
        """Whether a host that is away may still be spoken to: it is in cluster.yaml, or on a
        network with others.

        What cannot be is not kept: whoever reaches the controller's port may come by thousands of
        names.
        """
        return all(each is not member for each in self.expendable())

    def expendable(self) -> list[Member]:
        """The hosts that do not matter: all at once, since that is no more work than for one."""
        networks = {
            name: {self.wiring.network((name, number)) for number in member.ports} - {None}
            for name, member in self.members.items()
        }
        hosts_on = Counter(network for of_host in networks.values() for network in of_host)
        return [
            member
            for name, member in self.members.items()
            if name not in self.config.hosts
            and all(hosts_on[network] == 1 for network in networks[name])
        ]

    def forget(self, member: Member, why: str) -> None:
        """A host is none of the cluster's any more (the lock is held)."""
        del self.members[member.name]
        for number in member.ports:
            self.wiring.remove_nic((member.name, number))
        self.measured.reports.pop(member.name, None)
        self.note(why)
        self.topology_changed()

    def port_of(self, nic: NicId) -> tuple[Member | None, Port | None]:
        """The host and the port of a NIC, as far as they are known."""
        member = self.members.get(nic[0])
        return member, member.ports.get(nic[1]) if member is not None else None

    def nic_label(self, nic: NicId) -> str:
        """The NIC as people write it, `A:eth0`."""
        port = self.port_of(nic)[1]
        return f"{nic[0]}:{port.name if port is not None else nic[1]}"

    def _switch_of(self, nic: NicId) -> str | None:
        """The switch of a NIC in a network of several."""
        port = self.port_of(nic)[1]
        if self.fat_tree is None or port is None:
            return None
        switch = self.config.switch(nic[0], port.name)
        return switch if switch is not None and self.fat_tree.network(switch) is not None else None

    def _declared_networks(self) -> dict[str, str]:
        """What the networks of several switches are called, by the names that probes gave them.

        Probes go along one tree: when that breaks, they see parts of a network. What is declared
        holds them together.
        """
        if self.fat_tree is None:
            return {}
        found: dict[str, str] = {}
        for member in self.members.values():
            for number in member.ports:
                learned, switch = (
                    self.wiring.network((member.name, number)),
                    self._switch_of((member.name, number)),
                )
                network = self.fat_tree.network(switch) if switch is not None else None
                if learned is not None and network is not None:
                    found[learned] = network
        return found

    def _host(self, member: Member, declared: Mapping[str, str]) -> Host:
        nics = []
        for port in sorted(member.ports.values(), key=lambda port: port.number):
            tx_alive, rx_alive = self.wiring.alive((member.name, port.number))
            switch = self._switch_of((member.name, port.number))
            learned = self.wiring.network((member.name, port.number))
            network = declared.get(learned, learned) if learned is not None else None
            nics.append(
                Nic(
                    host=member.name,
                    name=port.name,
                    port=port.number,
                    mac=port.mac,
                    rate_bps=self.config.rate_bps(member.name, port.name)
                    or port.speed_bps
                    or _DEFAULT_RATE_BPS,
                    up=port.up,
                    network=network,
                    tx_alive=tx_alive,
                    rx_alive=rx_alive,
                    switch=switch,
                )
            )
        return Host(
            member.name,
            member.dpid,
            member.mac,
            tuple(nics),
            member.accepts_wire,
            member.channel is not None,
            self.extra_macs(member),
            member.guests,
            member.hash_algorithm,
            member.control_port,
            member.has_taps,
            member.helper_runs and not member.silence.silent,
            self.config.stripes(member.name),
            member.helper_runs and member.silence.silent,
        )


def guarded_loop(cluster: Cluster, name: str, turn: Callable[[], None]) -> threading.Thread:
    """Run `turn` again and again in a thread until the cluster stops; it does its own waiting.

    An exception is logged and counted and the loop goes on; one that fails at every turn ends the
    process, because a controller without one of its parts is worse than none (hosts go on
    forwarding, systemd starts it again).
    """

    def body() -> None:
        failures = 0
        while not cluster.wake.stop.is_set():
            try:
                turn()
                failures = 0
            except Exception:
                failures += 1
                cluster.counters[f"loop_errors_{name}"] += 1
                _LOG.exception("%s failed (%d in a row)", name, failures)
                if failures >= 20:
                    _LOG.critical("%s fails at every turn; the controller ends", name)
                    cluster.failed = True
                    cluster.wake.stop.set()
                    return
                cluster.wake.stop.wait(0.2)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread
