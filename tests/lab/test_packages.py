# SPDX-License-Identifier: Apache-2.0
"""The Debian packages in a clean Debian with systemd: install, run, upgrade, remove and purge.

They are built twice: from the commit before this one, and from this checkout. RI2N_PACKAGES may
name a folder with packages that are built already, in `older` and `newer`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_debian import FORBIDDEN, RUNS_A_CLUSTER, stanzas

from .conftest import await_true
from .debian_box import MIRROR, DebianBox, bootstrap

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

ROOT = Path(__file__).resolve().parents[2]
OLDER, NEWER = "0.1.0+1", "0.1.0+2"
FOR_TESTS = (
    *("ifupdown", "network-manager", "python3-apt", "python3-jsonschema", "iputils-ping"),
    *("systemd", "systemd-sysv", "dbus"),
)
# Each of them is for one test.
NETWORK_TOOLS = (
    *("networking.service", "NetworkManager.service", "NetworkManager-dispatcher.service"),
    "NetworkManager-wait-online.service",
)
# What dpkg, systemd and Open vSwitch themselves write. Users of services stay (Debian's practice).
NOT_OURS = re.compile(
    r"/(var/(lib/dpkg|cache|log)|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$"
    r"|etc/openvswitch|var/lib/openvswitch|var/lib/systemd/|var/lib/libuuid/|etc/\.pwd\.lock)"
)
PATIENCE_S = 120.0
HARDWARE = "/etc/systemd/system/hardware.service"
# Two NICs that are there at every boot, and a machine at their other end.
HARDWARE_UNIT = """
[Unit]
DefaultDependencies=no
Before=network-pre.target openvswitch-switch.service ovs-vswitchd.service
Wants=network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash /usr/local/hardware
[Install]
WantedBy=multi-user.target
"""
HARDWARE_SCRIPT = """
set -e
ip link set lo up
ip netns add far
ip -n far link add br0 type bridge
ip -n far addr add 192.0.2.9/24 dev br0 && ip -n far link set br0 up
for nic in eth0 eth1; do
    ip link add $nic type veth peer name $nic netns far
    ip -n far link set $nic up
done
# Two ways to one bridge would be a loop before RI2N is there.
ip -n far link set eth0 master br0
"""
HOST_CONF = """nic eth0
nic eth1
name node1
datapath netdev
helper yes
controller tcp:127.0.0.1:6653
"""


def previous_commit(folder: Path) -> Path:
    """The files of the commit before this one; this checkout where there is none.

    With changes that are not committed, that is the newest commit.
    """
    git = ["git", "-C", str(ROOT)]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode == 1
    archive = folder / "previous.tar"
    argv = [*git, "archive", "-o", str(archive), "HEAD" if changed else "HEAD~1"]
    if subprocess.run(argv, check=False, capture_output=True).returncode != 0:
        return ROOT
    tree = folder / "previous"
    tree.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(tree)], check=True)
    # What cargo has built already need not be built again.
    (ROOT / "target").mkdir(exist_ok=True)
    (tree / "target").symlink_to(ROOT / "target")
    return tree


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the older and the newer packages."""
    named = os.environ.get("RI2N_PACKAGES")
    if named:
        return Path(named)
    folder = tmp_path_factory.mktemp("packages")
    for tree, version, name in (
        (previous_commit(folder), OLDER, "older"),
        (ROOT, NEWER, "newer"),
    ):
        argv = ["./dev", "deb", "--version", version, "--output", str(folder / name)]
        done = subprocess.run(argv, cwd=tree, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> Path:
    """A Debian with everything that the packages depend on, and nothing of them."""
    wanted = set(FOR_TESTS)
    for file in (packages / "newer").glob("*.deb"):
        argv = ["dpkg-deb", "--field", str(file), "Depends"]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        for alternatives in said.split(","):
            name = alternatives.split("|")[0].split("(")[0].strip()
            if not name.startswith("ri2n-"):
                wanted.add(name)
    folder = tmp_path_factory.mktemp("chroot")
    return bootstrap(folder, sorted(wanted), NETWORK_TOOLS)


@pytest.fixture
def box(tmp_path: Path, debian: Path, packages: Path) -> Iterator[DebianBox]:
    """A box in which nothing of RI2N was ever installed; a host with two NICs."""
    with DebianBox(tmp_path / "box", debian, packages) as made:
        made.path(HARDWARE).write_text(HARDWARE_UNIT)
        made.path("/usr/local/hardware").write_text(HARDWARE_SCRIPT)
        made.run("systemctl", "enable", "--now", "hardware.service")
        made.run("useradd", "--system", "alice")
        yield made


def install(box: DebianBox, packages: Path, version: str, *names: str) -> str:
    """Install these packages of `older` or `newer`, and return what that said."""
    files = [
        str(path)
        for path in sorted((packages / version).iterdir())
        if path.name.split("_")[0] in names
    ]
    assert len(files) == len(names)
    done = box.run("dpkg", "--install", *files)
    return done.stdout + done.stderr


def version_of(box: DebianBox, name: str) -> str:
    return box.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name).stdout


