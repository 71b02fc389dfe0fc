# SPDX-License-Identifier: Apache-2.0
"""Real packets through two hosts' ri2n-reorder: one flow over all links, whole and in order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_sdn.client import call
from ri2n_sdn.pipeline import helper_frames
from ri2n_sdn.pipeline.crc32c import crc32c

from .conftest import EXACT, WaitUntil
from .packets import all_reach_each_other, all_talk_tcp, broadcasts_arrive_once, pings
from .striping import (
    TCP_BYTES,
    WHOLE_S,
    Cluster,
    cluster,
    pps,
    send_by_tcp,
    sent_bytes,
    sent_since,
    shared,
    stream_is_flawless,
    stream_uses_both_networks,
    topology_of,
)

__all__ = ["cluster", "pps", "shared"]

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("reorder_program")]
EXPLAIN = [sys.executable, "-m", "ri2n_sdn.cli.main", "explain"]
SEND_FRAMES = """
import json, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((sys.argv[1], 0))
for frame in json.load(sys.stdin): s.send(bytes.fromhex(frame))
"""


@pytest.fixture(scope="module")
def mixed() -> Iterator[Cluster]:
    """Hosts of 1, 2, 3 and 4 NICs and a router; C has no helper."""
    with Lab.create(topology_of("mixed", without="C"), helpers=True) as lab:
        made = Cluster(lab)
        made.start_controller()
        lab.wait_ready()
        yield made


@pytest.mark.smoke
def test_one_connection_arrives_whole_and_in_order_over_both_networks(
    cluster: Cluster, wait_until: WaitUntil
) -> None:
    """It goes on until each network has carried enough.

    Meanwhile each helper took its packets in and gave them out.
    """
    before = {host: cluster.counters(host) for host in ("A", "B")}

    def carried_by_both() -> None:
        start = sent_bytes(cluster.lab, "B")
        wait_until(
            lambda: min(sent_since(cluster.lab, "B", start).values()) > TCP_BYTES / 2,
            cluster.described,
            WHOLE_S,
        )

    send_by_tcp(cluster, "B", cluster.lab.address("A"), carried_by_both)
    for host, counters in before.items():
        after = cluster.counters(host)
        assert all(after[name] > counters[name] for name in ("data_in", "data_out")), (
            cluster.described()
        )


def test_one_udp_stream_uses_both_networks(cluster: Cluster, pps: float) -> None:
    stream_uses_both_networks(cluster, pps)


@pytest.mark.parametrize("ipv6", [False, True])
def test_one_tcp_connection_uses_both_networks(cluster: Cluster, ipv6: bool) -> None:
    sent = send_by_tcp(
        cluster, "B", cluster.lab.address6("A") if ipv6 else cluster.lab.address("A")
    )
    assert min(sent.values()) > 0.45 * TCP_BYTES, f"{sent}\n{cluster.described()}"


def test_fragments_arrive_whole(cluster: Cluster) -> None:
    """Packets of several sizes.

    One just fits into a frame with the helper's header, one has a byte more, and one has 20,000
    bytes.
    """
    lab = cluster.lab
    mtu = int(lab.exec("A", ["cat", "/sys/class/net/br-ri2n/mtu"]).stdout)
    for address, headers in ((lab.address("A"), 28), (lab.address6("A"), 48)):
        for size in (mtu - headers, mtu - headers + 1, 20000):
            said = pings(lab, "B", address, "-s", str(size))
            assert " 3 received" in said and "duplicates" not in said, (
                f"{address}: {said}\n{cluster.described()}"
            )


def test_striping_is_turned_off_and_on_without_a_loss(
    cluster: Cluster, pps: float, wait_until: WaitUntil
) -> None:
    lab = cluster.lab
    off = lab.run_dir / "off.yaml"
    off.write_text("striping: 'off'\n" + lab.cluster_file.read_text())
    for config, striped in ((off, False), (lab.cluster_file, True)):

        def change(config: Path = config, striped: bool = striped) -> None:
            cluster.start_controller(config)
            lab.wait_ready()
            wait_until(
                lambda: all(peer["striped"] == striped for peer in cluster.peers()),
                cluster.described,
                WHOLE_S,
            )

        stream_is_flawless(cluster, pps / 10, change, seconds=3 if EXACT else 5)
        # The change may have taken longer than the stream: the next stream shows whether the helper
        # is used.
        counted = cluster.counters("B")["plain_in"]
        stream_is_flawless(cluster, pps)
        assert (cluster.counters("B")["plain_in"] > counted + 0.2 * pps) == striped, (
            cluster.described()
        )


def test_a_class_of_traffic_keeps_one_link_while_all_else_is_striped(
    cluster: Cluster, pps: float, wait_until: WaitUntil
) -> None:
    """TCP to port 5900 is sent by flows; UDP is striped.

    A connection has one link, and its acknowledgements have one, too.
    """
    lab = cluster.lab
    config = lab.run_dir / "by_flows.yaml"
    config.write_text("by_flows: [{proto: tcp, port: 5900}]\n" + lab.cluster_file.read_text())
    cluster.start_controller(config)
    lab.wait_ready()
    wait_until(cluster.controller_content, cluster.described, timeout_s=WHOLE_S)
    given = [cluster.counters(host)["plain_in"] for host in ("A", "B")]
    sent = send_by_tcp(cluster, "B", lab.address("A"))
    # Linux draws a new hash when it sends again after a time-out; in virtual time there is no
    # time-out.
    if lab.datapath == "netdev" or EXACT:
        assert max(sent.values()) > TCP_BYTES, f"{sent}\n{cluster.described()}"
        assert min(sent.values()) < 0.05 * TCP_BYTES, f"{sent}\n{cluster.described()}"
    # Nothing of it arrived at a helper; other programs on the hosts may have sent something.
    assert all(
        cluster.counters(host)["plain_in"] < before + 20
        for host, before in zip(("A", "B"), given, strict=True)
    ), cluster.described()
    # It is striped, although not evenly so soon after TCP filled one link.
    counted = cluster.counters("B")["plain_in"]
    stream_is_flawless(cluster, pps)
    if EXACT:
        assert cluster.counters("B")["plain_in"] >= counted + 0.3 * pps, cluster.described()
    answer = json.loads(
        subprocess.run(
            [*EXPLAIN, "B", "A", "--socket", str(lab.controller_socket), "--proto", "tcp",
             "--dport", "5900", "--src-ip", lab.address("B"), "--dst-ip", lab.address("A"),
             "--datapath", "netdev", "--json"],
            check=True, capture_output=True, text=True,
        ).stdout
    )  # fmt: skip
    assert (
        answer["striped"] and answer["slot"] is not None and "keeps one link" in answer["why"][1]
    ), answer
    cluster.start_controller()  # without that class, for the next test


def test_forged_frames_and_garbage_cost_counters_and_harm_nothing(
    cluster: Cluster, pps: float, wait_until: WaitUntil
) -> None:
    """They come from the NIC of a host whose helper is known: the most that another host can do."""
    lab = cluster.lab
    hosts = {host["name"]: host for host in call(lab.controller_socket, "status")["hosts"]}
    nic = {
        name: {entry["name"]: entry["mac"] for entry in host["nics"]}["eth0"]
        for name, host in hosts.items()
    }
    link = bytes.fromhex((nic["A"] + nic["B"]).replace(":", ""))
    control = [
        helper_frames.gone(2**32 - 1, hosts["B"]["mac"]),
        helper_frames.this_host(2**32 - 1, hosts["B"]["mac"], helper_frames.Mode.ROUND_ROBIN, []),
        helper_frames.peer(2**32 - 1, hosts["B"]["mac"], False, []),
        *helper_frames.channels(2**32 - 1, hosts["B"]["mac"], []),
    ]

    def sealed(kind: str, body: bytes, covered: int | None = None) -> bytes:
        head = b"\x88\xb6" + bytes.fromhex(kind)
        return head + crc32c(head + body[:covered]).to_bytes(4, "big") + body

    data = bytes.fromhex("0000deadbeef00000000000000000800") + bytes(40)
    garbage = {
        "forged_control": [frame[12:] for frame in control],
        "forged_report": [sealed("3500", bytes(6) + link[6:] + bytes(28))],
        "wrong_version": [b"\x88\xb6" + bytes(60), b"\x88\xb6" + b"\xff" * 200],
        "bad_checksum": [b"\x88\xb6\x3f" + bytes(60), sealed("3100", data, 15)],
        "unknown_type": [sealed("3f00", bytes(60))],
        "bad_flags": [sealed("31f0", bytes(60), 16)],
        "unknown_channel": [sealed("3100", b"\x05" + data[1:], 16)],
        "unknown_session": [sealed("3100", data, 16)],
    }
    tagged = [
        b"\x81\x00" + tag + frame[12:]
        for tag in (b"\x0f\xfe", b"\x00\x01", b"\xe0\x00")
        for frame in control
    ]
    frames = [link + rest for group in garbage.values() for rest in group] + [
        link + rest for rest in tagged
    ]
    before, sessions = (
        cluster.counters("A"),
        [peer["session"] for peer in lab.helpers.status("A")["peers"]],
    )

    def attack() -> None:
        said = json.dumps([frame.hex() for frame in frames])
        lab.exec("B", [sys.executable, "-c", SEND_FRAMES, "eth0"], input=said)

    stream_is_flawless(cluster, pps, attack)

    def counted() -> dict[str, int]:
        after = cluster.counters("A")
        return {name: after[name] - before[name] for name in garbage}

    wait_until(
        lambda: all(counted()[name] >= len(group) for name, group in garbage.items()),
        lambda: f"{counted()}\n{cluster.described()}",
    )
    status = lab.helpers.status("A")
    assert status["mode"] == "Paced" and status["mac"] == hosts["A"]["mac"]
    assert [peer["session"] for peer in status["peers"]] == sessions
    assert cluster.usable(), cluster.described()


def test_with_and_without_a_helper_all_reach_each_other(
    mixed: Cluster, wait_until: WaitUntil
) -> None:
    mixed.make_whole(wait_until)
    assert mixed.lab.helpers.hosts == ["A", "B", "D"]
    all_reach_each_other(mixed.lab)
    all_reach_each_other(mixed.lab, "-s", "6000")
    all_talk_tcp(mixed.lab)
    broadcasts_arrive_once(mixed.lab)
    assert mixed.usable(), mixed.described()
