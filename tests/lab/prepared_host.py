# SPDX-License-Identifier: Apache-2.0
"""A lab's host that is like a host before RI2N.

Tests of the host scripts start from it, and compare with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab, ovs
from tests.topology_text import parse_topology

from .conftest import TOPOLOGIES

SCRIPTS = TOPOLOGIES.parent / "ovs-host-scripts"
HOST = "A"
# The first process of a session ignores neither signal. But tests that run in the background of a
# script, or under nohup, may ignore them.
DEFAULT_SIGNALS = ("env", "--default-signal=HUP,PIPE")
SETTLED_S = 10.0  # after that, the comparison shows what is missing
WAIT_S = 120.0  # how long a test waits for what takes a second on an idle machine

# Host A of fig4/d, and B, which has nothing to do with RI2N: to make a managed host takes longer
# than most tests of A.
ALONE = """
name: alone
switches: {s0: {port_buffer_bytes: 131072}, s1: {port_buffer_bytes: 131072}}
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 100000000},
             {name: eth1, switch: s1, rate_bps: 100000000}]}
  B: {managed: false, nics: [{name: eth0, switch: s0, rate_bps: 100000000}]}
"""

# Two address families, several addresses and routes, an MTU and an OVS setting of its own.
PREPARE = """
for n in eth0 eth1; do
  ip addr flush dev $n scope global; ip route flush dev $n
  echo 1 > /proc/sys/net/ipv6/conf/$n/disable_ipv6; echo 0 > /proc/sys/net/ipv6/conf/$n/disable_ipv6