def is_active(box: DebianBox, unit: str) -> bool:
    return box.run("systemctl", "is-active", unit, check=False).stdout == "active\n"


def status(box: DebianBox) -> dict[str, object] | None:
    """What `ri2n status` says; None when no controller answers."""
    done = box.run("ri2n", "status", "--json", check=False)
    if not done.stdout.startswith("{"):
        return None
    found: dict[str, object] = json.loads(done.stdout)
    return found


def await_host(box: DebianBox) -> None:
    """Wait until the controller has the host."""
    await_true(
        lambda: '"node1"' in json.dumps((status(box) or {}).get("hosts")),
        lambda: box.journal("ri2n-host", "ri2n-controller") + box.run("ri2n", "status").stdout,
        PATIENCE_S,
    )


def address(box: DebianBox, device: str = "eth0") -> None:
    """Give the host its address by hand."""
    box.sh(f"ip addr add 192.0.2.1/24 dev {device}; ip link set eth0 up; ip link set eth1 up")


def reaches(box: DebianBox) -> bool:
    """Whether the machine at the NICs' other end answers."""
    return box.run("ping", "-q", "-c1", "-W1", "192.0.2.9", check=False).returncode == 0


def left_since(box: DebianBox, before: set[str]) -> set[str]:
    """The files that have come since, without those of others."""
    return {path for path in box.files() - before if not NOT_OURS.match(path)}


def closure(box: DebianBox, name: str) -> set[str]:
    """The package, and all installed packages that it pulls in."""
    form = "${Package}|${Provides}|${Depends}, ${Pre-Depends}\n"
    needs: dict[str, set[str]] = {}
    provided: dict[str, set[str]] = {}
    for line in box.run("dpkg-query", "-W", "-f", form).stdout.splitlines():
        package, provides, depends = line.split("|", 2)
        needs[package] = set(re.findall(r"(?:^|[,|])\s*([a-z0-9.+-]+)", depends))
        for each in {package, *re.findall(r"(?:^|,)\s*([a-z0-9.+-]+)", provides)}:
            provided.setdefault(each, set()).add(package)
    found, todo = set(), {name}
    while todo:
        package = todo.pop()
        found.add(package)
        for need in needs[package]:
            todo |= provided.get(need, set()) - found
    return found


def addresses(box: DebianBox, device: str) -> str:
    return box.run("ip", "-o", "addr", "show", "dev", device, check=False).stdout


def startup_flows(box: DebianBox) -> set[str]:
    """The rows by which the bridge forwards without a controller.

    Rows that are learned from frames come and go, and a controller adds its own.
    """
    argv = ["ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", "br-ri2n"]
    rows = box.run(*argv).stdout.splitlines()
    return {row for row in rows if "cookie=0x5249" in row and "idle_timeout" not in row}


