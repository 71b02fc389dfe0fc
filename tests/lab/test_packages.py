"""The Debian packages in a clean Debian: install, run, upgrade, remove and purge.

They are built twice from this checkout, as an older and as a newer version, and installed in boxes
without systemd. What systemd would start, the tests start as its unit says. RI2N_PACKAGES may name
a folder with packages that are built already, in `older` and `newer`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_debian import FORBIDDEN, RUNS_A_CLUSTER, stanzas

from .conftest import await_true
from .debian_box import DebianBox, bootstrap

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

ROOT = Path(__file__).resolve().parents[2]
OLDER, NEWER = "0.1.0+1", "0.1.0+2"
FOR_TESTS = ("ifupdown", "python3-jsonschema", "iputils-ping", "systemd")
UNIT = "/lib/systemd/system/ri2n-controller.service"
# What dpkg and Open vSwitch themselves write. The user of the controller stays (Debian's practice).
NOT_OURS = re.compile(
    r"/(var/(lib/dpkg|cache|log)|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$"
    r"|etc/openvswitch|var/lib/openvswitch|var/lib/systemd$|etc/\.pwd\.lock)"
)
OVS = """
mkdir -p /run/openvswitch /etc/openvswitch
[ -e /etc/openvswitch/conf.db ] ||
    ovsdb-tool create /etc/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server /etc/openvswitch/conf.db --remote=punix:/run/openvswitch/db.sock --pidfile --detach \
    --log-file=/tmp/ovsdb-server.log >/dev/null 2>&1
