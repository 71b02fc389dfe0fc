# SPDX-License-Identifier: Apache-2.0
"""host-nic adds, retires and replaces NICs while traffic goes on, or changes nothing.

Whatever fails or is killed meanwhile, host.conf is whole and the next run comes to the end.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab, ovs
from ri2n_lab.traffic.streams import Stream
from tests.topology_text import parse_topology

from .conftest import WaitUntil, kill_controller
from .failing_host import RUN, differences
from .prepared_host import HOST, SCRIPTS, Host, fake_program

SITE = """
name: nics
switches: {s0: {}, s1: {}}
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 100000000},
             {name: eth1, switch: s1, rate_bps: 100000000},
             {name: eth2, switch: s1, rate_bps: 100000000}]}
  B: {nics: [{name: eth0, switch: s0, rate_bps: 100000000},
             {name: eth1, switch: s1, rate_bps: 100000000}]}
"""
FREE_ETH2 = """
ip addr flush dev eth2 scope global; ip link set eth2 down mtu 1300
echo 0 > /proc/sys/net/ipv6/conf/eth2/disable_ipv6
"""
# A connection that sends and receives without pause; each line of its output is an answer.
ECHO = """
import socket
s = socket.create_server(("", 5900)); print("ready", flush=True)
c, _ = s.accept()
while data := c.recv(65536): c.sendall(data)
"""
ASK = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 5900), timeout=600)
while True:
    s.sendall(bytes(1000)); left = 1000
    while left: left -= len(s.recv(left)) or sys.exit("closed")
    print("answered", flush=True); time.sleep(0.005)
"""


class Nics(Host):
    """Host A with a host.conf, whose NICs are eth0 and eth1; eth2 is plugged in, and free."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__(lab)
        self.config = folder / "host.conf"

    def prepare(self) -> None:
        """As for any host; eth2 is a NIC that nobody uses."""
        if any(path.is_dir() for path in self.state.glob("*")):
            self.script("host-down")
        self.run("sh", "-ec", FREE_ETH2)
        super().prepare()

    def write(self, *nics: str) -> None:
        """Write the file, and run host-up with it."""
        lines = ["# host A", *(f"nic {nic}" for nic in nics), "", "name A # the host", "mtu 1500"]
        lines += [f"db {ovs.database(self.folder)}", f"state-dir {self.state}"]
        lines += [f"datapath {self.lab.datapath}"]
        lines += [f"controller tcp:{self.lab.controller_address}:6653"]
        self.config.write_text("\n".join(lines) + "\n")
        self.run(str(SCRIPTS / "host-up"), "--config", str(self.config))

    def nic(
        self,
        *words: str,
        check: bool = True,
        programs: Path | None = None,
        scripts: Path = SCRIPTS,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run host-nic."""
        argv = self.command("host-nic", programs=programs, scripts=scripts, environment=environment)
        argv = argv[: argv.index("--db")]
        return self.run(*argv, "--config", str(self.config), *words, check=check)

    @property
    def named(self) -> list[str]:
        """The NICs that the file names, by number."""
        return re.findall(r"^nic (\S+)", self.config.read_text(), flags=re.M)

    @property
    def ports(self) -> dict[str, str]:
        """The NICs of the bridge, with the numbers that they have in fact."""
        words = ["--format=csv", "--no-headings", "--columns=name,ofport", "find", "Interface"]
        rows = self.lab.vsctl(HOST, *words, "external_ids:ri2n-nic=br-ri2n").split()
        return dict(row.replace('"', "").split(",") for row in rows)

    def link(self, nic: str) -> tuple[str, bool, str]:
        """A NIC's MTU, whether it is up, and whether it has no IPv6."""
        shown = self.run("ip", "-o", "link", "show", "dev", nic).stdout
        off = self.run("cat", f"/proc/sys/net/ipv6/conf/{nic}/disable_ipv6").stdout.strip()
        mtu = re.search(r" mtu (\d+) ", shown)
        assert mtu is not None
        return mtu[1], ",UP" in shown, off

    def folder_of(self) -> dict[str, str]:
        """The names and texts of host.conf and of what is beside it."""
        return {path.name: path.read_text() for path in self.config.parent.glob("host.conf*")}


def arp_ignore(host: Host, nic: str) -> str:
    return host.run("cat", f"/proc/sys/net/ipv4/conf/{nic}/arp_ignore").stdout.strip()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.create(parse_topology(SITE)) as lab:
        yield lab


@pytest.fixture
def host(lab: Lab, tmp_path: Path) -> Nics:
    made = Nics(lab, tmp_path)
    made.prepare()
    return made