def test_a_controller_lives_through_upgrade_and_removal(box: DebianBox, packages: Path) -> None:
    before = box.files()
    # The controller comes before Open vSwitch runs, and before any host.
    box.run("systemctl", "stop", "openvswitch-switch")
    install(box, packages, "older", "ri2n-controller")
    assert box.run("id", "-un", "ri2n-controller").stdout == "ri2n-controller\n"
    await_true(lambda: status(box), lambda: box.journal("ri2n-controller"), PATIENCE_S)
    assert is_active(box, "ri2n-controller")
    assert box.run("systemctl", "is-enabled", "ri2n-controller").stdout == "enabled\n"
    stored = "/var/lib/ri2n-controller/ri2n.db"
    assert box.exists(stored)
    box.run("ri2n", "rights", "set", "alice", "--reserve", "--policies", "shared,paths")
    said = box.run("ri2n", "check-config", "/etc/ri2n/cluster.yaml").stdout
    assert "good cluster.yaml" in said

    box.path("/etc/ri2n/cluster.yaml").write_text("strategy: ri2n_plus\n")
    first = status(box)
    install(box, packages, "newer", "ri2n-controller")
    assert version_of(box, "ri2n-controller") == f"installed {NEWER}"
    # It is started anew before dpkg ends, because the unit says when it is ready.
    found = status(box)
    assert first and found and found["pid"] != first["pid"] and found["strategy"] == "ri2n_plus"
    # It reads rights again when the first host has connected; until then they are in the file.
    assert "alice" in box.path(stored).read_text()
    assert box.path(stored).stat().st_mode & 0o77 == 0

    web = box.run("stat", "-c", "%a %G", "/run/ri2n-controller/controller-web.sock").stdout
    assert web == "660 ri2n-web\n"

    # A controller that hangs is ended by the watchdog, here a more impatient one.
    more = "/run/systemd/system/ri2n-controller.service.d/impatient.conf"
    box.sh(f"mkdir -p {more.rpartition('/')[0]}; printf '[Service]\\nWatchdogSec=5s\\n' >{more}")
    box.sh("systemctl daemon-reload; systemctl restart ri2n-controller")
    pid = (status(box) or {})["pid"]
    box.run("kill", "-STOP", str(pid))
    stopped = ("--property=MainPID", "--value", "ri2n-controller")
    await_true(
        lambda: box.run("systemctl", "show", *stopped).stdout.strip() not in ("0", str(pid)),
        lambda: box.journal("ri2n-controller"),
        PATIENCE_S,
    )
    await_true(
        lambda: (
            is_active(box, "ri2n-controller") and (status(box) or {}).get("pid") not in (None, pid)
        ),
        lambda: box.journal("ri2n-controller"),
        PATIENCE_S,
    )
    assert "Watchdog timeout" in box.journal("ri2n-controller")

    box.run("dpkg", "--remove", "ri2n-controller")
    assert box.exists(stored) and box.exists("/etc/ri2n/cluster.yaml")
    assert not box.exists("/usr/lib/ri2n") and not box.exists("/usr/bin/ri2n")
    assert not is_active(box, "ri2n-controller") and not box.exists("/run/ri2n-controller")
    box.run("dpkg", "--purge", "ri2n-controller")
    assert not left_since(box, before) and not box.exists("/etc/ri2n")


def test_the_controller_may_come_before_open_vswitch_and_after_it(
    box: DebianBox, packages: Path
) -> None:
    box.run("systemctl", "stop", "openvswitch-switch")
    install(box, packages, "newer", "ri2n-controller", "ri2n-host")
    box.path("/etc/ri2n/host.conf").write_text(HOST_CONF)
    address(box)
    # First the controller, then Open vSwitch, which ri2n-host starts.
    await_true(lambda: status(box), "no controller", PATIENCE_S)
    box.run("systemctl", "enable", "--now", "ri2n-host", "ri2n-reorder")
    assert is_active(box, "openvswitch-switch")
    await_host(box)
    for unit in ("ri2n-host", "ri2n-host-watch", "ri2n-reorder"):
        assert is_active(box, unit), box.journal(unit)
    doctor = json.loads(box.run("host-doctor", "--json", check=False).stdout)
    assert not [each for each in doctor["findings"] if each["verdict"] == "bad"], doctor
    # As hardly any power is left to it, it must still be able to read all and to write its file.
    written = "/var/lib/prometheus/node-exporter"
    box.sh(f"mkdir -p {written}; chown alice: {written}; systemctl start ri2n-host-metrics")
    metrics = box.path(f"{written}/ri2n.prom").read_text()
    assert 'ri2n_node_bridge_up{bridge="br-ri2n"} 1' in metrics, metrics
    assert 'ri2n_node_nic_up{nic="eth0"} 1' in metrics, metrics
    assert "ri2n_node_helper_up 1" in metrics and "events_total{" in metrics, metrics
    assert 'ri2n_node_controller_connected{target="tcp:127.0.0.1:6653"} 1' in metrics, metrics
    # First Open vSwitch, then the controller.
    box.run("systemctl", "stop", "ri2n-controller")
    box.run("systemctl", "restart", "openvswitch-switch")
    await_true(lambda: is_active(box, "ri2n-host"), lambda: box.journal("ri2n-host"), PATIENCE_S)
    assert startup_flows(box)
    box.run("systemctl", "start", "ri2n-controller")
    await_host(box)
    # All at once, at a boot.
    box.cut_power()
    box.boot()
    await_host(box)
    address(box, "br-ri2n")  # here nothing else configures the network
    await_true(lambda: reaches(box), "no answer", PATIENCE_S)
    for unit in ("ri2n-host-watch", "ri2n-reorder"):
        assert is_active(box, unit), box.journal(unit)


