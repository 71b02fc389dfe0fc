"""host-up and host-down on a lab's host.

They can be repeated, are undone exactly, undo themselves, and do no harm on bad input.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab, ovs
from ri2n_sdn.fabric.topology import load_topology

from .conftest import TOPOLOGIES, WaitUntil
from .failing_host import differences
from .prepared_host import HOST, SCRIPTS, WAIT_S, Host, fake_program


@pytest.fixture(scope="module")
def _lab() -> Iterator[Lab]:
    with Lab.create(load_topology(TOPOLOGIES / "fig4" / "d.yaml")) as lab:
        yield lab


@pytest.fixture
def host(_lab: Lab) -> Host:
    """Host A after host-down.

    It has routes, two address families, a second address and an MTU of its own.
    """
    host = Host(_lab)
    host.prepare()
    return host


@pytest.mark.parametrize("deleted", [False, True], ids=["", "after the bridge was deleted"])
def test_addresses_and_routes_move_and_come_back(host: Host, deleted: bool) -> None:
    before = host.snapshot()
    host.up()
    if deleted:  # somebody else deleted it, and with it the addresses and routes
        host.lab.vsctl(HOST, "del-br", "br-ri2n")
        host.up()
    addresses = host.run("ip", "-o", "addr", "show", "dev", "br-ri2n", "scope", "global").stdout
    for address in ("10.77.0.1/24 brd 10.77.0.255", "10.78.0.1/24", "10.79.0.1/30", "fd77::1/64"):
        assert address in addresses
    for nic in ("eth0", "eth1"):
        # Not even a link-local address is left.
        assert host.run("ip", "-o", "addr", "show", "dev", nic).stdout == ""
    routes = host.run("sh", "-c", "ip route; ip -6 route").stdout
    for route in (
        "default via 10.77.0.2 dev br-ri2n",
        "10.90.0.0/16 via 10.78.0.9 dev br-ri2n metric 50",
        "10.91.0.0/16 dev br-ri2n",
        "10.89.0.0/16 via 10.91.0.5 dev br-ri2n",  # by a gateway that the route before leads to
        "default via fd77::2 dev br-ri2n",
        "fd90::/64 dev br-ri2n metric 77",
    ):
        assert route in routes
    assert "dev eth" not in routes
    assert host.answers("B", "A")
    assert host.answers("A", host.lab.address6("C"), "-6")
    host.script("host-down")
    assert host.snapshot() == before
    assert "nothing to undo" in host.script("host-down").stdout


def test_a_nic_that_was_down_is_down_again(host: Host) -> None:
    host.run("ip", "link", "set", "eth1", "down")
    before = host.snapshot()
    assert ",UP" not in host.run("ip", "-o", "link", "show", "dev", "eth1").stdout
    host.up()
    assert ",UP" in host.run("ip", "-o", "link", "show", "dev", "eth1").stdout, (
        "it is used as all others are"
    )
    host.script("host-down")
    assert host.snapshot() == before


def test_the_bridge_is_as_it_must_be(host: Host) -> None:
    host.up()

    def column(table: str, record: str, name: str) -> str:
        return host.lab.vsctl(HOST, "get", table, record, name).strip().strip('"')

    assert column("bridge", "br-ri2n", "fail_mode") == "secure"
    assert column("bridge", "br-ri2n", "other_config:disable-in-band") == "true"
    assert column("bridge", "br-ri2n", "other_config:dp-desc") == "A"
    assert column("bridge", "br-ri2n", "protocols") == "[OpenFlow15]"
    assert column("interface", "eth0", "ofport") == "1"
    assert column("interface", "eth1", "ofport") == "2"
    assert column("interface", "br-ri2n", "mtu") == "1500"
    assert column("Open_vSwitch", ".", "other_config:max-revalidator") == "250"
    mac = column("interface", "br-ri2n", "mac_in_use")
    assert mac == "06:00:00:00:01:01"  # that of the first NIC, locally administered
    assert "hidden" not in host.lab.appctl(HOST, "bridge/dump-flows", "br-ri2n")
    assert "NORMAL" not in host.lab.appctl(HOST, "bridge/dump-flows", "br-ri2n")
    limits = host.lab.vsctl(HOST, "--columns=flow_limit,overflow_policy", "list", "Flow_Table")
    assert "4096" in limits
    assert "evict" in limits
    flows = host.flows()
    assert len(flows) > 10
    assert all(re.search(r"cookie=0x5249[0-9a-f]{12},", flow) for flow in flows)


def test_a_second_run_changes_nothing(host: Host) -> None:
    host.up()
    assert host.answers("B", "A")
    before, flows = host.snapshot(), host.flows()
    durations = host.lab.ofctl(HOST, "dump-flows", "br-ri2n", "table=253")
    assert "nothing to do" in host.up()
    assert "nothing to do" in host.up("--dry-run")
    assert host.snapshot() == before
    assert host.flows() == flows
    age = r"duration=([0-9.]+)s"
    then = [float(value) for value in re.findall(age, durations)]
    now = [
        float(value)
        for value in re.findall(age, host.lab.ofctl(HOST, "dump-flows", "br-ri2n", "table=253"))
    ]
    # The flows were not installed again.
    assert all(new > old for old, new in zip(then, now, strict=True))


def test_the_first_controller_empties_the_tables_and_they_are_filled_again(host: Host) -> None:
    nics = ["--nic", "eth0", "--nic", "eth1", "--name", "A", "--datapath", host.lab.datapath]
    host.script("host-up", *nics)
    flows = host.flows()
    assert len(flows) > 10
    host.up()
    assert "10.255.0.1" in host.lab.vsctl(HOST, "get-controller", "br-ri2n")
    assert host.flows() == flows
    host.script("host-up", *nics, "--controller", "tcp:10.255.0.9:6653")
    assert host.lab.vsctl(HOST, "get-controller", "br-ri2n").split() == ["tcp:10.255.0.9:6653"]
    assert host.flows() == flows


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


def test_foreign_flows_are_left_alone(host: Host) -> None:
    host.up()
    host.lab.ofctl(
        HOST,
        "add-flow",
        "br-ri2n",
        "cookie=0x77,table=0,priority=99,in_port=1,dl_type=0x88b5,actions=drop",
    )
    host.up("--extra-mac", "02:aa:00:00:00:01")
    assert "cookie=0x77" in host.lab.ofctl(HOST, "dump-flows", "br-ri2n")
    assert sum("02:aa:00:00:00:01" in flow for flow in host.flows()) == 2


def test_dry_run_changes_nothing_and_tells_it(host: Host) -> None:
    before = host.snapshot()
    output = host.up("--dry-run", "--confirm", "5")
    assert host.snapshot() == before
    for part in (
        "add-br br-ri2n",
        "disable-in-band=true",
        "add-flows br-ri2n",
        "ip addr replace 10.77.0.1/24",
        "host-down",
    ):
        assert part in output
    assert (
        output.index("disable-in-band")
        < output.index("tcp:10.255.0.1:6653")
        < output.index("add-flows")
    )
    host.up()
    before = host.snapshot()
    assert "ovs-vsctl del-br br-ri2n" in host.script("host-down", "--dry-run").stdout
    assert host.snapshot() == before


def test_flows_come_back_after_vswitchd_restarted(host: Host, wait_until: WaitUntil) -> None:
    host.up()
    flows = host.flows()
    folder = host.lab.run_dir / HOST
    pid = int((folder / "ovs-vswitchd.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: not Path(f"/proc/{pid}/ns/net").exists(), "ovs-vswitchd does not die", WAIT_S
    )
    host.run(
        "ovs-vswitchd", ovs.database(folder), "--pidfile", "--detach", "--log-file", "-vconsole:off"
    )
    assert host.flows() == []
    host.up()
    assert host.flows() == flows
    assert host.answers("A", host.lab.address("C"))
    assert "tbf" in host.run("tc", "qdisc", "show", "dev", "eth0").stdout


@pytest.fixture
def alarm(tmp_path: Path) -> Path:
    """A folder with a `sleep` that lasts until somebody writes to its `ring`.

    It keeps its argument in `seconds`.
    """
    os.mkfifo(tmp_path / "ring")
    return fake_program(
        tmp_path, "sleep", f'echo "$1" >{tmp_path}/seconds; exec cat {tmp_path}/ring >/dev/null'
    )


def test_not_confirmed_undoes_itself_though_the_session_died(
    host: Host, alarm: Path, wait_until: WaitUntil
) -> None:
    before = host.snapshot()
    up = shlex.join(host.command("host-up", *host.up_arguments, "--confirm", "600", programs=alarm))
    # A session leader with a terminal of its own that is killed when host-up has reported, like an
    # ssh session that breaks.
    host.run("script", "-qec", f"{up}; kill -HUP 0; kill -9 $$", "/dev/null", check=False)
    assert host.is_up
    (alarm / "ring").write_text("")
    wait_until(lambda: not host.is_up, "the bridge is still there", WAIT_S)
    wait_until(lambda: host.snapshot() == before, "the state before is not back", WAIT_S)
    assert (alarm / "seconds").read_text() == "600\n"


def test_confirmed_stays(host: Host, alarm: Path, wait_until: WaitUntil) -> None:
    host.run(*host.command("host-up", *host.up_arguments, "--confirm", "600", programs=alarm))
    assert (
        json.loads(host.script("host-status", "--json", check=False).stdout)["pending_confirm"]
        is True
    )
    assert len(host.watchers()) == 1
    host.script("host-up", "--confirmed")
    assert (
        json.loads(host.script("host-status", "--json", check=False).stdout)["pending_confirm"]
        is False
    )
    (alarm / "ring").write_text("")
    wait_until(lambda: not host.watchers(), "the watcher is still there", WAIT_S)
    assert host.is_up
    again = host.script("host-up", "--confirmed", check=False)
    assert again.returncode == 2
    assert "nothing waits" in again.stderr


def test_a_dry_run_lists_what_names_the_nics(host: Host, tmp_path: Path) -> None:
    """Without an error, each of these would see no packet any more."""
    etc = tmp_path / "etc"
    files = {
        "iptables/rules.v4": "-A INPUT -i eth0 -j ACCEPT",
        "openmpi/openmpi-mca-params.conf": "btl_tcp_if_include=eth1,eth0",
        "sysctl.d/99.conf": "net.ipv4.conf.eth1.rp_filter=0\nnet.ipv4.conf.eth10.rp_filter=0",
        "network/interfaces": "auto eth10\niface eth1.5 inet manual\niface veth0 inet manual",
        "ri2n/host.conf": "nic eth0\nnic eth1",
        "udev/rules.d/70-nics.rules": 'NAME="eth0"',
    }
    for name, text in files.items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text(text)
    host.run(
        "nft",
        "add table inet filter; add chain inet filter input; add rule inet filter input iifname "
        '"eth1" drop',
    )
    host.run("ip", "rule", "add", "iif", "eth0", "table", "main")
    sleeper = host.lab.popen(
        HOST, ["sh", "-c", "read _", "dhclient", "eth0"], stdin=subprocess.PIPE
    )
    try:
        environment = {"MENTIONS_ROOT": str(tmp_path)}
        said = host.run(
            *host.command("host-up", *host.up_arguments, "--dry-run", environment=environment)
        ).stdout
    finally:
        sleeper.kill()
        sleeper.wait()
        host.run("ip", "rule", "del", "iif", "eth0", "table", "main")
        host.run("nft", "delete", "table", "inet", "filter")
    found: dict[str, list[str]] = {}
    for line in said.splitlines():
        if line.startswith("# ") and " is named here" in line:
            places = found.setdefault(line.split()[1], [])
        elif line.startswith("#   "):
            places.append(line.removeprefix("#   ").replace(str(etc), "/etc"))
    assert found == {
        "eth0": [
            *("/etc/iptables/rules.v4", "/etc/openmpi/openmpi-mca-params.conf", "ip rule"),
            f"process {sleeper.pid}: sh -c read _ dhclient eth0 ",
        ],
        "eth1": [
            *(
                "/etc/network/interfaces",
                "/etc/openmpi/openmpi-mca-params.conf",
                "/etc/sysctl.d/99.conf",
            ),
            "nft table inet filter",
        ],
    }
    assert "br-ri2n instead" in said and not host.is_up


def test_an_mtu_that_is_no_longer_asked_for_goes_back(host: Host) -> None:
    """Else a host would have NICs with several MTUs, and a helper that counts on the wrong one."""

    def mtus() -> list[str]:
        return [
            host.run("cat", f"/sys/class/net/{nic}/mtu").stdout.strip()
            for nic in ("eth0", "eth1", "br-ri2n")
        ]

    before = host.snapshot()
    host.up("--nic-mtu", "1522", "--helper")
    assert mtus() == ["1522", "1522", "1500"]
    host.up("--helper")
    assert mtus() == ["1500", "1500", "1478"]
    assert "nothing to do" in host.up("--helper")
    host.up("--mtu", "1400")
    assert mtus() == ["1500", "1400", "1400"]
    host.run("ip", "link", "set", "eth1", "mtu", "1600")  # the administrator's own wish
    host.up()
    assert mtus() == ["1500", "1600", "1500"]
    host.script("host-down")
    assert differences(before, host.snapshot()) == ""


def test_nics_that_carry_much_more_are_told_of(host: Host) -> None:
    for nic in ("eth0", "eth1"):
        host.run("ip", "link", "set", nic, "mtu", "9000")
    said = (
        "the NICs carry 9000 bytes and br-ri2n has an MTU of 1500: --mtu {}, on all hosts, "
        "would use them"
    )
    for more, least in (((), 9000), (("--helper",), 8978)):
        done = host.script("host-up", *host.up_arguments, *more)
        assert said.format(least) in done.stderr
    for mtu in ("1500", "9000"):
        assert (
            "would use them" not in host.script("host-up", *host.up_arguments, "--mtu", mtu).stderr
        )
    assert host.run("cat", "/sys/class/net/br-ri2n/mtu").stdout == "9000\n"


def test_a_nic_that_is_no_longer_named_goes_back(host: Host) -> None:
    host.up()
    words = list(host.up_arguments)
    index = words.index("eth1")
    del words[index - 1 : index + 1]
    host.script("host-up", *words)
    assert host.lab.vsctl(HOST, "list-ports", "br-ri2n").split() == ["eth0"]
    assert "mtu 1400" in host.run("ip", "link", "show", "eth1").stdout
    assert "eth1" not in host.run("nft", "list", "ruleset").stdout
    assert "10.79.0.1" in host.run("ip", "addr", "show", "dev", "br-ri2n").stdout
    assert host.answers("B", "A")


def test_a_nic_that_is_no_longer_named_gets_no_address_and_no_route_back(host: Host) -> None:
    """The bridge has them.

    If the NIC had them, too, answers would leave by a NIC whose cable may be unplugged.
    """
    host.up()
    words = list(host.up_arguments)
    index = words.index("eth1")
    del words[index - 1 : index + 1]
    host.script("host-up", *words)
    assert host.run("ip", "-o", "addr", "show", "dev", "eth1", "scope", "global").stdout == ""
    assert host.run("ip", "-4", "route", "show", "dev", "eth1").stdout == ""


def test_the_rules_of_a_nic_that_was_made_anew_are_put_back(host: Host) -> None:
    """With a NIC, its chain is removed; the table stays, and the other NIC's chain in it."""
    host.up()
    rules = host.run("nft", "list", "ruleset").stdout
    host.run("nft", "delete", "chain", "netdev", "ri2n_br_ri2n", "nic1")
    host.up()
    assert host.run("nft", "list", "ruleset").stdout == rules and 'device "eth1"' in rules


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


