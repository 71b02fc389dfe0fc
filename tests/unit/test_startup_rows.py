# SPDX-License-Identifier: Apache-2.0
"""The addresses behind a host, from the start-up rows of its host-up.

They hold for that host alone, and their number is limited.
"""

from __future__ import annotations

import struct

import pytest

from ri2n_sdn.apps.cluster import Member
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.startup_rows import MAX_EXTRA_MACS
from ri2n_sdn.fabric.model import Guest
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.layout import LOCAL
from ri2n_sdn.pipeline.priorities import STARTUP
from tests.unit import bridge_model
from tests.unit.fake_hosts import member_of
from tests.unit.trunk_turns import Trunk


def startup_row(
    mac: str,
    port: int = LOCAL,
    *,
    table: int = 251,
    priority: int = STARTUP.priority,
    mask: bytes = b"",
    last: int = 0,
) -> bytes:
    """One of host-up's rows as Open vSwitch describes it, which sends frames for `mac` to `port`.

    It has an action of Nicira's and an output action; `last` is the type of the latter.
    """
    header = 0x80000606 if not mask else 0x8000070C
    field = struct.pack("!I", header) + bytes.fromhex(mac.replace(":", "")) + mask
    match = struct.pack("!HH", 1, 4 + len(field)) + field + bytes(-(4 + len(field)) % 8)
    learn, output = (
        struct.pack("!HHIH6x", 0xFFFF, 16, 0x2320, 16),
        struct.pack("!HHIH6x", last, 16, port, 0),
    )
    statistics, instruction = struct.pack("!HH4x", 0, 4), struct.pack("!HH4x", 4, 8 + 32)
    rest = match + statistics + instruction + learn + output
    return (
        struct.pack("!HxxBxHHHHHQ", 24 + len(rest), table, priority, 0, 0, 0, 0, 0x5249 << 48)
        + rest
    )


def read_again(trunk: Trunk, startup: bytes) -> Member:
    """Host B is read: it has no rows of the controller, and these of host-up."""
    host, switch = trunk.cluster.members["B"], trunk.switches["B"]
    host.installed, host.dirty, switch.requests = None, True, []
    trunk.turn()
    for request, answer in zip(switch.requests, (b"", b"", startup), strict=True):
        request.set_result(answer)
    trunk.turn()
    return host


@pytest.fixture
def model() -> bridge_model.Cluster:
    return bridge_model.Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]}, helpers="AB")


def test_addresses_that_host_up_was_told_of_are_behind_the_host(
    model: bridge_model.Cluster,
) -> None:
    """Its own and its NICs' addresses, flooded ones, and rows of other kinds are ignored."""
    trunk = Trunk(model)
    host = trunk.cluster.members["B"]
    host.ports = member_of("B").ports
    container = "0e:00:00:00:00:01"
    body = startup_row(container) + startup_row(host.mac) + startup_row(host.ports[1].mac)
    body += startup_row("0e:00:00:00:00:02", priority=150) + startup_row(
        "0e:00:00:00:00:03", table=250
    )
    body += startup_row("01:00:00:00:00:00", mask=bytes.fromhex("010000000000"))
    for rows in (body, b"", body):
        read_again(trunk, rows)
        assert host.extra_macs == ((container,) if rows else ())
        assert trunk.cluster.extra_macs(host) == host.extra_macs


def test_guests_have_the_port_that_host_up_gave_them_and_no_other(
    model: bridge_model.Cluster,
) -> None:
    """A NIC's port is no guest's. A row that is there twice counts once.

    An address behind a guest's port is not behind LOCAL.
    """
    trunk = Trunk(model)
    first, second, third = (f"0e:00:00:00:00:0{n}" for n in (1, 2, 3))
    body = startup_row(first, 2002) + startup_row(second, 2001) + startup_row(third)
    body += startup_row("0e:00:00:00:00:04", 1) + startup_row("0e:00:00:00:00:05", 2001, last=11)
    body += startup_row(first, 2003) + startup_row(first)
    host = read_again(trunk, body)
    assert host.guests == (Guest(2001, second), Guest(2002, first))
    assert trunk.cluster.extra_macs(host) == (third,)
    host = read_again(trunk, startup_row(first))
    assert (host.guests, host.extra_macs) == ((), (first,))


def test_a_guests_address_that_the_configuration_names_too_is_on_its_port(
    model: bridge_model.Cluster,
) -> None:
    trunk = Trunk(model)
    mac = "0e:00:00:00:00:01"
    trunk.cluster.config = parse_model(
        f"hosts: {{B: {{extra_macs: ['{mac}']}}}}", ClusterConfig, "cluster.yaml"
    )
    host = trunk.cluster.members["B"]
    assert trunk.cluster.extra_macs(host) == (mac,)
    read_again(trunk, startup_row(mac, 2001))
    assert trunk.cluster.extra_macs(host) == ()


def test_a_host_may_name_a_great_many_addresses_behind_it_and_some_are_taken(
    model: bridge_model.Cluster,
) -> None:
    body = b"".join(startup_row(f"0e:00:00:00:{n >> 8:02x}:{n & 255:02x}") for n in range(1, 1000))
    assert len(read_again(Trunk(model), body).extra_macs) == MAX_EXTRA_MACS


@pytest.mark.parametrize("cut", [1, 20, 33])
def test_rows_of_host_up_that_make_no_sense_are_this_hosts_affair(
    model: bridge_model.Cluster, cut: int
) -> None:
    host = read_again(Trunk(model), startup_row("0e:00:00:00:00:01")[:cut])
    assert host.installed is None and host.dirty and host.retry_s > 0 and host.extra_macs == ()