def test_a_host_goes_on_through_an_upgrade_and_gets_its_network_back(
    box: DebianBox, packages: Path
) -> None:
    address(box)
    before = box.files()
    said = install(box, packages, "older", "ri2n-host", "ri2n-controller")
    assert "the network is as before" in said
    assert not box.run("ovs-vsctl", "list-br").stdout and "192.0.2.1/24" in addresses(box, "eth0")
    assert not any(is_active(box, unit) for unit in ("ri2n-host", "ri2n-host-watch"))

    box.path("/etc/ri2n/host.conf").write_text(HOST_CONF)
    box.run("systemctl", "enable", "--now", "ri2n-host")
    assert "192.0.2.1/24" in addresses(box, "br-ri2n")
    await_host(box)
    box.run("ri2n", "rights", "set", "alice", "--reserve", "--policies", "shared,paths")

    rows, switch = startup_flows(box), box.path("/run/openvswitch/ovs-vswitchd.pid").read_text()
    pings = box.start("ping", "-i", "0.2", "192.0.2.9", log="/tmp/ping.log")
    await_true(lambda: "icmp_seq=3 " in box.path("/tmp/ping.log").read_text(), "no answer")
    said = install(box, packages, "newer", "ri2n-host", "ri2n-controller")
    assert "the bridge goes on" in said
    box.sh("kill -INT $(pidof ping)")
    pings.wait()
    counts = re.search(
        r"(\d+) packets transmitted, (\d+) received", box.path("/tmp/ping.log").read_text()
    )
    assert counts is not None and int(counts[2]) >= int(counts[1]) - 1
    assert rows and startup_flows(box) == rows
    assert box.path("/run/openvswitch/ovs-vswitchd.pid").read_text() == switch
    await_host(box)
    await_true(
        lambda: "alice" in box.run("ri2n", "rights", "ls").stdout, "rights are lost", PATIENCE_S
    )
    await_true(
        lambda: is_active(box, "ri2n-host-watch"),
        lambda: box.journal("ri2n-host-watch"),
        PATIENCE_S,
    )

    box.run("dpkg", "--remove", "ri2n-host")
    assert not box.run("ovs-vsctl", "list-br").stdout
    assert "192.0.2.1/24" in addresses(box, "eth0")
    await_true(lambda: reaches(box), "no answer", PATIENCE_S)
    assert box.exists("/etc/ri2n/host.conf") and not box.exists("/usr/sbin/host-up")
    assert not any(is_active(box, unit) for unit in ("ri2n-host", "ri2n-host-watch"))
    box.run("dpkg", "--purge", "ri2n-host", "ri2n-controller")
    assert not left_since(box, before)
    assert not box.exists("/etc/ri2n") and not box.exists("/var/lib/ri2n")


def test_a_host_whose_network_cannot_be_restored_keeps_the_package(
    box: DebianBox, packages: Path
) -> None:
    address(box)
    install(box, packages, "newer", "ri2n-host")
    box.run("host-up", "--nic", "eth0", "--name", "node1", "--datapath", "netdev")
    box.run("systemctl", "stop", "openvswitch-switch", "ovs-vswitchd", "ovsdb-server")
    done = box.run("dpkg", "--remove", "ri2n-host", check=False)
    assert done.returncode != 0 and "the package stays" in done.stderr
    # The NICs are restored all the same, and the package goes as soon as the rest can be.
    assert "192.0.2.1/24" in addresses(box, "eth0") and box.exists("/usr/sbin/host-down")
    assert version_of(box, "ri2n-host").startswith("installed ")
    box.run("systemctl", "start", "openvswitch-switch")
    box.run("dpkg", "--remove", "ri2n-host")
    assert not box.run("ovs-vsctl", "list-br").stdout


