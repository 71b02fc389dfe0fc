# SPDX-License-Identifier: Apache-2.0
"""Two users' jobs on the same hosts: paths of their own, and walls that nobody passes.

Hosts mark with `job-begin`, traffic is real, and captures on the NICs show who sent what where.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import Lab, ovs
from ri2n_sdn.client import call
from ri2n_sdn.shipped import host_script
from tests.topology_text import parse_topology

from .conftest import PATIENCE_S, WAYS, await_true, controlled, on_way, replace_controller

ALICE, BOB = 20001, 20002
RATE = 50_000_000
THREE = {
    "name": "three-nets",
    "description": "three hosts on three switches",
    "switches": {"s0": {}, "s1": {}, "s2": {}},
    "hosts": {
        name: {
            "nics": [
                {"name": f"eth{number}", "switch": f"s{number}", "rate_bps": RATE}
                for number in range(3)
            ]
        }
        for name in "ABC"
    },
}
THREE_NETWORKS = json.dumps(THREE)
NICS = ("eth0", "eth1", "eth2")

# Count the packets of each TCP or UDP port on a NIC, in both directions, until the input ends.
COUNT = """
import socket, struct, sys, threading, json
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind((sys.argv[1], 0))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24); s.settimeout(0.2)
ports = {}
ended = threading.Event()
def run():
    while True:
        if ended.is_set(): s.setblocking(False)  # what has arrived by now is read to its end
        try: frame = s.recv(100)
        except BlockingIOError: return
        except TimeoutError: continue
        kind = frame[12:14]
        if kind == b"\\x08\\x00": proto, at = frame[23], 14 + 4 * (frame[14] & 15)
        elif kind == b"\\x86\\xdd": proto, at = frame[20], 54
        else: continue
        if proto in (6, 17):
            for port in struct.unpack_from("!HH", frame, at): ports[port] = ports.get(port, 0) + 1
thread = threading.Thread(target=run); thread.start()
print("ready", flush=True)
sys.stdin.read(); ended.set(); thread.join(); print(json.dumps(ports))
"""
# Receive connections on a port, and answer with the number of bytes.
SERVE = """
import socket, sys
s = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    c, _ = s.accept()
    with c: c.sendall(str(len(c.makefile("rb").read())).encode())
"""
SEND = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))
s.sendall(bytes(int(sys.argv[4]))); s.shutdown(socket.SHUT_WR)
assert s.makefile().read() == sys.argv[4]
"""
# Datagrams that are answered: prints how many came back in the time given.
ECHO_UDP = """
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0); s.bind(("::", 5900))
print("ready", flush=True)
while True:
    data, who = s.recvfrom(2000); print(data.decode(), flush=True); s.sendto(data, who)
"""
# Everything that a host outside of the job may try, under a tag that the victim would print.
ATTACK = """
import json, os, socket, struct, sys
nic, own, victim4, victim6, member4, macs = sys.argv[1:7]
macs = json.loads(macs)
def datagram(source, target, text):
    data = text.encode(); udp = struct.pack("!HHHH", 7, 5900, 8 + len(data), 0) + data
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
    head += socket.inet_aton(source) + socket.inet_aton(target)
    total = sum(struct.unpack("!10H", head)); total = (total & 0xffff) + (total >> 16)
    return head[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xffff) + head[12:] + udp
for family, address in ((socket.AF_INET, victim4), (socket.AF_INET6, victim6)):
    for mark, tos in ((0, 0), (0x01000000, 40), (0x3f000000, 184)):
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        if family == socket.AF_INET: s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        else: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        s.sendto(f"plain {mark} {tos}".encode(), (address, 5900))
raw = {}
for device in [nic, *macs["nics"]]:
    raw[device] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); raw[device].bind((device, 0))
for device, s in raw.items():
    for source in macs["sources"]:
        for target in macs["targets"]:
            for address in (own, member4):
                frame = bytes.fromhex((target + source).replace(":", "")) + b"\\x08\\x00"
                s.send(frame + datagram(address, victim4, f"raw {device} {source} {target}"))
print("sent")
"""


@pytest.fixture(scope="module", params=WAYS)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with controlled(parse_topology(THREE_NETWORKS), fast=on_way(request)) as made:
        yield made


