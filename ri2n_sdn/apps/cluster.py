# SPDX-License-Identifier: Apache-2.0
"""What the controller knows now: hosts, wiring, rows and slot tables, shared by its apps."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ri2n_sdn.apps.channel import ECHO, Channel
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.counts import Counts, Wakes
from ri2n_sdn.apps.fat_tree import FatTree
from ri2n_sdn.apps.job_state import JobState
from ri2n_sdn.apps.measured import Measured
from ri2n_sdn.apps.memory import Memory
from ri2n_sdn.apps.openflow import OSKenApp, ofp
from ri2n_sdn.apps.patience import LONG_MUTE_S, MUTE_S
from ri2n_sdn.apps.probes import ProbeCodec, ProbeKind
from ri2n_sdn.apps.refusals import Refusals
from ri2n_sdn.apps.remembered import Remembered
from ri2n_sdn.apps.rivals import Hello, Rivals
from ri2n_sdn.apps.silence import Silence
from ri2n_sdn.contract import documents
from ri2n_sdn.contract.counters import LOOP
from ri2n_sdn.contract.events import Event
from ri2n_sdn.contract.printing import printable
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.contract.wording import Subject
from ri2n_sdn.discovery.wiring import Wiring
from ri2n_sdn.fabric.helper_links import number_helper_links
from ri2n_sdn.fabric.model import (
    UNTAGGED,
    Fabric,
    Guest,
    HelperLinkNumbers,
    Host,
    Nic,
    NicId,
    PairKey,
    PathKey,
)
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.jobs import NO_JOBS, HostJobs
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from ri2n_sdn.pipeline.messages import Wanted
from ri2n_sdn.weights.loop import LoopSettings, WeightLoop

__all__ = ["EMPTIED_CALM_S", "App", "Cluster", "Member", "Port", "guarded_loop"]

_LOG = logging.getLogger("ri2n.cluster")
_DEFAULT_RATE_BPS = 1_000_000_000
# A controller that starts waits for this time for hosts that cluster.yaml does not name. Open
# vSwitch tries to connect again every 8 s at worst.
FRESH_GRACE_S = 3.0
TAKEOVER_GRACE_S = 10.0
# After a host has come, another controller of it has this time to say that it was there first.
_MEET_S = 0.25
# Tables that were not emptied for this long are in order again.
EMPTIED_CALM_S = 60.0


@dataclass
class Port:
    """A NIC as the switch describes it, and its traffic.

    `tx_bps` and `rx_bps` are its rates in the last sample, which all figures of the cluster are of;
    they are None while nobody knows them. `tx_bytes` and `rx_bytes` are the counters at the last
    read, at `counted_s`.
    """

    number: int
    name: str
    mac: str
    up: bool
    speed_bps: int
    tx_bytes: int = 0
    rx_bytes: int = 0
    tx_bps: float | None = None
    rx_bps: float | None = None
    counted_s: float = 0.0


@dataclass
class Member:
    """A host that has connected at least once.

    Its connection: `channel` is None while it is away, since `left_s`. `came_s` is when it was let
    in. `control_port` is the TCP port at which it reached the controller.

    Its rows: `installed` is what its bridge holds; None means that it must be read first. `wanted`
    is its plan. `dirty` means that it must be planned anew, not before `retry_s`. `busy` means that
    the trunk app reads or changes it, so no other thread may. `audited_s` is when it was last
    planned. `sweep_s` is when groups that no row uses may be deleted. `adopted` means
    that slot tables of an earlier controller were taken over. `planned_jobs` is what its plan holds
    about jobs, `held_jobs` what its bridge has acknowledged of it. `jobs_known` means that what it
    declares was read, or cannot be read. `sent_messages` are the cookies of the messages for its
    scripts that were sent since it was asked which ones it holds. `reports_probes` means that its
    probe rows are acknowledged, `accepts_wire` that it receives frames with NIC addresses.

    Its helper: `taps` are the helper's ports by number, and whether they have carrier; `silence`
    says whether the helper has stopped reporting.

    Addresses behind it that `host-up` was given: `extra_macs` and `guests`. `addresses` are the IP
    addresses that its traffic has, as it told them last; its control connection may have another.

    What is wrong: `faults` are failures of this host alone: errors by code. `emptied_s` is
    when its tables were found empty last, and `emptied` how often again in a row. `repairs` is how
    many audits in a row found rows that were missing or unknown. `certificate_ends_s` is the Unix
    time at which the certificate ends with which it connected last; None when there was none, or
    it does not say that.
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
    sweep_s: float = math.inf
    taps: dict[int, bool] = field(default_factory=dict)
    silence: Silence = field(default_factory=lambda: Silence(time.monotonic()))
    faults: dict[str, str] = field(default_factory=dict)
    extra_macs: tuple[str, ...] = ()
    guests: tuple[Guest, ...] = ()
    addresses: tuple[str, ...] = ()
    came_s: float = -math.inf
    emptied_s: float = -math.inf
    emptied: int = 0
    repairs: int = 0
    planned_jobs: HostJobs = NO_JOBS
    held_jobs: HostJobs = NO_JOBS
    jobs_known: bool = True
    sent_messages: set[int] = field(default_factory=set)
    certificate_ends_s: float | None = None

    @property
    def has_taps(self) -> bool:
        """Whether its bridge has the two ports of a helper."""
        return {PLAIN_PORT, WIRE_PORT} <= self.taps.keys()

    @property
    def helper_runs(self) -> bool:
        """Whether a process holds both TAPs open."""
        return self.has_taps and self.taps[PLAIN_PORT] and self.taps[WIRE_PORT]