def test_the_web_process_reaches_the_controller_and_nothing_else_of_it(
    box: DebianBox, packages: Path
) -> None:
    before = box.files()
    # The order does not matter: here it comes together with the controller.
    install(box, packages, "newer", "ri2n-controller", "ri2n-web")
    assert is_active(box, "ri2n-web"), box.journal("ri2n-web")

    def ask(path: str) -> str:
        script = (
            f"from urllib.request import *; print(urlopen('http://127.0.0.1:8420{path}').read())"
        )
        return box.run("python3", "-c", script, check=False).stdout

    await_true(lambda: "ri2n_" in ask("/metrics"), lambda: box.journal("ri2n-web"), PATIENCE_S)
    await_true(lambda: "html" in ask("/").lower(), lambda: box.journal("ri2n-web"), PATIENCE_S)
    assert box.run("stat", "-c", "%a %U", "/var/lib/ri2n-web").stdout == "700 ri2n-web\n"
    secrets = [path for path in box.path("/var/lib/ri2n-web").iterdir() if path.is_file()]
    assert secrets and all(path.stat().st_mode & 0o77 == 0 for path in secrets)
    as_web = ["setpriv", "--reuid=ri2n-web", "--regid=ri2n-web", "--init-groups", "--"]
    for path in ("/var/lib/ri2n-controller/ri2n.db", "/run/ri2n-controller/controller.sock"):
        assert box.run(*as_web, "test", "-w", path, check=False).returncode == 1, path
    assert box.run(*as_web, "test", "-w", "/run/ri2n-controller/controller-web.sock")

    # The controller goes and comes: the web process does not end.
    pid = box.run("systemctl", "show", "--property=MainPID", "ri2n-web").stdout
    box.run("systemctl", "restart", "ri2n-controller")
    await_true(lambda: "ri2n_" in ask("/metrics"), lambda: box.journal("ri2n-web"), PATIENCE_S)
    assert box.run("systemctl", "show", "--property=MainPID", "ri2n-web").stdout == pid
    # Nobody else is served without TLS and tokens.
    box.path("/etc/ri2n/web.conf").write_text("RI2N_WEB_OPTIONS=--listen 0.0.0.0:8420\n")
    box.run("systemctl", "restart", "ri2n-web", check=False)
    await_true(
        lambda: "only with TLS" in box.journal("ri2n-web"),
        lambda: box.journal("ri2n-web"),
        PATIENCE_S,
    )

    box.run("dpkg", "--remove", "ri2n-web")
    assert not is_active(box, "ri2n-web") and is_active(box, "ri2n-controller")
    box.run("dpkg", "--purge", "ri2n-web", "ri2n-controller")
    assert not left_since(box, before)


@pytest.mark.parametrize("tool", ["ifupdown", "NetworkManager", "systemd-networkd"])
def test_a_host_comes_back_after_a_reboot(box: DebianBox, packages: Path, tool: str) -> None:
    """With the package's examples, without a controller, and without a hand."""
    address(box)
    install(box, packages, "newer", "ri2n-host")
    examples = f"/usr/share/doc/ri2n-host/examples/{tool}"
    box.path("/etc/ri2n/host.conf").write_text(HOST_CONF)
    box.run("systemctl", "enable", "--now", "ri2n-host")
    if tool == "ifupdown":
        box.sh(f"cp {examples}/ri2n /etc/network/interfaces.d/ && systemctl enable networking")
    elif tool == "NetworkManager":
        box.sh(
            f"cd {examples}; cp 90-ri2n.conf /etc/NetworkManager/conf.d/;"
            "install -m 600 br-ri2n.nmconnection /etc/NetworkManager/system-connections/;"
            # To NetworkManager, a bridge with the datapath netdev is a TAP, as the file says.
            "sed -i 's/^type=generic/type=tun/' "
            "/etc/NetworkManager/system-connections/br-ri2n.nmconnection;"
            "printf '\\n[tun]\\nmode=2\\n' "
            ">>/etc/NetworkManager/system-connections/br-ri2n.nmconnection;"
            "systemctl enable NetworkManager"
        )
    else:
        box.sh(f"cp {examples}/* /etc/systemd/network/ && systemctl enable systemd-networkd")
    box.cut_power()
    box.boot()
    unit = {"ifupdown": "networking", "NetworkManager": "NetworkManager"}.get(tool, tool)
    await_true(
        lambda: "192.0.2.1/24" in addresses(box, "br-ri2n"),
        lambda: box.journal("ri2n-host", unit) + box.run("ip", "addr").stdout,
        PATIENCE_S,
    )
    await_true(lambda: reaches(box), lambda: box.journal("ri2n-host", unit), PATIENCE_S)
    assert not addresses(box, "eth0").count(" inet ")
    await_true(
        lambda: "via 192.0.2.254" in box.run("ip", "route").stdout,
        lambda: box.journal("ri2n-host", unit) + box.run("ip", "route").stdout,
        PATIENCE_S,
    )