BAD = {
    "no NIC given": [],
    "is given twice": ["--nic", "eth0", "--nic", "eth0"],
    "there is no such NIC": ["--nic", "eth0", "--nic", "eth9"],
    "is not an Ethernet NIC": ["--nic", "lo"],
    "must be tcp:HOST:PORT": ["--nic", "eth0", "--controller", "tcp:controller_example:6653"],
    "an IP address ([...] for IPv6)": ["--nic", "eth0", "--controller", "tcp:fd00::1:6653"],
    "the port must be 1 to": ["--nic", "eth0", "--controller", "tcp:controller.example:0"],
    "the port must be": ["--nic", "eth0", "--controller", "tcp:10.0.0.1:70000"],
    "not an IP address": ["--nic", "eth0", "--controller", "tcp:10.0.300.1:6653"],
    "needs --ssl-key": ["--nic", "eth0", "--controller", "ssl:10.0.0.1:6653"],
    "unknown option --nics": ["--nics", "eth0"],
    "--nic needs a value": ["--nic"],
    "must be auto, system or netdev": ["--nic", "eth0", "--datapath", "kernel"],
    "must be 576 to 9216": ["--nic", "eth0", "--mtu", "70"],
    "must be a number of seconds": ["--nic", "eth0", "--confirm", "soon"],
    "not a unicast MAC": ["--nic", "eth0", "--extra-mac", "01:00:00:00:00:01"],
    "--extra-mac 02:aa:00:00:00:01 is given twice": [
        *(
            "--nic",
            "eth0",
            "--extra-mac",
            "02:AA:00:00:00:01@box",
            "--extra-mac",
            "02:aa:00:00:00:01",
        ),
    ],
    "a/b is not the name of a device": ["--nic", "eth0", "--extra-mac", "02:aa:00:00:00:01@a/b"],
    "04:00:00:00:01:01: is the MAC address of --nic eth0": [
        "--nic",
        "eth0",
        "--extra-mac",
        "04:00:00:00:01:01",
    ],
    "eth0 is not a guest's": ["--nic", "eth0", "--extra-mac", "02:aa:00:00:00:01@eth0"],
    "not a valid device name": ["--nic", "eth0", "--bridge", "a-name-that-is-too-long"],
    "cannot be read": ["--config", "/nonexistent"],
    "--nic twin: has the MAC address of --nic eth0, 04:00:00:00:01:01": [
        "--nic",
        "eth0",
        "--nic",
        "twin",
    ],
}