def test_a_connection_goes_on_while_nics_come_and_go(
    host: Nics, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """With a controller, whose rows lead to the NICs that come and away from those that go."""
    host.write("eth0", "eth1", "eth2")
    host.lab.start_controller()
    try:
        host.lab.wait_ready()
        answers = tmp_path / "answers"
        python = [sys.executable, "-c"]
        server = host.lab.popen(HOST, [*python, ECHO], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        with answers.open("wb") as file:
            client = host.lab.popen("B", [*python, ASK, host.lab.address(HOST)], stdout=file)

        def goes_on() -> None:
            before = answers.stat().st_size
            wait_until(
                lambda: answers.stat().st_size > before + 200 or client.poll() is not None,
                "no answer comes any more",
            )
            assert client.poll() is None

        steps = {
            ("retire", "eth0"): {"eth1": "2", "eth2": "3"},
            ("replace", "eth2", "eth0"): {"eth1": "2", "eth0": "3"},
            ("add", "eth2"): {"eth2": "1", "eth1": "2", "eth0": "3"},
        }
        for words, ports in steps.items():
            goes_on()
            host.nic(*words)
            assert host.ports == ports
        goes_on()
        assert host.named == ["eth2", "eth1", "eth0"]
        # B sends to the new NIC as soon as the bridge has it, and the kernel must not listen there.
        host.nic("retire", "eth2")
        stream = Stream(host.lab, "B", HOST, pps=1000, seconds=8, flows=8)
        host.nic("add", "eth2")
        got = stream.result()
        assert got.received and not got.duplicates, got
        client.kill()
        server.kill()
    finally:
        kill_controller(host.lab)


@pytest.mark.long
def test_a_retired_nic_is_as_before_and_its_number_is_kept(host: Nics) -> None:
    before = host.link("eth1")
    assert before == ("1400", True, "0")
    host.write("eth0", "eth1   # the second", "eth2")
    text = host.config.read_text()
    said = host.nic("retire", "eth1")
    assert "eth1: is no longer NIC 2 of this host" in said.stdout
    assert "take eth1 out, then: ri2n check-config" in said.stdout.splitlines()[-1]
    assert host.link("eth1") == before
    # It is up, and the kernel would answer there for addresses that are on the bridge.
    assert arp_ignore(host, "eth1") == "1"
    host.lab.exec("B", ["ip", "neigh", "flush", "all"])
    assert host.answers("B", HOST)
    own = host.run("cat", "/sys/class/net/br-ri2n/address").stdout.strip()
    assert own in host.lab.exec("B", ["ip", "neigh", "show", "to", host.lab.address(HOST)]).stdout
    assert host.run("ip", "-o", "addr", "show", "dev", "eth1", "scope", "global").stdout == ""
    assert host.config.read_text() == text.replace("nic eth1", "nic -")
    assert host.folder_of()["host.conf.before"] == text
    assert host.ports == {"eth0": "1", "eth2": "3"}
    assert "nothing to do" in host.nic("retire", "eth1").stdout
    table = [line.split() for line in host.nic("ls").stdout.splitlines()]
    assert [row[:2] for row in table[1:]] == [["1", "eth0"], ["2", "-"], ["3", "eth2"]]
    assert host.nic("add", "eth1").returncode == 0 and host.config.read_text() == text
    assert host.ports == {"eth0": "1", "eth1": "2", "eth2": "3"}
    assert "nothing to do" in host.nic("add", "eth1").stdout
    assert arp_ignore(host, "eth1") == "0"
    host.nic("retire", "eth1")
    host.script("host-down")
    assert host.link("eth1") == before and arp_ignore(host, "eth1") == "0"


@pytest.mark.long
def test_host_down_gives_the_addresses_to_the_nic_that_has_the_place_now(host: Nics) -> None:
    """Else a host whose first NIC was replaced would have no address after host-down."""
    host.write("eth0", "eth1")
    host.nic("replace", "eth0", "eth2")
    assert (host.named, host.ports) == (["eth2", "eth1"], {"eth2": "1", "eth1": "2"})
    assert host.answers("B", HOST)
    assert "nothing to do" in host.nic("replace", "eth0", "eth2").stdout
    host.script("host-down")
    addresses = host.run("ip", "-o", "addr", "show", "dev", "eth2").stdout
    assert "10.77.0.1/24" in addresses and "fd77::1/64" in addresses
    assert "default via 10.77.0.2 dev eth2" in host.run("ip", "route").stdout
    assert "10.77.0.1" not in host.run("ip", "-o", "addr", "show", "dev", "eth0").stdout
    assert host.link("eth2")[:2] == ("1300", True)


BAD = {
    "say what to do": [],
    "swap: must be ls, add, retire or replace": ["swap", "eth1"],
    "retire: name one NIC": ["retire"],
    "replace: name two NICs": ["replace", "eth1"],
    "'a/b': not the name of a NIC": ["add", "a/b"],
    "unknown option -": ["replace", "-", "eth2"],
    "unknown option --number": ["add", "eth2", "--number", "7"],
    "eth9: there is no such NIC": ["add", "eth9"],
    "eth7: host.conf names no such NIC": ["replace", "eth7", "eth2"],
    "eth1: is NIC 2 of this host already": ["replace", "eth0", "eth1"],
    "other: has the address 192.0.2.1/24": ["add", "other"],
    "host-nic: lo: is not an Ethernet NIC": ["add", "lo"],
    "member: is already in team": ["replace", "eth1", "member"],
    "cannot be read": ["--config", "/nonexistent", "ls"],
}


@pytest.mark.long
def test_bad_input_is_one_line_and_changes_nothing(host: Nics) -> None:
    host.run(
        "sh",
        "-ec",
        "ip tuntap add other mode tap; ip link set other up; ip addr add 192.0.2.1/24 dev other;"
        "ip link add team type bridge; ip tuntap add member mode tap;"
        "ip link set member master team",
    )
    try:
        host.write("eth0", "eth1")
        before = {**host.snapshot(), **host.folder_of()}
        for message, words in BAD.items():
            done = host.nic(*words, check=False)
            said = done.stderr.replace(str(host.config), "host.conf")
            assert (done.returncode, message in said) == (2, True), (words, said)
            assert len(said.splitlines()) == 1, said
        text = host.config.read_text()
        host.config.write_text(text + "nics eth5\n")
        done = host.nic("retire", "eth1", check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"{host.config}:{len(text.splitlines()) + 1}: unknown option nics" in done.stderr
        host.config.write_text(text)
        dry = host.nic("--dry-run", "replace", "eth1", "eth2").stdout
        assert "-nic eth1\n+nic eth2" in dry and "del-port br-ri2n eth1" in dry
        assert differences(before, {**host.snapshot(), **host.folder_of()}) == ""
    finally:
        host.run("sh", "-c", "ip link del other; ip link del member; ip link del team")


@pytest.mark.long
def test_the_host_is_not_cut_off(host: Nics) -> None:
    host.write("eth0", "eth1")
    host.run("ip", "link", "set", "eth1", "down")
    done = host.nic("retire", "eth0", check=False)
    assert done.returncode == 2 and "no other NIC of this host has a link" in done.stderr
    host.nic("retire", "eth1")
    done = host.nic("--force", "retire", "eth0", check=False)
    assert done.returncode == 2 and "is the host's last NIC" in done.stderr
    # A new NIC whose cable is not plugged in would be the only one.
    text, ports = host.config.read_text(), host.ports
    host.run("ip", "tuntap", "add", "dead", "mode", "tap")
    try:
        done = host.nic("replace", "eth0", "dead", check=False)
    finally:
        host.run("ip", "link", "del", "dead")
    assert done.returncode == 1 and "no NIC of this host has a link now" in done.stderr
    assert (host.config.read_text(), host.ports) == (text, ports)
    assert host.answers("B", HOST)


@pytest.mark.long
def test_the_only_way_of_a_job_stays(host: Nics) -> None:
    """The controller's rows decide; where it has given none, the names of paths do."""
    host.write("eth0", "eth1", "eth2")
    job = [str(SCRIPTS / "job-begin"), "--db", ovs.database(host.folder), "--hosts", "A,B"]
    job += ["--policy", "paths", "--user"]
    host.run(*job, "20001", "--id", "one", "--paths", "A:eth1")
    host.run(*job, "20002", "--id", "two", "--paths", "eth2,net1")
    before = {**host.folder_of()}
    done = host.nic("retire", "eth1", check=False)
    assert (done.returncode, "eth1: is the only way for job one; give" in done.stderr) == (2, True)
    assert host.folder_of() == before
    # As the controller would for a job of class 2, of which all paths begin at port 3.
    group, row = "group_id=2147483650,type=select", "table=10,priority=130,reg6=2"
    buckets = "bucket=watch_port:3,actions=output:3"
    host.lab.ofctl(HOST, "add-group", "br-ri2n", f"{group},{buckets},{buckets}")
    host.lab.ofctl(HOST, "add-flow", "br-ri2n", f"{row},actions=group:2147483650")
    done = host.nic("retire", "eth2", check=False)
    assert (done.returncode, "eth2: is the only way for job two" in done.stderr) == (2, True)
    more = f"{buckets},bucket=watch_port:1,actions=output:1"
    host.lab.ofctl(HOST, "mod-group", "br-ri2n", f"{group},{more}")
    host.nic("retire", "eth2")
    host.nic("--force", "retire", "eth1")
    assert host.named == ["eth0", "-", "-"]


@pytest.mark.long
def test_what_fails_is_put_back(host: Nics, tmp_path: Path) -> None:
    host.write("eth0", "eth1")
    before = host.snapshot()
    text = host.config.read_text()
    refuse = 'case "$*" in *"add-port br-ri2n eth2"*) exit 1 ;; esac; exec REAL "$@"'
    programs = fake_program(tmp_path / "programs", "ovs-vsctl", refuse)
    for words in (("replace", "eth1", "eth2"), ("add", "eth2")):
        done = host.nic(*words, check=False, programs=programs)
        assert done.returncode == 1 and "put back: " in done.stderr, done.stderr
        assert host.folder_of() == {"host.conf": text}
        # host-up has raised the MTU of eth2, and gives it back with all else.
        assert differences(before, host.snapshot()) == ""


# ---- SIGKILL

# host-nic and the host-up that it runs are killed together, as by a loss of power.
KILL_BOTH = RUN.replace("kill -KILL $$", "kill -KILL $PPID $$")
# Programs that host-nic calls between its own steps: it is killed after that call of one of them.
KILL_AFTER = """
REAL "$@"; status=$?
if [[ $(tr '\\0' ' ' </proc/$PPID/cmdline) == *host-nic* ]]; then
    echo >>"$RI2N_TEST_CALLS"
    [[ $(wc -l <"$RI2N_TEST_CALLS") != "${RI2N_TEST_CALL-}" ]] || kill -KILL $PPID
fi
exit $status
"""


class Killed:
    """A command of host-nic that is killed at a point, and then run once more, to its end."""

    def __init__(self, host: Nics, folder: Path, *words: str) -> None:
        self.host = host
        self.words = words
        self._record, self._calls = folder / "record", folder / "calls"
        self._scripts = folder / "scripts"
        shutil.copytree(SCRIPTS, self._scripts)
        with (self._scripts / "common.sh").open("a") as common:
            common.write(KILL_BOTH)
        for name in ("mv", "cp", "sync"):
            self._programs = fake_program(folder / "programs", name, KILL_AFTER)
        self._begin()
        self.old = self._state()
        assert self._run({}).returncode == 0
        self.new = self._state()
        assert self.old["ports"] != self.new["ports"]
        self.changes = len(self._record.read_text().splitlines())
        self.calls = len(self._calls.read_text().splitlines())

    def _begin(self) -> None:
        self.host.prepare()
        for path in self.host.folder_of():
            (self.host.config.parent / path).unlink()
        self.host.write("eth0", "eth1")

    def _run(self, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        for path in (self._record, self._calls):
            path.write_text("")
        return self.host.nic(
            *self.words,
            check=False,
            programs=self._programs,
            scripts=self._scripts,
            RI2N_TEST_RECORD=str(self._record),
            RI2N_TEST_CALLS=str(self._calls),
            **environment,
        )

    def _state(self) -> dict[str, str]:
        found = self.host.snapshot()
        return {
            **{key: found[key] for key in ("addresses", "links", "routes", "state", "nft")},
            "ports": str(sorted(self.host.ports.items())),
            "file": self.host.config.read_text(),
        }

    def killed(self, **environment: str) -> None:
        """Either the next host-up or the next host-nic comes to the end."""
        self._begin()
        assert self._run(environment).returncode != 0, environment
        states = {self.old["file"]: self.old, self.new["file"]: self.new}
        wanted = states[self.host.config.read_text()]  # one of the two, as a whole
        self.host.run(str(SCRIPTS / "host-up"), "--config", str(self.host.config))
        assert differences(wanted, self._state()) == "", environment
        again = self.host.nic(*self.words, check=False)
        assert again.returncode == 0, (environment, again.stderr)
        assert differences(self.new, self._state()) == "", environment
        assert set(self.host.folder_of()) == {"host.conf", "host.conf.before"}, environment


@pytest.mark.long
def test_a_killed_host_nic_is_finished_by_the_next_one(host: Nics, tmp_path: Path) -> None:
    """Before the new file is there, right after it, and in the midst of host-up."""
    killed = Killed(host, tmp_path, "replace", "eth1", "eth2")
    killed.killed(RI2N_TEST_CALL=str(killed.calls - 3))
    killed.killed(RI2N_TEST_CALL=str(killed.calls - 1))
    killed.killed(RI2N_TEST_KILL_AT=str(killed.changes - 4))


@pytest.mark.long
@pytest.mark.parametrize("words", [("replace", "eth1", "eth2"), ("retire", "eth1")], ids=" ".join)
def test_host_nic_is_killed_at_every_change(
    words: tuple[str, ...], host: Nics, tmp_path: Path
) -> None:
    killed = Killed(host, tmp_path, *words)
    for number in range(1, killed.calls + 1):
        killed.killed(RI2N_TEST_CALL=str(number))
    for number in range(1, killed.changes + 1):
        killed.killed(RI2N_TEST_KILL_AT=str(number))