def test_piuparts_finds_nothing(debian: Path, packages: Path, tmp_path: Path) -> None:
    """Debian's own test: installed, removed and purged, nothing is left and no file is broken."""
    if shutil.which("piuparts") is None:
        pytest.skip("needs piuparts: apt install piuparts")
    chroot = tmp_path / "chroot"
    subprocess.run(["cp", "-ax", str(debian), str(chroot)], check=True)
    files = [
        str(path)
        for path in sorted((packages / "newer").iterdir())
        if path.name.split("_")[0] in RUNS_A_CLUSTER
    ]
    # What it mounts in the chroot goes with it if it is killed.
    argv = ["unshare", "--mount", "piuparts", f"--existing-chroot={chroot}"]
    argv += ["--distribution=bookworm"]
    argv += [f"--mirror={MIRROR} main", f"--tmpdir={tmp_path}", "--no-eatmydata", *files]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "PASS: Installation and purging test." in done.stdout


def test_what_runs_a_cluster_has_no_compiler_and_no_test_tool(
    box: DebianBox, packages: Path
) -> None:
    install(box, packages, "newer", *RUNS_A_CLUSTER)
    for name in RUNS_A_CLUSTER:
        pulled = closure(box, name)
        assert {"ri2n-host": "nftables"}.get(name, "python3") in pulled
        assert not {each for each in pulled if FORBIDDEN.fullmatch(each)}
    listing = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    python = "/usr/lib/ri2n/venv/bin/python3"
    names = {name.lower() for name in box.run(python, "-I", "-c", listing).stdout.split()}
    assert {"ri2n-sdn", "os-ken"} <= names
    assert not names & {
        "pip",
        "pytest",
        "hypothesis",
        "mypy",
        "ruff",
        "networkx",
        "matplotlib",
        "mpi4py",
        "ri2n-lab",
    }
    # Every extension module finds what it needs.
    missing = box.sh(
        "find /usr/lib/ri2n -name '*.so' -not -path '*.libs/*' -exec ldd {} + | grep 'not found'",
        check=False,
    )
    assert not missing.stdout


def test_a_lab_joins_the_command_of_the_controller(box: DebianBox, packages: Path) -> None:
    install(box, packages, "newer", *stanzas())
    said = box.run("ri2n", "--help").stdout
    assert all(re.search(rf"\b{word}\b", said) for word in ("lab", "bench", "demo", "cp", "status"))
    assert "fig4/d" in box.run("ri2n", "lab", "up", "nowhere", check=False).stderr
    before = box.files()
    box.run("dpkg", "--purge", "ri2n-lab")
    assert box.files() < before and box.run("ri2n", "--version").stdout


def test_editors_and_network_tools_take_the_files_that_come_along(
    box: DebianBox, packages: Path
) -> None:
    install(box, packages, "newer", *RUNS_A_CLUSTER)
    script = """
import json, jsonschema
schema = json.load(open("/usr/share/ri2n/cluster.schema.json"))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
good = [{}, {"strategy": "max_min", "slots": 128, "striping": "off"},
        {"hosts": {"A": {"nics": {"eth0": {"rate_bps": 5, "network": "x"}}}}},
        {"by_flows": [{"proto": "tcp", "port": 22}], "vlans": {"ids": [5, 6]}},
        {"switches": {"s1": {"links": [{"to": "s2", "port": 1, "rate_bps": 10}]}}}]
bad = [{"colour": "red"}, {"strategy": "best"}, {"slots": 100}, {"hbspan_s": {"min": 0}},
       {"hosts": {"A": {"nics": {"eth0": {"rate": 1}}}}}, {"by_flows": [{"port": 0}]},
       {"hosts": {"A": {"extra_macs": ["01:00:00:00:00:00"]}}}, [1]]
print([each for each in good if not validator.is_valid(each)]
      + [each for each in bad if validator.is_valid(each)])
"""
    assert box.run("python3", "-c", script).stdout == "[]\n"
    example = "/usr/share/doc/ri2n-host/examples/ifupdown/ri2n"
    said = box.run("ifup", "--no-act", "--verbose", "--force", "-i", example, "br-ri2n").stderr
    assert "192.0.2.1" in said and "default via 192.0.2.254" in said
