# SPDX-License-Identifier: Apache-2.0
"""Which packets of a host carry the class of a job, and which do not."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.waiting import wait_until

from .marked_host import (
    ADDRESSES,
    BRIDGE,
    HOST_MAC,
    Capture,
    Frame,
    MarkedHost,
    classes,
    host,
    shared,
)

__all__ = ["host", "shared"]

USER, OTHER = 20001, 20002
FAMILIES = list(ADDRESSES)
FIN, SYN, RST = 1, 2, 4

FAMILY = """
    import contextlib, os, socket, struct, sys, time
    address = sys.argv[1]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
"""


def program(code: str) -> str:
    """Code that has the address in its first argument as `address`, and its `family`."""
    return textwrap.dedent(FAMILY) + textwrap.dedent(code)


UDP = program("""
    sender = socket.socket(family, socket.SOCK_DGRAM)
    for number in range(5):
        sender.sendto(b"x", (address, 9))
""")
TCP = program("""
    sender = socket.create_connection((address, int(sys.argv[2])))
    sender.sendall(b"x" * 50000)
    sender.shutdown(socket.SHUT_WR)
    assert sender.recv(1) == b""
""")
# All that is sent is queued when the program ends: the peer reads when it is told to.
QUEUED = program("""
    if sys.argv[3:]:
        open(sys.argv[3] + "/cgroup.procs", "w").write("0")
    sender = socket.create_connection((address, int(sys.argv[2])))
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    sender.setblocking(False)
    assert sender.send(b"x" * 400000) == 400000
""")
SERVER = program("""
    server = socket.create_server((address, 0), family=family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        if sys.argv[2:]:
            sys.stdin.readline()
        count = 0
        with contextlib.suppress(ConnectionError), connection:
            while data := connection.recv(65536):
                count += len(data)
        print(count, flush=True)
""")

# 2.5 s of as much as goes. TCP hands over super-packets, up to 64 KB at once.
FLOODS = {
    "udp": """
        sender = socket.socket(family, socket.SOCK_DGRAM)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            sender.sendto(b"x" * 1000, (address, int(sys.argv[2])))
    """,
    "tcp": """
        sender = socket.socket(family, socket.SOCK_STREAM)
        sender.connect((address, int(sys.argv[2])))
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            sender.sendall(b"x" * 65536)
    """,
}

# Takes all that comes, as fast as it comes.
SINK = program("""
    server = socket.create_server((address, 0), family=family)
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 20):
            pass
