# SPDX-License-Identifier: Apache-2.0
"""A host and a peer in network namespaces, and what of the host's traffic carries a job's class.

The host's bridge is real: `job-begin` marks packets in the kernel, and the peer sees the class in
each frame's source address, because no row of the bridge restores the host's own.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pytest

from ri2n_lab.cluster import ovs
from ri2n_lab.cluster.namespaces import NETNS, add_namespaces, remove_namespaces
from ri2n_lab.cluster.run import ip_batch, run
from tests.waiting import LONG_S, wait_until

__all__ = [
    "ADDRESSES",
    "BRIDGE",
    "HOST_MAC",
    "SCRIPTS",
    "Capture",
    "Frame",
    "MarkedHost",
    "classes",
    "fake_program",
    "host",
    "shared",
]

SCRIPTS = Path(__file__).resolve().parents[2] / "ovs-host-scripts"
BRIDGE = "br-ri2n"
HOST_MAC = "02:00:00:00:00:01"
ADDRESSES = {"-4": ("10.9.0.1", "10.9.0.2"), "-6": ("fd09::1", "fd09::2")}
"""The host's address and the peer's, by the option with which ping asks for the family."""

_numbers = itertools.count()
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_SO_TIMESTAMPNS = 35


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that the host sent.

    `number` is the class in its source address, None where the source is the host's own.
    """

    number: int | None
    source: str
    proto: str
    dscp: int
    sport: int
    dport: int
    flags: int
    size: int
    time_ns: int


class Capture:
    """All frames that pass a device in one direction, until the end of a `with`."""

    def __init__(self, namespace: str, device: str, outgoing: bool) -> None:
        self._socket = _packet_socket(namespace, device)
        self._outgoing = outgoing
        self.frames: list[Frame] = []

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def read(self) -> list[Frame]:
        """All IP frames until now."""
        while True:
            try:
                data, extra, _, address = self._socket.recvmsg(70000, 256)
            except BlockingIOError:
                return self.frames
            if (address[2] == socket.PACKET_OUTGOING) == self._outgoing:
                time_ns = next(
                    sec * 10**9 + nsec
                    for _, kind, value in extra
                    if kind == _SO_TIMESTAMPNS
                    for sec, nsec in [struct.unpack("@ll", value[:16])]
                )
                frame = _parse(data, time_ns)
                if frame is not None:
                    self.frames.append(frame)

    def wait(self, count: int, wanted: Callable[[Frame], bool]) -> list[Frame]:
        """The frames that are wanted, as soon as there are `count` of them."""
        found: list[Frame] = []

        def enough() -> bool:
            found[:] = [frame for frame in self.read() if wanted(frame)]
            return len(found) >= count

        wait_until(enough, lambda: f"{len(found)} of {count} frames among {self.frames[-9:]}")
        return found