ovs-vsctl --no-wait init
ovs-vswitchd --pidfile --detach --disable-system --log-file=/tmp/ovs-vswitchd.log >/dev/null 2>&1
"""
NETWORK = """
ip netns add far
ip link add eth0 type veth peer name far0 netns far
ip addr add 192.0.2.1/24 dev eth0 && ip link set eth0 up
ip -n far addr add 192.0.2.9/24 dev far0 && ip -n far link set far0 up
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the older and the newer packages."""
    named = os.environ.get("RI2N_PACKAGES")
    if named:
        return Path(named)
    folder = tmp_path_factory.mktemp("packages")
    for version, name in ((OLDER, "older"), (NEWER, "newer")):
        argv = ["./dev", "deb", "--version", version, "--output", str(folder / name)]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> Path:
    """A Debian with everything that the packages depend on, and nothing of them."""
    wanted = set(FOR_TESTS)
    for file in (packages / "older").glob("*.deb"):
        argv = ["dpkg-deb", "--field", str(file), "Depends"]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        for alternatives in said.split(","):
            name = alternatives.split("|")[0].split("(")[0].strip()
            if not name.startswith("ri2n-"):
                wanted.add(name)
    return bootstrap(tmp_path_factory.mktemp("chroot"), sorted(wanted))


@pytest.fixture
def box(tmp_path: Path, debian: Path, packages: Path) -> Iterator[DebianBox]:
    """A box in which nothing of RI2N was ever installed."""
    with DebianBox(tmp_path / "box", debian, packages) as made:
        yield made


def install(box: DebianBox, version: str, *names: str) -> str:
    """Install these packages of `older` or `newer`, and return what that said."""
    files = [
        f"/mnt/{version}/{path.name}"
        for path in sorted(box.path(f"/mnt/{version}").iterdir())
        if path.name.split("_")[0] in names
    ]
    assert len(files) == len(names)
    done = box.run("dpkg", "--install", *files)
    return done.stdout + done.stderr


def version_of(box: DebianBox, name: str) -> str:
    return box.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name).stdout


def start_controller(box: DebianBox) -> subprocess.Popen[bytes]:
    """Run the unit's command as its user, in its folders, as systemd would."""
    lines = re.findall(r"^(\w+)=(.*)$", box.path(UNIT).read_text(), flags=re.M)
    unit = dict(lines)
    user = unit["User"]
    settings = [value for key, value in lines if key == "Environment"]
    for line in box.path(unit["EnvironmentFile"].lstrip("-")).read_text().splitlines():
        if line and not line.startswith("#"):
            settings.append(line)
    state, runtime = f"/var/lib/{unit['StateDirectory']}", f"/run/{unit['RuntimeDirectory']}"
    box.run("install", "-d", "-m", unit["StateDirectoryMode"], "-o", user, "-g", user, state)
    box.run("install", "-d", "-m", "755", "-o", user, "-g", user, runtime)
    become = ["setpriv", f"--reuid={user}", f"--regid={unit['Group']}", "--clear-groups"]
    command = [*become, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--", "env"]
    script = f"umask {unit['UMask']}; exec {unit['ExecStart']}"
    started = box.start(*command, *settings, "sh", "-c", script, log="/tmp/controller.log")
    await_true(lambda: status(box) is not None, lambda: box.path("/tmp/controller.log").read_text())
    return started


def stop_controller(box: DebianBox, started: subprocess.Popen[bytes]) -> None:
    found = status(box)
    assert found is not None
    box.run("kill", str(found["pid"]))
    started.wait()


def status(box: DebianBox) -> dict[str, object] | None:
    """What `ri2n status` says; None when no controller answers."""
    done = box.run("ri2n", "status", "--json", check=False)
    if not done.stdout.startswith("{"):
        return None
    found: dict[str, object] = json.loads(done.stdout)
    return found


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


def test_a_controller_lives_through_upgrade_and_removal(box: DebianBox) -> None:
    before = box.files()
    install(box, "older", "ri2n-controller")
    assert box.run("id", "-un", "ri2n-controller").stdout == "ri2n-controller\n"
    # The controller comes before Open vSwitch, and before any host.
    running = start_controller(box)
    stored = "/var/lib/ri2n-controller/ri2n.db"
    assert box.exists(stored)
    inode = box.path(stored).stat().st_ino
    said = box.run("ri2n", "check-config", "/etc/ri2n/cluster.yaml").stdout
    assert "good cluster.yaml" in said

    box.path("/etc/ri2n/cluster.yaml").write_text("strategy: ri2n_plus\n")
    install(box, "newer", "ri2n-controller")
    assert version_of(box, "ri2n-controller") == f"installed {NEWER}"
    stop_controller(box, running)
    running = start_controller(box)
    found = status(box)
    assert found is not None and found["strategy"] == "ri2n_plus"
    assert box.path(stored).stat().st_ino == inode
    stop_controller(box, running)

    box.run("dpkg", "--remove", "ri2n-controller")
    assert box.exists(stored) and box.exists("/etc/ri2n/cluster.yaml")
    assert not box.exists("/usr/lib/ri2n") and not box.exists("/usr/bin/ri2n")
    box.run("dpkg", "--purge", "ri2n-controller")
    left = {path for path in box.files() - before if not NOT_OURS.match(path)}
    assert not left and not box.exists("/etc/ri2n")


def test_a_host_goes_on_through_an_upgrade_and_gets_its_network_back(box: DebianBox) -> None:
    box.sh(NETWORK + OVS)
    before = box.files()
    said = install(box, "older", "ri2n-host", "ri2n-controller")
    assert "the network is as before" in said
    assert not box.run("ovs-vsctl", "list-br").stdout and "192.0.2.1/24" in addresses(box, "eth0")

    running = start_controller(box)
    box.path("/etc/ri2n/host.conf").write_text(
        "nic eth0\nname node1\ndatapath netdev\nhelper yes\ncontroller tcp:127.0.0.1:6653\n"
    )
    box.run("host-up", "--config", "/etc/ri2n/host.conf")
    assert "192.0.2.1/24" in addresses(box, "br-ri2n")
    await_true(
        lambda: "node1" in json.dumps((status(box) or {}).get("hosts")), "node1 does not connect"
    )
    doctor = json.loads(box.run("host-doctor", "--json", check=False).stdout)
    assert not [each for each in doctor["findings"] if each["verdict"] == "bad"], doctor

    rows, switch = startup_flows(box), box.path("/run/openvswitch/ovs-vswitchd.pid").read_text()
    pings = box.start("ping", "-i", "0.2", "192.0.2.9", log="/tmp/ping.log")
    await_true(lambda: "icmp_seq=3 " in box.path("/tmp/ping.log").read_text(), "no answer")
    said = install(box, "newer", "ri2n-host", "ri2n-controller")
    assert "the bridge goes on" in said
    box.sh("kill -INT $(pidof ping)")
    pings.wait()
    counts = re.search(
        r"(\d+) packets transmitted, (\d+) received", box.path("/tmp/ping.log").read_text()
    )
    assert counts is not None and int(counts[2]) >= int(counts[1]) - 1
    assert rows and startup_flows(box) == rows
    assert box.path("/run/openvswitch/ovs-vswitchd.pid").read_text() == switch
    stop_controller(box, running)

    box.run("dpkg", "--remove", "ri2n-host")
    assert not box.run("ovs-vsctl", "list-br").stdout
    assert "192.0.2.1/24" in addresses(box, "eth0")
    box.run("ping", "-c", "1", "-W", "60", "192.0.2.9")
    assert box.exists("/etc/ri2n/host.conf") and not box.exists("/usr/sbin/host-up")
    box.run("dpkg", "--purge", "ri2n-host", "ri2n-controller")
    left = {path for path in box.files() - before if not NOT_OURS.match(path)}
    assert not left and not box.exists("/etc/ri2n") and not box.exists("/var/lib/ri2n")


def test_a_host_whose_network_cannot_be_restored_keeps_the_package(box: DebianBox) -> None:
    box.sh(NETWORK + OVS)
    install(box, "older", "ri2n-host")
    box.run("host-up", "--nic", "eth0", "--name", "node1", "--datapath", "netdev")
    for name in ("ovs-vswitchd", "ovsdb-server"):
        box.sh(f"kill -{int(signal.SIGKILL)} $(cat /run/openvswitch/{name}.pid)")
    done = box.run("dpkg", "--remove", "ri2n-host", check=False)
    assert done.returncode != 0 and "the package stays" in done.stderr
    # The NICs are restored all the same, and the package goes as soon as the rest can be.
    assert "192.0.2.1/24" in addresses(box, "eth0") and box.exists("/usr/sbin/host-down")
    assert version_of(box, "ri2n-host").startswith("installed ")
    box.sh(OVS)
    box.run("dpkg", "--remove", "ri2n-host")
    assert not box.run("ovs-vsctl", "list-br").stdout


def test_what_runs_a_cluster_has_no_compiler_and_no_test_tool(box: DebianBox) -> None:
    install(box, "older", *RUNS_A_CLUSTER)
    for name in RUNS_A_CLUSTER:
        pulled = closure(box, name)
        assert {"ri2n-host": "nftables", "ri2n-controller": "python3"}[name] in pulled
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


def test_a_lab_joins_the_command_of_the_controller(box: DebianBox) -> None:
    install(box, "older", *stanzas())
    said = box.run("ri2n", "--help").stdout
    assert all(re.search(rf"\b{word}\b", said) for word in ("lab", "bench", "demo", "cp", "status"))
    assert "fig4/d" in box.run("ri2n", "lab", "up", "nowhere", check=False).stderr
    before = box.files()
    box.run("dpkg", "--purge", "ri2n-lab")
    assert box.files() < before and box.run("ri2n", "--version").stdout


def test_editors_and_network_tools_take_the_files_that_come_along(box: DebianBox) -> None:
    install(box, "older", *RUNS_A_CLUSTER)
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
