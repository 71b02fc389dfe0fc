# SPDX-License-Identifier: Apache-2.0
"""host-up and host-watch tell the controller the addresses of a host's traffic."""

from __future__ import annotations

import re
from pathlib import Path

from ri2n_lab.cluster import ovs
from ri2n_sdn.contract.limits import MAX_ADDRESSES

from .conftest import WaitUntil
from .prepared_host import HOST, SCRIPTS, WAIT_S, Host, host

__all__ = ["host"]

OWN = {"10.77.0.1", "10.78.0.1", "10.79.0.1", "fd77::1"}


def told(host: Host) -> set[str]:
    """The addresses that the bridge's rows tell."""
    rows = host.lab.ofctl(HOST, "--no-names", "dump-flows", "br-ri2n", "table=248")
    found = re.findall(r"cookie=0x524c0+,.* priority=1,ip\w*,(?:nw|ipv6)_src=(\S+) actions=", rows)
    assert len(found) == len(set(found)) == rows.count("cookie="), rows
    return set(found)


def test_host_up_tells_all_addresses_of_the_bridge(host: Host) -> None:
    planned = host.up("--dry-run")
    assert all(f"_src={address},actions=drop" in planned for address in OWN), planned
    host.up()
    assert told(host) == OWN
    assert "nothing to do" in host.up()
    host.run("ip", "addr", "del", "10.78.0.1/24", "dev", "br-ri2n")
    assert told(host) == OWN
    host.up()
    assert told(host) == OWN - {"10.78.0.1"}
    assert not [text for text in host.problems() if "flows" in text]
    found = host.script("host-doctor", "--json", check=False).stdout
    assert "nobody's" not in found, found


def test_so_many_are_told_and_no_more(host: Host) -> None:
    host.up()
    for number in range(MAX_ADDRESSES):
        host.run("ip", "addr", "add", f"10.80.0.{number + 1}/32", "dev", "br-ri2n")
    host.up()
    assert len(told(host)) == MAX_ADDRESSES
    assert "nothing to do" in host.up()


def test_host_watch_follows_every_change(host: Host, wait_until: WaitUntil, tmp_path: Path) -> None:
    """An address that comes or goes, and rows that Open vSwitch has lost."""
    host.up()
    config = tmp_path / "host.conf"
    database = ovs.database(host.folder)
    config.write_text(f"nic eth0\nnic eth1\nstate-dir {host.state}\ndb {database}\n")
    watch = host.lab.popen(HOST, [str(SCRIPTS / "host-watch"), "--config", str(config)])

    def await_told(addresses: set[str]) -> None:
        wait_until(lambda: told(host) == addresses, lambda: f"told: {told(host)}", WAIT_S)

    try:
        host.run("ip", "addr", "del", "10.78.0.1/24", "dev", "br-ri2n")
        host.run("ip", "addr", "add", "fd77::9/64", "dev", "br-ri2n", "nodad")
        now = OWN - {"10.78.0.1"} | {"fd77::9"}
        await_told(now)
        host.lab.ofctl(HOST, "del-flows", "br-ri2n", "table=248")
        assert not told(host)
        await_told(now)
        # A row that somebody else has added goes.
        row = "cookie=0x524c000000000000,table=248,priority=1,ip,nw_src=192.0.2.1,actions=drop"
        host.lab.ofctl(HOST, "add-flow", "br-ri2n", row)
        await_told(now)
        host.run("ip", "addr", "flush", "dev", "br-ri2n", "scope", "global")
        await_told(set())
        assert watch.poll() is None
    finally:
        watch.terminate()
        watch.wait()