class MarkedHost:
    """A host with a bridge and a peer behind its one NIC; removed at the end of a `with`."""

    def __init__(self) -> None:
        name = f"ri2n-mark-{os.getpid()}-{next(_numbers)}"
        self.host, self.peer = f"{name}-h", f"{name}-p"
        self._processes: list[subprocess.Popen[str]] = []
        self._temporary = tempfile.TemporaryDirectory(prefix="ri2n-mark-")
        self.folder = Path(self._temporary.name)
        self.run_dir = self.folder / "ri2n-jobs" / BRIDGE
        self.cgroup_root = "ri2n/" + str(self.folder).replace("/", "_")

    def __enter__(self) -> MarkedHost:
        try:
            self._up()
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._down()

    def _up(self) -> None:
        add_namespaces([self.host, self.peer])
        for namespace in (self.host, self.peer):
            ip_batch(["link set lo up"], namespace)
        nic = f"link add eth0 type veth peer name eth0 netns {self.peer}"
        ip_batch([nic, "link set eth0 up"], self.host)
        for namespace in (self.host, self.peer):
            # Nothing completes checksums on the way through Open vSwitch.
            run(self.inside(["ethtool", "-K", "eth0", "tx", "off", "gro", "off"], namespace))
        ip_batch(
            [
                "link set eth0 up",
                f"addr add {ADDRESSES['-4'][1]}/24 dev eth0",
                f"addr add {ADDRESSES['-6'][1]}/64 dev eth0 nodad",
            ],
            self.peer,
        )
        template = self.folder / "template.db"
        ovs.make_template(template)
        ovs.start(self.folder, self.host, template)
        bridge = ["set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
        bridge += ["protocols=OpenFlow15", f'other_config:hwaddr="{HOST_MAC}"']
        self.vsctl("add-br", BRIDGE, "--", *bridge, "other_config:dp-desc=A", "--", "add-port",
                   BRIDGE, "eth0")  # fmt: skip
        self.configure()

    def configure(self) -> None:
        """Give the bridge's device its addresses, and the bridge its rows."""
        ip_batch(
            [
                f"link set {BRIDGE} up",
                f"addr replace {ADDRESSES['-4'][0]}/24 dev {BRIDGE}",
                f"addr replace {ADDRESSES['-6'][0]}/64 dev {BRIDGE} nodad",
            ],
            self.host,
        )
        self.ofctl("add-flow", BRIDGE, "in_port=LOCAL,actions=output:eth0")
        self.ofctl("add-flow", BRIDGE, "in_port=eth0,actions=LOCAL")

    def _down(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        if self.run_dir.is_dir():
            self.script("job-end", "--all", check=False)
        remove_namespaces([self.host, self.peer])
        self._temporary.cleanup()

    def inside(self, argv: Sequence[str], namespace: str | None = None, uid: int = 0) -> list[str]:
        """A command in the host's namespace, or in another one, by a user.

        `ip netns exec` would hide the cgroups.
        """
        who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        return ["nsenter", f"--net={NETNS / (namespace or self.host)}", *who, *argv]

    def run(
        self, *argv: str, namespace: str | None = None, uid: int = 0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return run(self.inside(argv, namespace, uid), check=check, timeout_s=LONG_S)

    def python(self, code: str, *argv: str, namespace: str | None = None, uid: int = 0) -> str:
        """Run Python code to its end; what it printed."""
        return self.run(sys.executable, "-c", code, *argv, namespace=namespace, uid=uid).stdout

    def start(
        self, *argv: str, namespace: str | None = None, uid: int = 0
    ) -> subprocess.Popen[str]:
        """Start a command that has a pipe as input and as output; it is ended with the host."""
        process = subprocess.Popen(
            self.inside(argv, namespace, uid),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def start_python(
        self, code: str, *argv: str, namespace: str | None = None, uid: int = 0
    ) -> subprocess.Popen[str]:
        """Start Python code, and wait for the first line that it prints."""
        process = self.start(sys.executable, "-c", code, *argv, namespace=namespace, uid=uid)
        assert process.stdout is not None
        assert process.stdout.readline(), "the program has ended"
        return process

    def command(self, name: str, *args: str) -> list[str]:
        """One of the scripts with this host's database."""
        return self.inside([str(SCRIPTS / name), "--db", ovs.database(self.folder), *args])

    def script(self, name: str, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of the scripts."""
        return run(self.command(name, *args), check=check, timeout_s=LONG_S)

    def begin(self, job: str, uid: int, *args: str) -> str:
        """Begin a job; what the script printed."""
        argv = ("--id", job, "--user", str(uid), "--hosts", "A,B", *args)
        return self.script("job-begin", *argv).stdout

    def vsctl(self, *args: str) -> str:
        """The output of ovs-vsctl."""
        return run(["ovs-vsctl", f"--db={ovs.database(self.folder)}", *args]).stdout

    def ofctl(self, *args: str) -> str:
        """The output of ovs-ofctl."""
        argv = ["ovs-ofctl", "-O", "OpenFlow15", *args]
        return run(argv, env=ovs.environment(self.folder)).stdout

    def rows(self, table: int) -> list[tuple[int, bytes]]:
        """Priority and note of all rows of a table, in order of priorities."""
        found = []
        for line in self.ofctl("--no-stats", "dump-flows", BRIDGE, f"table={table}").splitlines():
            match = re.search(r"priority=(\d+),.* actions=note:([0-9a-f.]+)$", line)
            if match:
                note = bytes.fromhex(match[2].replace(".", " "))
                found.append((int(match[1]), note.rstrip(b"\0")))
        return sorted(found)

    def put_note(self, table: int, priority: int, match: str, note: str) -> None:
        """Add a row with a note, as the controller does."""
        row = f"table={table},priority={priority},in_port=LOCAL,{match}"
        self.ofctl("add-flow", BRIDGE, f"{row},actions=note:{note.encode().hex('.')}")

    def capture(self) -> Capture:
        """The frames of the host that come in at the peer."""
        return Capture(self.peer, "eth0", outgoing=False)

    def capture_device(self) -> Capture:
        """The frames that leave by the bridge's device, after its queue."""
        return Capture(self.host, BRIDGE, outgoing=True)

    def stop_switch(self) -> None:
        """End ovs-vswitchd by SIGKILL. The bridge's device goes with it."""
        pid = int((self.folder / "ovs-vswitchd.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        # In a container nobody may wait for it, and its entry stays. A dead process has no program.
        wait_until(lambda: not Path(f"/proc/{pid}/exe").exists(), "ovs-vswitchd does not end")

    def start_switch(self) -> None:
        """Start ovs-vswitchd again."""
        argv = ["ovs-vswitchd", ovs.database(self.folder), "--pidfile", "--detach", "--log-file"]
        run(self.inside([*argv, "-vconsole:off"]), env=ovs.environment(self.folder))

    def files(self) -> list[str]:
        """The names of the files about jobs."""
        paths = self.run_dir.rglob("*")
        return sorted(str(p.relative_to(self.run_dir)) for p in paths if p.is_file())

    def left(self) -> dict[str, object]:
        """What is there of jobs: files, rules, rows, queues and cgroups."""
        tree = next(
            Path(line.split()[1])
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if line.split()[2] == "cgroup2"
        )
        queue = self.run("tc", "qdisc", "show", "dev", BRIDGE).stdout
        return {
            "files": self.files(),
            "rules": self.run("nft", "-s", "list", "ruleset").stdout,
            "rows": self.rows(248),
            "queue": re.sub(r" direct_packets_stat \d+", "", queue),  # the host's own packets
            "cgroups": sorted(str(path) for path in (tree / self.cgroup_root).rglob("*_*")),
        }


def fake_program(folder: Path, name: str, script: str) -> None:
    """Write a program of that name; REAL in the script stands for the real program."""
    real = shutil.which(name)
    assert real is not None
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script.replace('REAL', real)}\n")
    path.chmod(0o755)


def _packet_socket(namespace: str, device: str) -> socket.socket:
    """A packet socket in a namespace. Only the thread that makes it enters the namespace."""
    made: list[socket.socket] = []

    def enter() -> None:
        with (NETNS / namespace).open() as handle:
            if _LIBC.setns(handle.fileno(), _CLONE_NEWNET):
                return
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        listener.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        listener.setblocking(False)
        listener.bind((device, 3))  # ETH_P_ALL
        made.append(listener)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert made, f"cannot enter {namespace}"
    return made[0]


def _parse(data: bytes, time_ns: int) -> Frame | None:
    """An IP frame; None for others, such as ARP and neighbour discovery."""
    source, kind = data[6:12], int.from_bytes(data[12:14], "big")
    if kind == 0x0800:
        header = 4 * (data[14] & 15)
        dscp, proto, payload = data[15] >> 2, data[23], data[14 + header :]
    elif kind == 0x86DD:
        dscp = (int.from_bytes(data[14:16], "big") >> 6) & 63
        proto, payload = data[20], data[54:]
    else:
        return None
    if proto in (1, 58):
        if payload[0] not in (0, 8, 3, 128, 129, 1):
            return None
        name = {0: "reply", 129: "reply", 8: "ping", 128: "ping"}.get(payload[0], "error")
        ports = (0, 0)
    elif proto in (6, 17):
        name = "tcp" if proto == 6 else "udp"
        ports = struct.unpack("!HH", payload[:4])
    else:
        return None
    number = source[5] if source[:5] == b"\x02\x52\x4a\0\0" else None
    flags = payload[13] if name == "tcp" else 0
    return Frame(number, source.hex(":"), name, dscp, *ports, flags, len(data), time_ns)


def classes(frames: Iterable[Frame]) -> set[int | None]:
    """The classes of some frames."""
    return {frame.number for frame in frames}


@pytest.fixture(scope="module")
def shared() -> Iterator[MarkedHost]:
    if os.geteuid() != 0:
        pytest.skip("needs root: sudo ./dev test")
    for name in ("nft", "setpriv", "ethtool"):
        if shutil.which(name) is None:
            pytest.skip(f"needs {name}")
    with MarkedHost() as made:
        for family, (_, peer) in ADDRESSES.items():
            made.run("ping", family, "-c1", "-w60", peer)
        yield made


@pytest.fixture
def host(shared: MarkedHost) -> Iterator[MarkedHost]:
    """A host without jobs. Nothing of a test's jobs stays."""
    before = shared.left()
    yield shared
    shared.script("job-end", "--all")
    assert shared.left() == before
