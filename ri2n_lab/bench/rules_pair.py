# SPDX-License-Identifier: Apache-2.0
"""Pairs of hosts for `ri2n bench rules`, whose rules change while their programs run on.

Everything of a pair is on one CPU, and first in line there: its programs, and the Open vSwitches of
hosts that have a bridge. So a packet's work at both ends counts, and that of other programs of the
machine hardly does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ri2n_lab.bench import rules_text
from ri2n_lab.bench.parallel_lab import Program
from ri2n_lab.bench.priorities import renice
from ri2n_lab.bench.rules_marking import marking
from ri2n_lab.cluster import ovs, state
from ri2n_lab.cluster.namespaces import NETNS, add_namespaces, remove_namespaces
from ri2n_lab.cluster.run import CommandFailed, in_namespace, ip_batch, run
from ri2n_sdn.errors import NotAvailable

__all__ = ["OVERS", "OWNER_PROGRAMS", "Pairs", "owner_program", "sweep"]

OVERS = ("veth", "gigabit", "bridge")
"""What is between two hosts.

A veth pair alone; a veth pair with a rate of 1 Gbit/s, as the paper's NICs; or a veth pair and in
each host a bridge of Open vSwitch.
"""

OWNER_PROGRAMS = ("iptables-legacy-restore", "iptables-restore")
"""What loads the paper's rules; the first that is there. The second makes rules of nft."""

NAME = "ri2n-rules"
ROLES = ("ask", "serve")
SUBNET = "10.83.0.0/24"
ADDRESSES = {"ask": "10.83.0.1", "serve": "10.83.0.2"}
NIC, BRIDGE = "nic", "br0"
# The burst is that of 1 ms; the queue holds the frames of 10 ms.
GIGABIT = "tbf rate 1gbit burst 128kb latency 10ms"
NICE = -20
START_S, ANSWER_S = 120.0, 60.0
SYSCTLS = (
    # A connection that was idle for a slice of another method goes on as it was.
    "net.ipv4.tcp_slow_start_after_idle=0",
    # No packets but those of the measurement.
    "net.ipv6.conf.all.disable_ipv6=1",
)

Json = dict[str, Any]


@dataclass(frozen=True)
class _Load:
    """Rules that are loaded now: what takes them away again."""

    method: str
    rules: int