@dataclass
class Cluster:
    """What all apps know together. Everything is read and written under `lock`.

    Which hosts there are: `members`, `wiring`, `fat_tree`, `refusals`. What is wanted: `pair_slots`
    are the slot tables of active pairs, on which `loop` decides; `jobs` says which paths jobs have;
    what each bridge holds is in its `Member`. What was measured: `measured`. Who is in charge:
    `passive` says why not this controller, `yields_to` for which of the `rivals`; `was_in_charge`.
    What survives this process: `memory`; what an earlier one knew: `remembered`. Which apps have
    work: `wake`. What operators are told: `counters`, `events` (documents), `faults` (errors by
    code), and `certificate_ends_s`, the Unix time at which the first of the controller's
    certificates ends (None without TLS). `helpers_to_greet` are hosts whose helper may be a new
    process. `syn_acks` are servers' answers to requests for connections that may be placed, by the
    server (apps.placement).
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
    syn_acks: dict[str, deque[bytes]] = field(default_factory=dict)
    jobs: JobState = field(default_factory=JobState)
    counters: Counts = field(default_factory=Counts)
    events: deque[documents.Event] = field(default_factory=lambda: deque(maxlen=1000))
    started_s: float = field(default_factory=time.monotonic)
    wake: Wakes = field(default_factory=Wakes)
    memory: Memory = field(default_factory=Memory)
    remembered: Remembered = field(default_factory=Remembered)
    measured: Measured = field(default_factory=Measured)
    refusals: Refusals = field(init=False)
    rivals: Rivals = field(default_factory=Rivals)
    passive: str | None = None
    yields_to: str | None = None
    was_in_charge: bool = False
    started: bool = False
    failed: bool = False
    certificate_ends_s: float | None = None
    loop: WeightLoop = field(init=False)
    fat_tree: FatTree | None = None
    faults: dict[str, str] = field(default_factory=dict)
    _fabric: Fabric | None = None
    _helper_link_numbers: HelperLinkNumbers = field(default_factory=dict)

    def __post_init__(self) -> None:
        span_s = self.config.hbspan_s
        self.measured.hbspan_s = span_s.min
        self.refusals = Refusals(self.lock, self.counters, self.note)
        self.fat_tree = FatTree.of(self.config, self.nic_name)
        self.wiring = Wiring(name=self.nic_name, switch=self._switch_of)
        self.loop = WeightLoop(
            LoopSettings(self.strategy, self.config.slots, span_s.min, span_s.max)
        )

    def fabric(self) -> Fabric:
        """The fabric as it is known now. It is the same object while nothing has changed."""
        if self._fabric is None:
            declared = self._declared_networks()
            hosts = dict[str, Host]()
            for name, member in self.members.items():
                with self.contain_fault("description_senseless", member):
                    hosts[name] = self._host(member, declared)
            routing = self.fat_tree.routing(hosts) if self.fat_tree is not None else None
            self._helper_link_numbers = number_helper_links(
                Fabric(hosts, routing=routing),
                {**self.remembered.links, **self._helper_link_numbers},
            )
            self._fabric = Fabric(
                hosts,
                self._helper_link_numbers,
                self.config.traffic_by_flows(),
                routing,
                self.config.placed_ports(),
                self.jobs.assignment if self.jobs.assignment.lanes else None,
            )
            self.measured.tallies.outages.look(time.monotonic(), self._fabric)
        return self._fabric

    def remember(self, remembered: Remembered) -> None:
        """Begin with what an earlier controller knew. It is called before any host connects."""
        self.remembered = remembered
        self.wiring.believe(remembered.networks, remembered.faults)

    def stand_by(self, why: str, rival: Hello | None = None) -> None:
        """Send hosts nothing from now on, since another controller is in charge (lock held).

        `rival` is that controller when the two have no common store.
        """
        if self.passive is None:
            self.note("stands_by" if rival is None else "stands_back", why=why)
        self.passive, self.yields_to = why, rival.run if rival is not None else None
        self.started = False

    def take_charge(self, now_s: float, remembered: Remembered | None = None) -> None:
        """Begin as a controller that has just started, with the hosts that are connected already.

        `remembered` is what the one before knew. The lock is held.
        """
        self.passive = None
        self.started_s = now_s
        self.note("takes_charge")
        if remembered is not None:
            self.remember(remembered)
        for member in self.members.values():
            member.installed, member.retry_s = None, 0.0
        for member, _ in self.connections():
            self.came_back(member)
        self.topology_changed()

    def connections(self) -> list[tuple[Member, Channel]]:
        """The hosts that are connected, with their connections."""
        return [(each, each.channel) for each in self.members.values() if each.channel is not None]

    def connected(self) -> set[str]:
        """The names of the hosts that are connected."""
        return {member.name for member, _ in self.connections()}

    def came_back(self, member: Member) -> None:
        """Compare a host that was let in with what is remembered of it (the lock is held).

        A helper that did not run, or hung, when the host was seen last gets no traffic before it
        has reported.
        """
        row = self.remembered.hosts.get(member.name)
        if row is not None and (row.datapath_id, row.mac) == (f"{member.dpid:016x}", member.mac):
            member.silence.silent |= member.helper_runs and row.helper == "off"
        nics = {port.number: (port.name, port.mac.lower()) for port in member.ports.values()}
        doubtful = self.remembered.came(member.name, f"{member.dpid:016x}", member.mac, nics)
        self.wiring.doubt(doubtful)

    def extra_macs(self, member: Member) -> tuple[str, ...]:
        """The MAC addresses behind a host's LOCAL port, from cluster.yaml and from `host-up`."""
        at_guest_ports = {guest.mac for guest in member.guests}
        declared = dict.fromkeys([*self.config.extra_macs(member.name), *member.extra_macs])
        return tuple(mac for mac in declared if mac.lower() not in at_guest_ports)

    def topology_changed(self) -> None:
        """Have every host planned anew, since hosts, NICs or wiring have changed."""
        self._fabric = None
        for member in self.members.values():
            member.dirty = True
        self.wake.planners()

    def may_start(self, now_s: float) -> bool:
        """Whether full plans may be made. The first time that they may, hosts are planned anew.

        The first full plan needs all hosts: a plan without some of them would delete rows that are
        in use. So the controller waits until all hosts of cluster.yaml are there, and all that are
        remembered, but for those that were away already. If neither names any, it waits for a grace
        time. That is longer when an earlier controller's rows are in use, and when only hosts have
        connected that share no network with others. Otherwise the hosts that connect first, which
        may be mute or have no rows, would make it begin without the hosts that are in use.
        """
        if self.started:
            return True
        if not self.members or not self.wiring.settled:
            return False
        connected = self.connected()
        answering = {
            member.name for member, channel in self.connections() if channel.mute_s(now_s) <= MUTE_S
        }
        if not all(self.members[name].reports_probes for name in answering):
            return False
        if any(now_s < self.members[name].came_s + _MEET_S for name in answering):
            return False
        awaited = {*self.config.hosts, *self.remembered.expected}
        complete = bool(awaited) and awaited - self.remembered.away <= answering != set()
        taken_over = any(
            member.installed is not None and member.installed.groups
            for member in self.members.values()
        )
        fresh = not taken_over and bool(answering - {member.name for member in self.expendable()})
        if complete or now_s > self.started_s + (FRESH_GRACE_S if fresh else TAKEOVER_GRACE_S):
            self.started = self.was_in_charge = True
            self.note("in_charge", count=len(connected), hosts=sorted(connected))
            self.topology_changed()
        return self.started

    def settled(self) -> bool:
        """Whether each host has acknowledged all rows, except hosts that are mute for long."""
        now_s = time.monotonic()
        return (
            self.started
            and self.wiring.settled
            and all(
                member.accepts_wire and member.jobs_known and not member.dirty and not member.busy
                for member, channel in self.connections()
                if channel.mute_s(now_s) <= LONG_MUTE_S
            )
        )

    def note(self, code: str, subject: Subject | None = None, **args: Any) -> None:
        """Tell the operator of an event: it is logged, and kept for the local interface."""
        event = Event(code, subject or {}, args).document()
        # Each kind of event has a rate limit of its own.
        _LOG.info("%s", event["text"], stacklevel=2, extra={"kind": code})
        number = self.events[-1]["seq"] + 1 if self.events else 1
        self.events.append({"seq": number, "time_s": time.time(), **event})

    @contextmanager
    def contain_fault(self, code: str, member: Member | None = None) -> Iterator[None]:
        """Treat an exception in this block as the fault of one host, or of the cluster.

        Nothing is raised. `code` says what failed: `ri2n status` shows that problem until the block
        succeeds, and a new failure is logged. A host keeps the rows that it has, and all other
        hosts go on. Work about all hosts may fail because of one host's data. The controller goes
        on with what it has, because after a new start it would get the same data again.
        """
        faults = self.faults if member is None else member.faults
        subject: Subject = {} if member is None else {"host": member.name}
        try:
            yield
        except Exception as error:
            with self.lock:
                self.counters.add("cluster_faults" if member is None else "host_faults")
                fault = printable(f"{type(error).__name__}: {error}")
                if faults.get(code) != fault:
                    faults[code] = fault
                    text = Problem(code, subject, {"error": fault}).text
                    extra = {"kind": code, "fields": dict(subject)}
                    _LOG.warning("%s", text, exc_info=error, extra=extra)
        else:
            faults.pop(code, None)

    def matters(self, member: Member) -> bool:
        """Whether a host is kept while it is away: it is in cluster.yaml, or shares a network.

        So is one that is remembered and leaves before its networks are known, until this controller
        begins. Others are not kept, because an attacker who reaches the controller's port may
        connect under thousands of names.
        """
        if not self.started and member.name in self.remembered.rows:
            return True
        return all(host is not member for host in self.expendable())

    def expendable(self) -> list[Member]:
        """The hosts that do not matter. To find all of them is no more work than to check one."""
        networks = {
            name: {self.wiring.network((name, number)) for number in member.ports} - {None}
            for name, member in self.members.items()
        }
        hosts_on = Counter(network for own in networks.values() for network in own)
        return [
            member
            for name, member in self.members.items()
            if name not in self.config.hosts
            and all(hosts_on[network] == 1 for network in networks[name])
        ]

    def forget(self, member: Member, code: str, **args: Any) -> None:
        """Remove a host from the cluster, and tell the operator of it (the lock is held)."""
        del self.members[member.name]
        for number in member.ports:
            self.wiring.remove_nic((member.name, number))
        self.measured.reports.pop(member.name, None)
        self.measured.fast.pop(member.name, None)
        self.measured.tallies.forget(member.name)
        self.note(code, {"host": member.name}, **args)
        self.topology_changed()

    def member_at(self, channel: Channel | None) -> Member | None:
        """The host that was let in with a connection; None when there is none.

        The datapath ID does not show it, since a stranger may claim any.
        """
        members = self.members.values() if channel is not None else ()
        return next((member for member in members if member.channel is channel), None)

    def member_of(self, dpid: int) -> Member | None:
        """The host whose bridge has a datapath ID; None when there is none."""
        return next((member for member in self.members.values() if member.dpid == dpid), None)

    def answered_s(self, host: str) -> float:
        """When the newest echo request was sent that a host has answered; long ago without one."""
        member = self.members.get(host)
        return -1e9 if member is None or member.channel is None else member.channel.answered_s

    def send_echoes(self, hosts: Iterable[str], now_s: float) -> None:
        """Ask connected hosts for an echo. apps.discovery takes in the answers."""
        for host in hosts:
            channel = self.members[host].channel if host in self.members else None
            if channel is not None:
                channel.send(ofp.OFPT_ECHO_REQUEST, ECHO.pack(now_s))

    def send_probe(
        self,
        kind: ProbeKind,
        sender: NicId,
        target_mac: str | None,
        now_s: float,
        tag: int = UNTAGGED,
        source_mac: str | None = None,
        numbers: tuple[int, int] | None = None,
    ) -> bool:
        """Send a probe from a NIC, and return whether its host is there.

        It says the NIC's own address, datapath ID and port, or `source_mac` and `numbers`.
        """
        member, port = self.port_of(sender)
        if member is None or port is None or member.channel is None:
            return False
        named = numbers or (member.dpid, port.number)
        frame = self.probes.encode(kind, source_mac or port.mac, target_mac, *named, now_s, tag)
        member.channel.send_frame(port.number, frame)
        return True

    def port_of(self, nic: NicId) -> tuple[Member | None, Port | None]:
        """The host and the port of a NIC; None for what is not known."""
        member = self.members.get(nic[0])
        return member, member.ports.get(nic[1]) if member is not None else None

    def nic_name(self, nic: NicId) -> str:
        """The NIC's name at its host: `eth0`, or its port's number where no name is known."""
        port = self.port_of(nic)[1]
        return port.name if port is not None else str(nic[1])

    def _switch_of(self, nic: NicId) -> str | None:
        """The declared switch of a NIC, if it belongs to a network of several switches."""
        port = self.port_of(nic)[1]
        if self.fat_tree is None or port is None:
            return None
        switch = self.config.nic(nic[0], port.name).switch
        return switch if switch in self.fat_tree.network_of else None

    def _declared_networks(self) -> dict[str, str]:
        """The declared name of each network of several switches, by the name that probes gave it.

        Probes go along one tree. When that tree breaks, they find parts of the network. Declared
        switches hold these parts together.
        """
        if self.fat_tree is None:
            return {}
        names: dict[str, str] = {}
        for member in self.members.values():
            for number in member.ports:
                nic = (member.name, number)
                learned, switch = self.wiring.network(nic), self._switch_of(nic)
                if learned is not None and switch is not None:
                    names[learned] = self.fat_tree.network_of[switch]
        return names

    def _host(self, member: Member, declared: Mapping[str, str]) -> Host:
        nics = []
        for port in sorted(member.ports.values(), key=lambda port: port.number):
            nic = (member.name, port.number)
            tx_alive, rx_alive = self.wiring.alive(nic)
            learned = self.wiring.network(nic)
            network = declared.get(learned, learned) if learned is not None else None
            nics.append(
                Nic(
                    host=member.name,
                    name=port.name,
                    port=port.number,
                    mac=port.mac,
                    rate_bps=self.config.nic(member.name, port.name).rate_bps
                    or port.speed_bps
                    or _DEFAULT_RATE_BPS,
                    up=port.up,
                    network=network,
                    tx_alive=tx_alive,
                    rx_alive=rx_alive,
                    switch=self._switch_of(nic),
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


class App(OSKenApp):
    """An app of os-ken with a thread, called `loop`, that does `_turn` again and again."""

    OFP_VERSIONS = [ofp.OFP_VERSION]  # noqa: RUF012 - os-ken's interface
    cluster: Cluster
    loop: str

    def start(self) -> None:
        super().start()
        guarded_loop(self.cluster, self.loop, self._turn)

    def _turn(self) -> None:
        raise NotImplementedError


def guarded_loop(cluster: Cluster, name: str, turn: Callable[[], None]) -> threading.Thread:
    """Run `turn` again and again in a thread until the cluster stops. `turn` must wait by itself.

    An exception is logged and counted, and the loop goes on. When 20 turns in a row fail, the
    process ends: a controller without one of its parts is worse than none, hosts go on forwarding,
    and systemd starts it again.
    """

    def body() -> None:
        failures = 0
        while not cluster.wake.stop.is_set():
            try:
                turn()
                failures = 0
            except Exception:
                failures += 1
                cluster.counters.add(f"{LOOP}{name}")
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