""")


def serve(
    host: MarkedHost, address: str, *argv: str, namespace: str | None = None, uid: int = 0
) -> tuple[subprocess.Popen[str], str]:
    """Start SERVER; the process and its port."""
    process = host.start(sys.executable, "-c", SERVER, address, *argv, namespace=namespace, uid=uid)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def until_last(capture: Capture, port: str) -> list[Frame]:
    """The frames to that port, once the peer's FIN is acknowledged.

    Nobody owns that last packet.
    """
    frames: list[Frame] = []

    def all_seen() -> bool:
        frames[:] = [frame for frame in capture.read() if frame.dport == int(port)]
        ends = [place for place, frame in enumerate(frames) if frame.flags & FIN]
        return bool(ends) and ends[-1] < len(frames) - 1

    wait_until(all_seen, lambda: f"no last acknowledgement: {frames[-5:]}")
    return frames


@pytest.mark.parametrize("family", FAMILIES)
def test_packets_of_the_user_have_the_class_and_others_have_none(
    host: MarkedHost, family: str
) -> None:
    own, peer = ADDRESSES[family]
    host.begin("one", 30000)
    host.begin("two", USER)
    _, port = serve(host, peer, namespace=host.peer)
    _, own_port = serve(host, own, uid=USER)
    for uid, number in ((USER, 2), (OTHER, None), (30000, 1)):
        with host.capture() as capture:
            host.run("ping", family, "-c2", "-i0.2", peer, uid=uid)
            host.python(UDP, peer, uid=uid)
            host.python(TCP, peer, port, uid=uid)
            # `sshd` starts a user's session like this: as root, which becomes the user.
            become = f"setpriv --reuid={uid} --regid={uid} --clear-groups"
            host.run("setsid", "-w", "sh", "-c", f"{become} ping {family} -c2 -i0.2 {peer}; true")
            capture.wait(4, lambda frame: frame.proto == "ping")
            capture.wait(5, lambda frame: frame.proto == "udp")
            frames = capture.wait(1, lambda frame: bool(frame.proto == "tcp" and frame.flags & FIN))
            frames = [frame for frame in capture.frames if frame.proto in ("tcp", "udp", "ping")]
            assert classes(frames) == {number}
            assert {frame.source for frame in frames if number is None} <= {HOST_MAC}
    with host.capture() as capture:  # the user's server, down to its first answer
        host.python(TCP, own, own_port, namespace=host.peer)
        frames = capture.wait(1, lambda frame: bool(frame.proto == "tcp" and frame.flags & FIN))
        frames = [frame for frame in capture.frames if frame.sport == int(own_port)]
        assert classes(frames) == {2} and any(frame.flags & SYN for frame in frames)


@pytest.mark.parametrize("by", ["uid", "cgroup"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_socket_that_is_closed_with_data_queued_keeps_its_class(
    host: MarkedHost, family: str, by: str
) -> None:
    _, peer = ADDRESSES[family]
    cgroup = []
    if by == "cgroup":
        cgroup = [host.begin("job", USER, "--cgroup").strip()]
    else:
        host.begin("job", USER)
    server, port = serve(host, peer, "when told", namespace=host.peer)
    assert server.stdin is not None and server.stdout is not None
    with host.capture() as capture:
        host.python(QUEUED, peer, port, *cgroup, uid=0 if cgroup else USER)
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.stdout.readline() == "400000\n"
        frames = until_last(capture, port)
        assert len(frames) > 36 and classes(frames) == {1}


@pytest.mark.parametrize("family", FAMILIES)
def test_another_user_of_the_same_port_does_not_inherit_a_class(
    host: MarkedHost, family: str
) -> None:
    """Not for packets without an owner either: the last acknowledgement after a close."""
    _, peer = ADDRESSES[family]
    host.begin("job", USER)
    _, port = serve(host, peer, namespace=host.peer)
    code = program("""
        sender = socket.socket(family)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sender.bind(("", 40404))
        sender.connect((address, int(sys.argv[2])))
        if sys.argv[3:]:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    """)
    with host.capture() as capture:
        host.python(code, peer, port, uid=USER)
        frames = capture.wait(1, lambda frame: bool(frame.sport == 40404 and frame.flags & RST))
        assert classes(frames) == {1}
    with host.capture() as capture:
        host.python(code, peer, port, "close in order", uid=OTHER)
        assert classes(until_last(capture, port)) == {None}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernels_own_answers(host: MarkedHost, family: str) -> None:
    """Only an answer within a connection of a job follows the job."""
    own, _ = ADDRESSES[family]
    host.begin("job", USER)
    refused = program("""
        try:
            socket.create_connection((address, 4))
        except ConnectionRefusedError:
            pass
    """)
    with host.capture() as capture:
        host.run("ping", family, "-c1", "-w60", own, namespace=host.peer)
        host.python(refused, own, namespace=host.peer)
        host.python(UDP, own, namespace=host.peer)
        assert classes(capture.wait(1, lambda frame: frame.proto == "reply")) == {None}
        assert classes(capture.wait(1, lambda frame: frame.sport == 4)) == {None}
        assert classes(capture.wait(1, lambda frame: frame.proto == "error")) == {None}
    # The user's program has ended without reading: the kernel answers what comes by RST.
    deaf = program("""
        server = socket.create_server((address, 0), family=family)
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
        print("accepted", flush=True)
        sys.stdin.readline()
    """)
    server = host.start(sys.executable, "-c", deaf, own, uid=USER)
    assert server.stdout is not None and server.stdin is not None
    port = server.stdout.readline().strip()
    talker = host.start_python(
        program("""
        sender = socket.create_connection((address, int(sys.argv[2])))
        print("connected", flush=True)
        sys.stdin.readline()
        sender.send(b"x")
        sys.stdin.readline()
        """),
        own,
        port,
        namespace=host.peer,
    )
    assert talker.stdin is not None and server.stdout.readline() == "accepted\n"
    with host.capture() as capture:
        server.kill()
        server.wait()
        capture.wait(1, lambda frame: bool(frame.flags & FIN))
        talker.stdin.write("\n")
        talker.stdin.flush()
        frames = capture.wait(1, lambda frame: bool(frame.flags & RST))
        assert classes(frames) == {1}


def test_nobody_else_can_take_a_class(host: MarkedHost) -> None:
    """Marks, DSCP, priorities and source addresses that a program sets itself."""
    _, peer = ADDRESSES["-4"]
    host.begin("job", USER, "--max-rate", "100M")
    forged = UDP.replace(
        "for number",
        "sender.setsockopt(socket.SOL_SOCKET, 36, 0x01000007)\n"
        "sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 4 << 2)\n"
        "for number",
    )
    packet = """
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sender.setsockopt(socket.SOL_SOCKET, 36, 0x01000000)
        sender.bind((sys.argv[2], 0x0800))
        source = bytes.fromhex(sys.argv[3].replace(":", ""))
        udp = struct.pack("!HHHH", 7, int(sys.argv[4]), 9, 0) + b"x"
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 29, 0, 0, 64, 17, 0,
                         socket.inet_aton("10.9.0.1"), socket.inet_aton(address))
        total = sum(struct.unpack("!10H", ip))
        total = (total & 0xFFFF) + (total >> 16)
        ip = ip[:10] + struct.pack("!H", ~total & 0xFFFF) + ip[12:]
        try:
            sender.send(b"\\xff" * 6 + source + b"\\x08\\0" + ip + udp)
        except OSError:
            print("refused")
    """
    with host.capture() as capture:
        host.python(forged, peer)
        # With its own address a packet socket has no class; with that of a class, nothing leaves.
        assert "refused" in host.python(program(packet), peer, BRIDGE, "02:52:4a:00:00:01", "1001")
        assert host.python(program(packet), peer, BRIDGE, HOST_MAC, "1002") == ""
        frames = capture.wait(5, lambda frame: frame.dport == 9)
        assert classes(frames) == {None} and {frame.dscp for frame in frames} == {4}
        assert classes(capture.wait(1, lambda frame: frame.dport == 1002)) == {None}
        assert not [frame for frame in capture.frames if frame.dport == 1001]


def test_the_packets_own_dscp_and_mark_stay(host: MarkedHost) -> None:
    _, peer = ADDRESSES["-4"]
    host.begin("job", USER)
    code = UDP.replace(
        "for number", "sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 46 << 2)\nfor number"
    )
    with host.capture() as capture:
        host.python(code, peer, uid=USER)
        frames = capture.wait(5, lambda frame: frame.dport == 9)
        assert classes(frames) == {1} and {frame.dscp for frame in frames} == {46}


def test_two_jobs_of_one_user_stay_apart_by_cgroups(host: MarkedHost) -> None:
    _, peer = ADDRESSES["-6"]
    first = host.begin("first", USER, "--cgroup").strip()
    second = host.begin("second", USER, "--cgroup").strip()
    host.begin("rest", USER)
    in_cgroup = 'echo 0 >"$1/cgroup.procs"; exec setpriv --reuid=20001 --clear-groups ping -c2 "$2"'
    for cgroup, number in ((first, 1), (second, 2)):
        with host.capture() as capture:
            host.run("bash", "-c", in_cgroup, "bash", cgroup, peer)
            assert classes(capture.wait(2, lambda frame: frame.proto == "ping")) == {number}
    with host.capture() as capture:
        host.run("ping", "-c1", peer, uid=USER)
        assert classes(capture.wait(1, lambda frame: frame.proto == "ping")) == {3}


def test_a_cgroup_that_was_made_again_is_matched_again(host: MarkedHost) -> None:
    """A rule is for one cgroup, not for the next one of its name."""
    _, peer = ADDRESSES["-4"]
    cgroup = Path(host.begin("job", USER, "--cgroup").strip())
    for folder in (cgroup, cgroup.parent):
        folder.rmdir()
    host.script("job-begin", "--repair")
    with host.capture() as capture:
        in_cgroup = 'echo 0 >"$1/cgroup.procs"; exec ping -c1 "$2"'
        host.run("bash", "-c", in_cgroup, "bash", str(cgroup), peer)
        assert classes(capture.wait(1, lambda frame: frame.proto == "ping")) == {1}


def test_a_process_that_outlives_its_job_has_no_class_and_gets_none(host: MarkedHost) -> None:
    _, peer = ADDRESSES["-4"]
    cgroup = host.begin("job", USER, "--cgroup").strip()
    talker = program("""
        open(sys.argv[2] + "/cgroup.procs", "w").write("0")
        print("in", flush=True)
        sender = socket.socket(family, socket.SOCK_DGRAM)
        while sys.stdin.readline():
            sender.sendto(b"x", (address, 9))
    """)
    process = host.start_python(talker, peer, cgroup)
    assert process.stdin is not None
    with host.capture() as capture:
        for count, number in ((1, 1), (2, None), (3, None)):
            process.stdin.write("\n")
            process.stdin.flush()
            frames = capture.wait(count, lambda frame: frame.dport == 9)
            assert frames[-1].number == number
            if count == 1:
                host.script("job-end", "--id", "job")
            else:  # the next job of the class
                host.begin("next", USER, "--cgroup")
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_after_the_job_no_packet_has_a_class(host: MarkedHost) -> None:
    _, peer = ADDRESSES["-4"]
    host.begin("job", USER)
    host.begin("stays", OTHER)
    host.script("job-end", "--id", "job")
    with host.capture() as capture:
        host.python(UDP, peer, uid=USER)
        assert classes(capture.wait(5, lambda frame: frame.dport == 9)) == {None}
        host.python(UDP, peer, uid=OTHER)
        frames = capture.wait(10, lambda frame: frame.dport == 9)
        assert classes(frames[5:]) == {2}


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_no_second_has_more_than_the_rate(host: MarkedHost, kind: str) -> None:
    """The job's packets have their rate and no more; others pass beside them."""
    _, peer = ADDRESSES["-4"]
    rate_bps = 8_000_000
    host.begin("job", USER, "--max-rate", "8M")
    # BBR would space the packets out by itself.
    host.run("ip", "route", "replace", peer, "dev", BRIDGE, "congctl", "cubic")
    port = "1009"
    if kind == "tcp":
        sink = host.start(sys.executable, "-c", SINK, peer, namespace=host.peer)
        assert sink.stdout is not None
        port = sink.stdout.readline().strip()
    flood = program(FLOODS[kind])
    with host.capture_device() as capture:
        process = host.start(sys.executable, "-c", flood, peer, port, uid=USER)
        while process.poll() is None:
            capture.read()
        host.python(UDP, peer, uid=OTHER)
        capture.wait(5, lambda frame: frame.dport == 9)
        frames = [frame for frame in capture.frames if frame.dport == int(port)]
    assert classes(frames) == {1}
    assert 8 * sum(frame.size for frame in frames) > rate_bps
    first, in_window, most = 0, 0, 0
    for frame in frames:
        in_window += frame.size
        while frame.time_ns - frames[first].time_ns >= 10**9:
            in_window -= frames[first].size
            first += 1
        most = max(most, in_window)
    assert 8 * most <= 1.02 * rate_bps