@pytest.fixture
def twin(host: Host) -> Iterator[None]:
    """A NIC with the address of another one, like VLAN devices and former members of bonds."""
    host.run("ip", "tuntap", "add", "twin", "mode", "tap")
    host.run("ip", "link", "set", "twin", "address", "04:00:00:00:01:01")
    yield
    host.run("ip", "link", "del", "twin")


@pytest.mark.parametrize("message", BAD)
@pytest.mark.usefixtures("twin")
def test_bad_input_is_one_line_and_changes_nothing(message: str, host: Host) -> None:
    before = host.snapshot()
    done = host.script("host-up", *BAD[message], check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert host.snapshot() == before


def test_a_nic_in_another_bridge_is_refused(host: Host) -> None:
    host.run("sh", "-ec", "ip link add other type bridge; ip link set eth1 master other")
    done = host.script("host-up", *host.up_arguments, check=False)
    host.run("ip", "link", "del", "other")
    assert (done.returncode, "eth1: is already in other" in done.stderr) == (2, True)
    host.lab.vsctl(HOST, "add-br", "mine", "--", "set", "bridge", "mine", "datapath_type=netdev")
    try:
        host.lab.vsctl(HOST, "add-port", "mine", "eth1")
        done = host.script("host-up", *host.up_arguments, check=False)
        assert (done.returncode, "OVS bridge mine" in done.stderr) == (2, True)
        done = host.script("host-up", "--bridge", "mine", "--nic", "eth0", check=False)
        assert (done.returncode, "was not made by host-up" in done.stderr) == (2, True)
        done = host.script("host-down", "--bridge", "mine", check=False)
        assert (done.returncode, "was not made by host-up" in done.stderr) == (2, True)
    finally:
        host.lab.vsctl(HOST, "del-br", "mine")
        # When a bridge without linux-noop took eth1, the queue of eth1 was removed.
        host.run(
            "sh", "-c", "tc qdisc replace dev eth1 root tbf rate 100mbit burst 10000 limit 1514000"
        )


def test_no_root_no_ovs_old_ovs(host: Host, tmp_path: Path) -> None:
    script = str(SCRIPTS / "host-up")
    before = host.snapshot()
    # setpriv: the script must be readable, and the folders above it need not be.
    unprivileged = ["setpriv", "--reuid", "65534", "--clear-groups", "bash"]
    unprivileged += ["-s", "--", "--nic", "eth0"]
    text = (SCRIPTS / "host-up").read_text()
    for part in re.findall(r'^source "\$HERE/(\S+)"$', text, re.MULTILINE):
        text = text.replace(f'source "$HERE/{part}"', (SCRIPTS / part).read_text())
    done = host.lab.exec(HOST, unprivileged, check=False, input=text.replace("${0##*/}", "host-up"))
    assert (done.returncode, done.stderr) == (2, "host-up: must run as root: use sudo\n")
    done = host.run(script, "--nic", "eth0", "--db", f"unix:{tmp_path}/db.sock", check=False)
    assert done.returncode == 2
    assert "Open vSwitch is not running" in done.stderr
    old = fake_program(tmp_path, "ovs-vsctl", "echo 'ovs-vsctl (Open vSwitch) 2.15.1'")
    done = host.run(*host.command("host-up", "--nic", "eth0", programs=old), check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "host-up: Open vSwitch 2.15.1 is too old: 2.17 or newer is needed\n",
    )
    assert host.snapshot() == before


def test_config_file(host: Host, tmp_path: Path) -> None:
    config = tmp_path / "host.conf"
    config.write_text(
        "# this host\nnic eth0\nnic eth1   # the second\n\nname node7\ncontroller "
        "tcp:10.255.0.1:6653\n"
    )
    host.script("host-up", "--config", str(config))
    assert "node7" in host.lab.vsctl(HOST, "get", "bridge", "br-ri2n", "other_config:dp-desc")
    config.write_text("nic eth0\nnics eth1\n")
    done = host.script("host-up", "--config", str(config), check=False)
    assert (done.returncode, f"{config}:2: unknown option nics" in done.stderr) == (2, True)


def test_ssl_files_are_set_and_put_back(host: Host, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("key.pem", "cert.pem", "ca.pem")]
    for file in files:
        file.write_text("")
    words = [
        word
        for kind, file in zip(("key", "cert", "ca"), files, strict=True)
        for word in (f"--ssl-{kind}", str(file))
    ]
    target = ["--controller", "ssl:10.255.0.1:6653"]
    nics = ["--nic", "eth0", "--nic", "eth1", "--datapath", host.lab.datapath]
    for old in ([], ["/old/key", "/old/cert", "/old/ca"]):
        if old:
            host.lab.vsctl(HOST, "set-ssl", *old)
        before = host.lab.vsctl(HOST, "get-ssl")
        host.script("host-up", *nics, *target, *words)
        assert all(str(file) in host.lab.vsctl(HOST, "get-ssl") for file in files)
        assert "nothing to do" in host.script("host-up", *nics, *target, *words).stdout
        host.script("host-down")
        assert host.lab.vsctl(HOST, "get-ssl") == before
    host.lab.vsctl(HOST, "del-ssl")


def test_status(host: Host) -> None:
    assert host.script("host-status", check=False).returncode == 2
    assert json.loads(host.script("host-status", "--json", check=False).stdout) == {
        "up": False,
        "bridge": "br-ri2n",
    }
    host.up()
    status = json.loads(host.script("host-status", "--json", check=False).stdout)
    assert (status["name"], status["mac"], status["datapath"]) == (
        "A",
        "06:00:00:00:01:01",
        host.lab.datapath,
    )
    assert [(nic["name"], nic["port"], nic["link"]) for nic in status["nics"]] == [
        ("eth0", 1, "up"),
        ("eth1", 2, "up"),
    ]
    (problem,) = status["problems"]
    assert problem["severity"] == "bad" and problem["advice"]
    assert problem["text"].startswith("controller tcp:10.255.0.1:6653 is not connected")
    host.lab.ofctl(HOST, "del-flows", "br-ri2n")
    assert "NIC eth0 has no start-up flow" in host.problems()


def test_status_tells_every_problem(host: Host) -> None:
    nics = ["--nic", "eth0", "--nic", "eth1", "--datapath", host.lab.datapath]
    host.script("host-up", *nics)
    assert host.script("host-status", check=False).returncode == 1
    assert host.problems() == [
        "no controller is set",
        "no controller has given this host flows yet",
    ]
    host.lab.vsctl(
        HOST,
        "set",
        "bridge",
        "br-ri2n",
        "fail_mode=standalone",
        "other_config:disable-in-band=false",
    )
    host.run("nft", "flush", "ruleset")
    host.run(
        "sh", "-ec", "ip addr flush dev br-ri2n; ip link set br-ri2n down; ip link set eth1 down"
    )
    host.lab.vsctl(HOST, "--timeout=60", "wait-until", "interface", "eth1", "link_state=down")
    # This is the index of the NIC that host-up has seen.
    (host.state / "br-ri2n" / "nic.eth0" / "index").write_text("999\n")
    status = host.script("host-status", check=False)
    problems = [
        line for line in status.stdout.splitlines() if line.startswith(("bad: ", "warning: "))
    ]
    assert status.returncode == 2
    assert problems == status.stdout.splitlines()[: len(problems)], "what is wrong comes first"
    assert problems == sorted(problems, key=lambda line: line.startswith("warning")), (
        "the worst first"
    )
    # The others are flows of the standalone bridge.
    said = {line.partition(": ")[2] for line in problems if "flows are nobody's" not in line}
    assert said - {
        f"NIC {nic} has no start-up flow: run host-up again" for nic in ("eth0", "eth1")
    } == {
        "br-ri2n is down: ip link set br-ri2n up",
        "fail_mode is not secure: flows would go when the controller does: run host-up again",
        "in-band control is not disabled: it can join networks into a loop: run host-up again",
        "br-ri2n has no address: give it the host's address",
        "NIC eth1 has no link: check its cable and its switch port",
        "NIC eth0 was replaced and may be deaf: run host-up again",
        "NIC eth0: the kernel answers beside Open vSwitch: run host-up again; it needs nftables",
        "NIC eth1: the kernel answers beside Open vSwitch: run host-up again; it needs nftables",
        "no start-up flow: after a restart the host would not find its controller: run host-up "
        "again",
        "no controller is set: run host-up with --controller",
    }


def test_one_at_a_time(host: Host, wait_until: WaitUntil) -> None:
    """A script waits for the one that works; the undo of --confirm waits as long as necessary."""
    lock = os.open(host.state, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def waits_s() -> list[int]:
            lines = [line.split() for line in host.processes().values()]
            return [int(words[2]) for words in lines if words[:2] == ["flock", "-w"]]

        undo = host.lab.popen(HOST, host.command("host-down", "--if-pending", "none"))
        wait_until(
            lambda: waits_s() == [86400], lambda: f"waiting for the lock: {waits_s()}", WAIT_S
        )
        up = host.lab.popen(HOST, host.command("host-up", *host.up_arguments))
        wait_until(
            lambda: sorted(waits_s()) == [60, 86400],
            lambda: f"waiting for the lock: {waits_s()}",
            WAIT_S,
        )
        assert not host.is_up
        assert not (host.state / "br-ri2n").exists()
    finally:
        os.close(lock)
    assert (undo.wait(WAIT_S), up.wait(WAIT_S)) == (0, 0)
    assert host.is_up
