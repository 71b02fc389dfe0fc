# SPDX-License-Identifier: Apache-2.0
"""What a host's neighbours see of host-up: one MAC, one answer, no frames between switches."""

from __future__ import annotations

import pytest

from .conftest import WaitUntil
from .prepared_host import HOST, WAIT_S, Host, host

__all__ = ["host"]


def test_frames_between_switches_do_not_reach_the_host(host: Host) -> None:
    """Frames of spanning tree, LLDP and the like are between a switch and its neighbour.

    The host must not see them.
    """
    host.up()

    def actions(destination: str) -> str:
        frame = f"in_port=2,dl_src=02:00:00:00:00:99,dl_dst={destination},dl_type=0x88cc"
        return (
            host.lab.appctl(HOST, "ofproto/trace", "br-ri2n", frame)
            .rsplit("Datapath actions: ", 1)[1]
            .strip()
        )

    assert {actions(f"01:80:c2:00:00:{last}") for last in ("00", "02", "0e", "0f")} == {"drop"}
    assert "drop" not in actions("01:80:c2:00:00:10")


@pytest.mark.parametrize("family", ["-4", "-6"])
def test_neighbours_are_told_the_new_mac_at_once(
    host: Host, family: str, wait_until: WaitUntil
) -> None:
    """They are told before they ask.

    A host that knows the NIC's MAC is told the bridge's, by ARP and by IPv6.
    """
    address = host.lab.address("A") if family == "-4" else host.lab.address6("A")
    entry = ["ip", family, "neigh", "replace", address, "lladdr", "04:00:00:00:01:01"]
    entry += ["dev", "br-ri2n", "nud", "stale"]
    host.lab.exec("B", entry)
    host.up()

    def has_new_mac() -> bool:
        return (
            "06:00:00:00:01:01"
            in host.lab.exec("B", ["ip", family, "neigh", "show", address]).stdout
        )

    wait_until(has_new_mac, "B has not heard of the new MAC", WAIT_S)


def test_one_answer_per_ping(host: Host) -> None:
    """The kernel must not answer beside Open vSwitch.

    There is one ARP reply, with the bridge's MAC, and no duplicate answer.
    """
    host.up()
    host.lab.exec("B", ["ip", "neigh", "flush", "dev", "br-ri2n"])
    output = host.lab.exec("B", ["ping", "-4", "-c5", "-i0.1", "A"]).stdout
    assert "duplicates" not in output
    neighbour = host.lab.exec("B", ["ip", "neigh", "show", host.lab.address("A")]).stdout
    assert "06:00:00:00:01:01" in neighbour


def test_peers_that_remember_the_nics_mac_still_reach_it(host: Host) -> None:
    """An ARP entry from before host-up has the NIC's MAC.

    The administrator's own session comes in by it.
    """
    host.up()
    stale = ["ip", "neigh", "replace", host.lab.address("A"), "lladdr", "04:00:00:00:01:01"]
    stale += ["dev", "br-ri2n"]
    host.lab.exec("B", stale)
    assert host.answers("B", host.lab.address("A"))
    host.lab.exec("B", ["ip", "neigh", "del", host.lab.address("A"), "dev", "br-ri2n"])