class Pairs:
    """Context manager: so many pairs of hosts over `over`, their programs ready; removed after."""

    def __init__(self, over: str, count: int) -> None:
        self.over, self.count = over, count
        self._device = BRIDGE if over == "bridge" else NIC
        self._stack = ExitStack()
        self._folder = Path()
        self._programs: list[dict[str, Program]] = []
        self._pids: list[list[int]] = []
        self._loads: list[_Load | None] = [None] * count
        self._owner = owner_program()

    def __enter__(self) -> Pairs:
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def load(self, pair: int, method: str, rules: int) -> float:
        """Let both hosts of a pair have a method's rules, after the ones before are gone.

        Returns how many seconds that took for one host, on average.
        """
        self.unload(pair)
        self._loads[pair] = _Load(method, rules)
        began_s = time.monotonic()
        for role in ROLES:
            where = self._name(pair, role)
            if method == "map":
                text = marking(rules, self._device, self._mac(where))
                run(in_namespace(where, ["nft", "-f", "-"]), stdin=text)
            elif method == "owner":
                self._owners(where, rules_text.owner_rules(rules))
                ip_batch(self._paths(role, rules, "add"), where)
        return (time.monotonic() - began_s) / len(ROLES)

    def unload(self, pair: int) -> None:
        """Take the rules of a pair away."""
        load = self._loads[pair]
        if load is None:
            return
        for role in ROLES:
            where = self._name(pair, role)
            if load.method == "map":
                # To add what is there already is no error, to delete what is not is one.
                tables = [f"{family} {rules_text.TABLE}" for family in ("inet", "netdev")]
                lines = [f"{verb} table {table}" for table in tables for verb in ("add", "delete")]
                run(in_namespace(where, ["nft", "-f", "-"]), stdin="\n".join(lines) + "\n")
            elif load.method == "owner":
                ip_batch(self._paths(role, load.rules, "del"), where)
                self._owners(where, rules_text.no_owner_rules())
        self._loads[pair] = None

    def forget(self, pair: int) -> None:
        """Take away what is there of rules that could not be loaded, as far as that goes."""
        with suppress(CommandFailed):
            self.unload(pair)
        self._loads[pair] = None

    def measure(self, pair: int, op: str, seconds: float) -> Json:
        """Do what rules_ends.py calls `op` for so long.

        The answer is the client's with `cpu_s`: CPU seconds of both ends and their bridges. It is
        None where a link has a rate: then the CPU is idle at times, and what a timer or an
        acknowledgement makes the kernel send meanwhile is in no process's time.
        """
        before_s = self._cpu_s(pair)
        client = self._programs[pair]["ask"]
        client.send(json.dumps({"op": op, "seconds": seconds}))
        found = client.answer(ANSWER_S + seconds)
        cpu_s = None if self.over == "gigabit" else self._cpu_s(pair) - before_s
        return {**found, "cpu_s": cpu_s}

    def popen(self, host: str, argv: Sequence[str], **kwargs: Any) -> subprocess.Popen[Any]:
        """Start a program in the namespace `host`, in a session of its own."""
        child = subprocess.Popen(in_namespace(host, argv), start_new_session=True, **kwargs)
        self._stack.callback(_end, child)
        return child

    # ---- building

    def _build(self) -> None:
        sweep()
        folder = tempfile.TemporaryDirectory(prefix=f"{NAME}.{os.getpid()}.")
        self._folder = Path(self._stack.enter_context(folder))
        names = [self._name(pair, role) for pair in range(self.count) for role in ROLES]
        self._stack.callback(remove_namespaces, names)
        with state.locked(""):
            add_namespaces(names)
        for pair in range(self.count):
            self._connect(pair)
        if self.over == "bridge":
            ovs.check_ovs()
            template = self._folder / "template.db"
            ovs.make_template(template)
            for name in names:
                self._bridge(name, template)
        for name in names:
            address = ADDRESSES[name.rpartition(".")[2]]
            ip_batch([f"addr add {address}/24 dev {self._device}"], name)
        for pair in range(self.count):
            self._start_programs(pair)

    def _connect(self, pair: int) -> None:
        client, server = (self._name(pair, role) for role in ROLES)
        ip_batch([f"link add {NIC} type veth peer name {NIC} netns {server}"], client)
        for name in (client, server):
            run(in_namespace(name, ["sysctl", "-qw", *SYSCTLS]))
            ip_batch(["link set lo up", f"link set {NIC} up"], name)
            if self.over == "gigabit":
                ip_batch([f"qdisc add dev {NIC} root {GIGABIT}"], name, "tc")

    def _bridge(self, name: str, template: Path) -> None:
        folder = self._ovs_folder(name)
        ovs.start(folder, name, template)
        vsctl = ["ovs-vsctl", f"--db={ovs.database(folder)}", "add-br", BRIDGE, "--"]
        vsctl += ["set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure", "--"]
        vsctl += ["add-port", BRIDGE, NIC, "--", "set", "interface", NIC, "ofport_request=1"]
        run(vsctl, timeout_s=START_S)
        ip_batch([f"link set {BRIDGE} up"], name)
        rows = rules_text.bridge_rows(1, self._mac(name))
        # By its socket: a bridge's name would be looked for elsewhere.
        ofctl = ["ovs-ofctl", "-O", "OpenFlow15", "replace-flows", f"unix:{folder}/{BRIDGE}.mgmt"]
        run([*ofctl, "-"], stdin="\n".join(rows) + "\n", env=ovs.environment(folder))

    def _ovs_folder(self, name: str) -> Path:
        """Short: the paths of sockets in it must be."""
        return self._folder / name.partition(f"{self.over}.")[2]

    def _mac(self, name: str) -> str:
        """The address of a host's device."""
        shown = run(["ip", "-n", name, "-json", "link", "show", self._device]).stdout
        return str(json.loads(shown)[0]["address"])

    def _start_programs(self, pair: int) -> None:
        programs: dict[str, Program] = {}
        pids = []
        for role in ("serve", "ask"):
            words = (role, ADDRESSES["serve"])
            program = Program(self, self._name(pair, role), "ri2n_lab.bench.rules_ends", *words)
            program.answer(START_S)
            programs[role] = program
            pids.append(program.pid)
        if self.over == "bridge":
            folders = [self._ovs_folder(self._name(pair, role)) for role in ROLES]
            pids += [int((each / "ovs-vswitchd.pid").read_text()) for each in folders]
        cpu = max(os.sched_getaffinity(0))
        for pid in pids:
            renice(pid, NICE)
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):  # a thread that ended meanwhile
                    os.sched_setaffinity(int(task.name), {cpu})
        self._programs.append(programs)
        self._pids.append(pids)

    def _name(self, pair: int, role: str) -> str:
        return f"{NAME}.{os.getpid()}.{self.over}.{pair}.{role}"

    # ---- rules and clocks

    def _owners(self, namespace: str, text: str) -> None:
        if self._owner is None:
            raise NotAvailable("iptables is missing: apt install iptables")
        run(in_namespace(namespace, [self._owner]), stdin=text)

    def _paths(self, role: str, rules: int, verb: str) -> list[str]:
        return rules_text.path_rules(rules, verb, self._device, SUBNET, ADDRESSES[role])

    def _cpu_s(self, pair: int) -> float:
        """CPU seconds of the pair's processes so far, by their own clocks.

        What the kernel does for a packet is in them: it runs in the process that sends.
        """
        # As clock_getcpuclockid(3) makes the number of a process's clock.
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self._pids[pair])


def _end(child: subprocess.Popen[Any]) -> None:
    """End a program and close its pipes."""
    child.kill()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    child.wait()


def owner_program() -> str | None:
    """What loads the paper's rules here; None when nothing does."""
    return next((name for name in OWNER_PROGRAMS if shutil.which(name)), None)


def sweep() -> None:
    """Remove what benches left that were killed.

    Namespaces and folders carry the id of their bench's process.
    """
    owned = re.compile(rf"{re.escape(NAME)}[.](\d+)[.].*")
    for folder in (NETNS, Path(tempfile.gettempdir())):
        for path in folder.glob(f"{NAME}.*"):
            found = owned.fullmatch(path.name)
            if found is None or Path(f"/proc/{found[1]}").exists():
                continue
            if folder == NETNS:
                remove_namespaces([path.name])
            else:
                shutil.rmtree(path, ignore_errors=True)