done
ip -batch - <<END
link set eth0 mtu 1500 up
link set eth1 mtu 1400 up
addr add 10.77.0.1/24 brd + dev eth0
addr add 10.78.0.1/24 dev eth0
addr add fd77::1/64 dev eth0 nodad
addr add 10.79.0.1/30 dev eth1
route add default via 10.77.0.2
route add 10.90.0.0/16 via 10.78.0.9 metric 50
route add 10.91.0.0/16 dev eth1
route add 10.89.0.0/16 via 10.91.0.5
route add default via fd77::2
route add fd90::/64 dev eth0 metric 77
END
# The kernel makes this route when the NIC has its carrier back, which it notices later.
until ip -6 route show table local dev eth0 | grep -q '^local fd77::1 '; do sleep 0.1; done
ovs-vsctl set Open_vSwitch . other_config:max-revalidator=777
"""

KERNEL = {
    "addresses": "ip -o addr show",
    "links": "ip -o link show",
    "routes": "ip -4 route show table all; ip -6 route show table all",
    "qdiscs": "tc qdisc show",
    "nft": "nft list ruleset 2>/dev/null || true",
    "sysctls": "grep -rs . /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf || true",
    "offloads": "ethtool -k eth0; ethtool -k eth1",
}
TABLES = {
    "Open_vSwitch": "bridges,other_config,ssl",
    "Bridge": "name,other_config,fail_mode,datapath_type,protocols,external_ids",
    "Port": "name,tag",
    "Interface": "name,ofport,ofport_request,mtu_request,external_ids",
    "Controller": "target,controller_rate_limit,inactivity_probe,max_backoff",
    "QoS": "_uuid",
    "Flow_Table": "_uuid",
    "SSL": "private_key,certificate,ca_cert",
}


class Host:
    """Host A of fig4/d or of ALONE."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.folder = lab.run_dir / HOST
        self.state = self.folder / "state"
        self.up_arguments = [*lab.host_up_arguments(HOST)]

    def prepare(self) -> None:
        """Make the host as before RI2N, whatever the last test left."""
        if any(path.is_dir() for path in self.state.glob("*")):
            self.script("host-down")
            left = self.lab.vsctl(
                HOST, "list", "QoS", "--", "list", "Flow_Table", "--", "list", "Controller"
            )
            # The next host-up would take over what is left, and everything would look as before.
            assert left.strip() == ""
            assert self.run("sh", "-c", KERNEL["nft"]).stdout == ""
        self.run("sh", "-ec", PREPARE)

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the host."""
        return self.lab.exec(HOST, argv, check=check, timeout_s=WAIT_S)

    def script(self, name: str, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run host-up, host-down or host-status."""
        return self.lab.host_script(HOST, name, *args, check=check)

    def problems(self) -> list[str]:
        """The texts of what host-status finds wrong."""
        status = json.loads(self.script("host-status", "--json", check=False).stdout)
        return [problem["text"] for problem in status["problems"]]

    def up(self, *more: str) -> str:
        """Run host-up with the lab's arguments."""
        return self.script("host-up", *self.up_arguments, *more).stdout

    def command(
        self,
        name: str,
        *args: str,
        programs: Path | None = None,
        scripts: Path = SCRIPTS,
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """A script as a command for `run` or `popen`.

        Programs in that folder come before the system's.
        """
        words = [f"{key}={value}" for key, value in (environment or {}).items()]
        if programs is not None:
            words.append(f"PATH={programs}:{os.environ['PATH']}")
        where = ["--db", ovs.database(self.folder), "--state-dir", str(self.state)]
        return [*DEFAULT_SIGNALS, *words, str(scripts / name), *where, *args]

    @property
    def is_up(self) -> bool:
        """Whether the bridge exists."""
        return "br-ri2n" in self.lab.vsctl(HOST, "list-br")

    def answers(self, source: str, destination: str, family: str = "-4") -> bool:
        """Whether a ping is answered, even on a slow machine."""
        done = self.lab.exec(
            source, ["ping", family, "-q", "-c3", "-i0.3", "-W20", destination], check=False
        )
        return ", 0 received" not in done.stdout and " received" in done.stdout

    def settle(self) -> None:
        """Wait for the routes to the host's own IPv6 addresses.

        A worker of the kernel makes each of them a little later.
        """
        deadline_s = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline_s:
            addresses = self.run("ip", "-6", "-o", "addr", "show", "up", "scope", "global").stdout
            own = re.findall(r" inet6 ([0-9a-f:]+)/", addresses)
            routes = self.run("ip", "-6", "route", "show", "table", "local").stdout
            if set(own) <= set(re.findall(r"^local ([0-9a-f:]+) ", routes, re.MULTILINE)):
                return
            time.sleep(0.05)

    def snapshot(self) -> dict[str, str]:
        """Everything that host-up may touch, without what changes by itself.

        Times, counters of the kernel and row ids change by themselves.
        """
        self.settle()
        commands = "".join(f"echo '== {key}'\n{command}\n" for key, command in KERNEL.items())
        lines = self.run("sh", "-ec", commands).stdout
        found = dict(part.split("\n", 1) for part in lines.split("== ")[1:])
        for key in ("routes", "addresses", "sysctls"):
            found[key] = "\n".join(
                sorted(
                    re.sub(r" *(fe80|ff00|anycast).*|.*/ovs-.*", "", line)
                    for line in found[key].split("\n")
                )
            )
        # The bridge and the datapath device go and come with new indexes, and so does promiscuous
        # mode.
        found["addresses"] = re.sub(r"^\d+: ", "", found["addresses"], flags=re.M)
        found["links"] = re.sub(r",PROMISC|^\d+: |state \w+ ", "", found["links"], flags=re.M)
        for key in ("addresses", "links"):
            found[key] = "\n".join(
                line for line in found[key].split("\n") if not line.startswith("ovs-")
            )
        found["qdiscs"] = "\n".join(line for line in found["qdiscs"].split("\n") if "tbf" in line)
        lists = [("--", f"--columns={columns}", "list", table) for table, columns in TABLES.items()]
        found["ovs"] = self.lab.vsctl(HOST, *[word for words in lists for word in words])
        found["state"] = "\n".join(
            sorted(str(path) for path in self.state.rglob("*") if path.suffix != ".log")
        )
        found["processes"] = "\n".join(sorted(self.processes().values()))
        return found

    def processes(self) -> dict[int, str]:
        """The command lines of the processes in the host's namespace, by process id."""
        namespace = Path("/run/netns", self.lab.namespace(HOST)).stat().st_ino
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "ns" / "net").stat().st_ino == namespace:
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue  # the process has ended
        # A process without a line is ending.
        return {pid: line for pid, line in found.items() if line}

    def watchers(self) -> list[int]:
        """The processes that --confirm has left waiting."""
        return [
            pid
            for pid, line in self.processes().items()
            if "ri2n-undo" in line or "--if-pending" in line
        ]

    def flows(self) -> list[str]:
        """The start-up flows, without counters."""
        lines = self.lab.ofctl(
            HOST, "--no-names", "--no-stats", "dump-flows", "br-ri2n"
        ).splitlines()
        return sorted(line for line in lines if "cookie" in line and ", table=252," not in line)


@contextmanager
def host_of_its_own() -> Iterator[Host]:
    """Host A of ALONE as before RI2N, in a lab that ends with the block."""
    with Lab.create(parse_topology(ALONE)) as lab:
        made = Host(lab)
        made.prepare()
        yield made


@pytest.fixture
def host(shared_lab_d: Lab) -> Host:
    """Host A of the module's lab, as before RI2N."""
    made = Host(shared_lab_d)
    made.prepare()
    return made


def fake_program(folder: Path, name: str, script: str) -> Path:
    """Write a program of that name into that folder, which comes before the system's.

    REAL in the script stands for the real program.
    """
    search = [Path(part, name) for part in ("/usr/sbin", "/usr/bin", "/sbin", "/bin")]
    real = next(path for path in search if path.exists())
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script.replace('REAL', str(real))}\n")
    path.chmod(0o755)
    return folder