def script(lab: Lab, host: str, name: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run job-begin, job-end or job-ls on a host, and return what became of it."""
    database = ovs.database(lab.run_dir / host)
    return lab.exec(
        host, [str(host_script(name)), *args, "--db", database], check=False, timeout_s=PATIENCE_S
    )


def begin(lab: Lab, name: str, user: int, hosts: str, *options: str) -> None:
    """Begin a job on all its hosts, and wait until its paths are installed."""
    for host in hosts:
        done = script(
            lab,
            host,
            "job-begin",
            *("--id", name, "--user", str(user), "--hosts", ",".join(hosts), *options),
        )
        assert done.returncode == 0, done.stderr
    await_true(
        lambda: states(lab).get(name) == "installed", lambda: f"not installed: {states(lab)}"
    )


def end_all(lab: Lab) -> None:
    """End all jobs of all hosts, and wait until the controller knows of none."""
    for host in lab.topology.hosts:
        done = script(lab, host, "job-end", "--all")
        assert done.returncode == 0, done.stderr
    await_true(lambda: not states(lab), lambda: f"jobs stay: {states(lab)}")


def states(lab: Lab) -> dict[str, str]:
    """The state of each job, as the controller sees it."""
    jobs: list[dict[str, Any]] = call(lab.controller_socket, "job_list")["jobs"]
    return {job["id"]: job["state"] for job in jobs}


@pytest.fixture
def fresh(lab: Lab) -> Iterator[Lab]:
    """The lab; afterwards no job is there."""
    yield lab
    end_all(lab)


@contextmanager
def serving(lab: Lab, host: str, code: str, *args: str, user: int = 0) -> Iterator[Any]:
    """A Python program on a host that has said that it is ready, as a user."""
    argv = [sys.executable, "-c", code, *args]
    if user:
        argv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *argv]
    process = lab.popen(host, argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def captured(lab: Lab, hosts: str) -> Iterator[dict[tuple[str, str], dict[int, int]]]:
    """The packets by port on every NIC of some hosts; filled when the block ends."""
    seen: dict[tuple[str, str], dict[int, int]] = {}
    running = {}
    for host in hosts:
        for nic in NICS:
            process = lab.popen(
                host,
                [sys.executable, "-c", COUNT, nic],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            running[host, nic] = process
    try:
        yield seen
    finally:
        for place, process in running.items():
            said, _ = process.communicate(timeout=PATIENCE_S)
            seen[place] = {int(port): count for port, count in json.loads(said).items()}


def send(lab: Lab, source: str, address: str, port: int, user: int, count: int = 2_000_000) -> None:
    """Send bytes by TCP as a user, and check that all of them arrived."""
    argv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", sys.executable]
    argv += ["-c", SEND, address, str(port), str(PATIENCE_S), str(count)]
    lab.exec(source, argv, timeout_s=PATIENCE_S)


def nics_with(seen: dict[tuple[str, str], dict[int, int]], host: str, port: int) -> set[str]:
    """The NICs of a host that carried packets of a port."""
    return {nic for (name, nic), ports in seen.items() if name == host and ports.get(port)}


def test_each_of_two_exclusive_jobs_has_links_that_carry_nothing_of_the_other(fresh: Lab) -> None:
    lab = fresh
    begin(lab, "one", ALICE, "AB", "--policy", "exclusive")
    begin(lab, "two", BOB, "AB", "--policy", "exclusive")
    with (
        serving(lab, "B", SERVE, "6001", user=ALICE),
        serving(lab, "B", SERVE, "6002", user=BOB),
        serving(lab, "B", SERVE, "6003"),
        captured(lab, "AB") as seen,
    ):
        for address in (lab.address("B"), lab.address6("B")):
            for port, user in ((6001, ALICE), (6002, BOB), (6003, 0)):
                for _ in range(4):
                    send(lab, "A", address, port, user, 300_000)
    used = {port: nics_with(seen, "A", port) for port in (6001, 6002, 6003)}
    assert all(len(nics) == 1 for nics in used.values()), (used, seen)
    assert len(set.union(*used.values())) == 3, used
    assert used == {port: nics_with(seen, "B", port) for port in used}, (used, seen)


def test_a_socket_closed_with_data_queued_and_a_child_stay_on_the_jobs_path(fresh: Lab) -> None:
    """The paper's owner rules lost 31 of 36 packets of such a socket."""
    lab = fresh
    begin(lab, "one", ALICE, "AB", "--policy", "exclusive")
    closes = (
        "import os, socket, sys\n"
        "if os.fork(): os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "os.setsid()\n"
        "s = socket.create_connection((sys.argv[1], 6001))\n"
        "s.sendall(bytes(200_000)); s.close(); os._exit(0)\n"
    )
    counts = (
        "import socket\n"
        's = socket.create_server(("::", 6001), family=socket.AF_INET6, dualstack_ipv6=True)\n'
        'print("ready", flush=True)\n'
        "while True:\n"
        "    c, _ = s.accept(); print(len(c.makefile('rb').read()), flush=True)\n"
    )
    as_alice = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups"]
    with serving(lab, "B", counts, user=ALICE) as server, captured(lab, "AB") as seen:
        for address in (lab.address("B"), lab.address6("B")):
            lab.exec("A", [*as_alice, sys.executable, "-c", closes, address])
            assert server.stdout.readline() == "200000\n"
    assert len(nics_with(seen, "A", 6001)) == 1, seen
    assert nics_with(seen, "A", 6001) == nics_with(seen, "B", 6001)


def test_a_job_that_begins_again_at_once_has_its_answer_before_an_audit(fresh: Lab) -> None:
    """Each job-begin deletes the answer to the job before, which is the same as its own."""
    job = ("--id", "again", "--user", str(ALICE), "--hosts", "A", "--wait", "5")
    for _ in range(20):
        done = script(fresh, "A", "job-begin", *job)
        assert done.returncode == 0, done.stderr
        done = script(fresh, "A", "job-end", "--id", "again")
        assert done.returncode == 0, done.stderr


def mac(lab: Lab, host: str, device: str) -> str:
    """The MAC address of a host's device."""
    return lab.exec(host, ["cat", f"/sys/class/net/{device}/address"]).stdout.strip()


def test_nothing_passes_the_walls_of_an_isolated_job(fresh: Lab) -> None:
    lab = fresh
    begin(lab, "closed", ALICE, "AB", "--policy", "isolated")
    begin(lab, "other", BOB, "C", "--policy", "isolated")
    with serving(lab, "A", ECHO_UDP) as victim, serving(lab, "A", SERVE, "6001"):
        send(lab, "B", lab.address("A"), 6001, ALICE)
        send(lab, "B", lab.address6("A"), 6001, ALICE)
        for address in (lab.address("A"), lab.address6("A")):
            argv = [sys.executable, "-c", SEND, address, "6001", "3.0", "1"]
            assert lab.exec("C", argv, check=False).returncode, "C reaches A"
        known = {
            "nics": list(NICS),
            "sources": [mac(lab, "B", "br-ri2n"), *(mac(lab, "B", nic) for nic in NICS)],
            "targets": [mac(lab, "A", "br-ri2n"), *(mac(lab, "A", nic) for nic in NICS)],
        }
        addresses = [lab.address("C"), lab.address("A"), lab.address6("A"), lab.address("B")]
        argv = [sys.executable, "-c", ATTACK, "br-ri2n", *addresses, json.dumps(known)]
        assert "sent" in lab.exec("C", argv).stdout
        # The job's own datagram comes last, so nothing that was sent before it is under way.
        asks = (
            "import socket, sys\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)\n"
            "for _ in range(60):\n"
            "    s.sendto(b'from B', (sys.argv[1], 5900))\n"
            "    try: s.recv(100); break\n"
            "    except TimeoutError: pass\n"
            "else: sys.exit('no answer')\n"
        )
        lab.exec("B", [sys.executable, "-c", asks, lab.address("A")])
        assert victim.stdout.readline() == "from B\n"
    # Both ways: what A sends does not reach C.
    with serving(lab, "C", SERVE, "6001"):
        argv = [sys.executable, "-c", SEND, lab.address("C"), "6001", "3.0", "1"]
        assert lab.exec("A", argv, check=False).returncode, "A reaches C"
    end_all(lab)
    with serving(lab, "A", SERVE, "6001"):
        send(lab, "C", lab.address("A"), 6001, 0)


def installed(lab: Lab) -> dict[str, set[int]]:
    """The classes for which each host's bridge has rows of its own."""
    result = {}
    for host in lab.topology.hosts:
        rows = lab.ofctl(host, "--no-stats", "dump-flows", "br-ri2n", "table=10")
        result[host] = {
            int(line.partition("reg6=")[2].split(",")[0], 16)
            for line in rows.splitlines()
            if "reg6=" in line
        }
    return result


def declared(lab: Lab) -> dict[str, set[int]]:
    """The classes of the jobs that each host declares."""
    result = {}
    for host in lab.topology.hosts:
        rows = lab.ofctl(host, "--no-stats", "dump-flows", "br-ri2n", "table=248")
        result[host] = {
            int(line.partition("reg6=")[2].split(",")[0], 16)
            for line in rows.splitlines()
            if "reg6=" in line
        }
    return result


def killed(process: subprocess.Popen[Any]) -> None:
    """Kill a script and everything that it started, in the middle of its work."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("victim", ["controller", "store", "script", "switch"])
def test_after_a_kill_rules_are_those_of_the_jobs_that_there_are(fresh: Lab, victim: str) -> None:
    """In the middle of beginning and of ending. Afterwards no rule of an ended job remains."""
    lab = fresh
    begin(lab, "kept", ALICE, "AB", "--policy", "exclusive")
    argv = [str(host_script("job-begin")), "--id", "new", "--user", str(BOB), "--hosts", "A,B"]
    argv += ["--policy", "exclusive", "--db", ovs.database(lab.run_dir / "A")]
    running = lab.popen("A", argv, start_new_session=True)
    strike(lab, victim, running)
    end_b = [str(host_script("job-end")), "--id", "kept", "--db", ovs.database(lab.run_dir / "B")]
    running = lab.popen("B", end_b, start_new_session=True)
    strike(lab, victim, running)
    # The job managers try again.
    for host in "AB":
        done = script(lab, host, "job-end", "--id", "kept", "--if-known")
        assert done.returncode == 0, done.stderr
        done = script(
            lab,
            host,
            "job-begin",
            *("--id", "new", "--user", str(BOB), "--hosts", "A,B", "--policy", "exclusive"),
        )
        assert done.returncode == 0, done.stderr
    lab.wait_ready()
    await_true(lambda: states(lab) == {"new": "installed"}, lambda: str(states(lab)))
    await_true(
        lambda: installed(lab) == declared(lab),
        lambda: f"installed {installed(lab)}, declared {declared(lab)}",
    )
    history = call(lab.controller_socket, "job_history")["jobs"]
    assert any(job["id"] == "kept" for job in history)


def strike(lab: Lab, victim: str, running: subprocess.Popen[Any]) -> None:
    """Kill something while a script runs, and start it again as its unit does."""
    if victim == "script":
        # A file says that it has begun its work and not finished it.
        folders = [lab.run_dir / host / "ri2n-jobs" / "br-ri2n" for host in "AB"]
        await_true(
            lambda: (
                running.poll() is not None
                or any([*folder.glob("new/*"), *folder.glob("gone/*")] for folder in folders)
            ),
            "the script does not begin its work",
        )
        killed(running)
        return
    if victim == "controller":
        replace_controller(lab)
    elif victim == "store":
        pid = store_pid(lab)
        os.kill(pid, signal.SIGKILL)
    else:
        lab.kill_switch("A")
        script(lab, "A", "job-begin", "--repair")
    running.wait(timeout=PATIENCE_S)


def store_pid(lab: Lab) -> int:
    """The process of the controller's database server; when one dies, another one is started."""
    controller = call(lab.controller_socket, "status")["pid"]
    found: list[int] = []

    def is_there() -> bool:
        ended = suppress(FileNotFoundError, ProcessLookupError)  # a thread or a child
        pids: list[int] = []
        for path in Path(f"/proc/{controller}/task").glob("*/children"):
            with ended:
                pids += map(int, path.read_text().split())
        for pid in pids:
            with ended:
                if "ovsdb-server" in Path(f"/proc/{pid}/cmdline").read_text():
                    found.append(pid)
        return bool(found)

    await_true(is_there, "the controller has no database server")
    return found[0]
