# SPDX-License-Identifier: Apache-2.0
"""host-nic and host.conf: what it writes, and what is left where it fails or is killed.

The test's own programs stand in for host-up and Open vSwitch; test_host_nic has real ones.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .prepared_host import SCRIPTS, fake_program

CONFIG = """# Host A
nic eth0
  nic\teth1   # the second

name A # not its hostname
# nic eth9
bridge br-x
db unix:/nowhere/db.sock
state-dir {folder}
"""
# A host with NICs eth0 to eth4, of which the bridge has the first two.
FAKES = {
    "ovs-vsctl": """
        case "$*" in
        --version) echo 'ovs-vsctl (Open vSwitch) 3.3.0' ;;
        *list-br*) echo br-x ;;
        *ri2n-nic=*) printf '1,eth0\\n2,eth1\\n' ;;
        *dp-desc*) echo A ;;
        *hwaddr*) echo '"06:00:00:00:00:00"' ;;
        esac
    """,
    "ovs-ofctl": "",
    "ovs-appctl": "",
    "ip": """
        nic=${*: -1}
        case "$*" in
        *link*eth[0-4])
            n=${nic#eth}
            echo "$((n + 3)): $nic: <BROADCAST,UP> mtu 1500 \\ link/ether 04:00:00:00:00:0$n"
            ;;
        *link*) exit 1 ;;
        *addr*eth4*) echo "7: eth4 inet 192.0.2.9/24 scope global eth4" ;;
        esac
    """,
    "cat": """
        case "$*" in
        /sys/class/net/eth*/carrier) echo 1 ;;
        *) exec /bin/cat "$@" ;;
        esac
    """,
}
HOST_UP = """#!/bin/bash
[[ $* != *--check* && $* != *--dry-run* ]] || exit 0
nics=$(sed -n 's/^[[:space:]]*nic[[:space:]]*\\([^[:space:]]*\\).*/\\1/p' "$2" | paste -sd ' ')
echo "$nics" >>{folder}/runs
if [[ ${IN-} == host-up ]]; then kill -KILL 0; fi
[[ -z ${REFUSE-} || $nics != *$REFUSE* ]]
"""
# Whatever host-nic calls to write files may be the last that it does.
KILL = """
"REAL" "$@"; status=$?
echo "${0##*/} $*" >>FOLDER/calls
[[ $(wc -l <FOLDER/calls) != "${KILL_AT-}" ]] || kill -KILL 0
exit $status
"""


class Site:
    """A folder with host-nic, a host.conf, and programs in place of the system's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "host.conf"
        for script in ("host-nic", "common.sh", "addresses.sh", "limits.sh", "jobs.sh"):
            shutil.copy(SCRIPTS / script, folder)
        for name, text in FAKES.items():
            fake_program(folder / "programs", name, text)
        for name in ("mv", "cp", "sync"):
            fake_program(folder / "programs", name, KILL.replace("FOLDER", str(folder)))
        (folder / "host-up").write_text(HOST_UP.replace("{folder}", str(folder)))
        (folder / "host-up").chmod(0o755)
        self.text = CONFIG.format(folder=folder)
        self.config.write_text(self.text)
        self.config.chmod(0o600)

    def nic(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run host-nic."""
        for name in ("calls", "runs"):
            (self.folder / name).write_text("")
        return subprocess.run(
            [self.folder / "host-nic", "--config", self.config, *words],
            env={"PATH": f"{self.folder / 'programs'}:/usr/bin:/bin:/usr/sbin", **environment},
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,  # a kill takes all of it, as a loss of power does
        )

    def lines(self, name: str) -> list[str]:
        """What was called (`calls`), or with which NICs host-up was run (`runs`)."""
        return (self.folder / name).read_text().splitlines()

    def files(self) -> dict[str, str]:
        """host.conf, and what is beside it."""
        return {path.name: path.read_text() for path in self.folder.glob("host.conf*")}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_all_else_in_the_file_stays(site: Site) -> None:
    steps = {
        ("retire", "eth1"): ["nic eth0", "  nic\t-   # the second"],
        ("add", "eth2"): ["nic eth0", "  nic\teth2   # the second"],
        ("replace", "eth0", "eth3"): ["nic eth3", "  nic\teth2   # the second"],
        ("add", "eth1"): ["nic eth3", "  nic\teth2   # the second", "nic eth1"],
    }
    head, *_, tail = re.split(r"^\s*nic.*\n", site.text, flags=re.M)
    before = site.text
    for words, nics in steps.items():
        done = site.nic(*words)
        assert done.returncode == 0, done.stderr
        text = head + "\n".join(nics) + "\n" + tail
        assert site.files() == {"host.conf": text, "host.conf.before": before}, words
        assert "where cluster.yaml names NICs of A, " in done.stdout.splitlines()[-1]
        assert site.config.stat().st_mode & 0o777 == 0o600
        names = [line.split()[1] for line in nics]
        assert site.lines("runs") == [" ".join(names)], words
        assert site.nic(*words).returncode == 0
        assert site.files() == {"host.conf": text, "host.conf.before": before}, words
        assert site.lines("runs") == [" ".join(names)], words
        before = text


BAD = {
    "say what to do": [],
    "swap: must be ls, add, retire or replace": ["swap", "eth1"],
    "retire: name one NIC": ["retire"],
    "replace: name two NICs": ["replace", "eth1"],
    "ls: takes no NIC": ["ls", "eth1"],
    "'a/b': not the name of a NIC": ["add", "a/b"],
    "unknown option -": ["replace", "-", "eth2"],
    "eth9: there is no such NIC": ["add", "eth9"],
    "eth7: host.conf names no such NIC": ["replace", "eth7", "eth2"],
    "eth1: is NIC 2 of this host already": ["replace", "eth0", "eth1"],
    "eth4: has the address 192.0.2.9/24: take it off first": ["add", "eth4"],
    "cannot be read": ["--config", "/nonexistent", "ls"],
}


def test_bad_input_is_one_line_and_nothing_is_done(site: Site) -> None:
    for message, words in BAD.items():
        done = site.nic(*words)
        said = done.stderr.replace(str(site.config), "host.conf")
        assert (done.returncode, said.count("\n"), message in said) == (2, 1, True), said
        assert site.files() == {"host.conf": site.text} and not site.lines("runs")
    done = site.nic("--dry-run", "retire", "eth1")
    assert "\n+  nic\t-   # the second\n" in done.stdout
    assert site.files() == {"host.conf": site.text} and not site.lines("calls")


def test_the_last_nic_stays(site: Site) -> None:
    assert site.nic("retire", "eth0").returncode == 0
    for option in ([], ["--force"]):
        done = site.nic(*option, "retire", "eth1")
        assert (done.returncode, "is the host's last NIC" in done.stderr) == (2, True)


def test_what_host_up_refuses_is_put_back(site: Site) -> None:
    done = site.nic("replace", "eth1", "eth2", REFUSE="eth2")
    assert (done.returncode, "put back: " in done.stderr) == (1, True), done.stderr
    assert site.files() == {"host.conf": site.text}
    assert site.lines("runs") == ["eth0 eth2", "eth0 eth1"]


WORDS = ("replace", "eth1", "eth2")


def check_killed(site: Site, refused: str, points: list[str]) -> None:
    """Kill host-nic after each of these calls, or in host-up, and run it again."""
    new = site.text.replace("eth1 ", "eth2 ")
    right = site.text if refused else new
    for point in points:
        for name in site.files():
            (site.folder / name).unlink()
        site.config.write_text(site.text)
        done = site.nic(*WORDS, REFUSE=refused, KILL_AT=point, IN=point)
        assert done.returncode == -9, (point, done.stderr)
        killed = site.config.read_text()
        assert killed in (site.text, new), point
        # Somebody calls for something else; what was begun is brought to its end before.
        done = site.nic("retire", "eth7", REFUSE=refused)
        assert site.config.read_text() == (right if killed == new else site.text), point
        done = site.nic(*WORDS, REFUSE=refused)
        assert done.returncode == (1 if refused else 0), (point, done.stderr)
        assert site.config.read_text() == right, point
        assert set(site.files()) <= {"host.conf", "host.conf.before"}, point


@pytest.mark.parametrize("refused", ["", "eth2"], ids=["", "and host-up refuses it"])
def test_killed_in_host_up_it_is_finished_by_the_next_one(site: Site, refused: str) -> None:
    check_killed(site, refused, ["host-up"])


@pytest.mark.long
@pytest.mark.parametrize("refused", ["", "eth2"], ids=["", "and host-up refuses it"])
def test_killed_anywhere_it_is_finished_by_the_next_one(site: Site, refused: str) -> None:
    """The file is the old one or the new one, whenever it is looked at."""
    site.nic(*WORDS, REFUSE=refused)
    calls = len(site.lines("calls"))
    assert calls > 5
    check_killed(site, refused, [str(number) for number in range(1, calls + 1)])


def test_what_somebody_wrote_after_a_kill_is_not_put_back(site: Site) -> None:
    assert site.nic("retire", "eth1", IN="host-up").returncode == -9
    mine = site.text.replace("eth1", "eth3")
    site.config.write_text(mine)
    done = site.nic("retire", "eth7", REFUSE="eth3")
    assert (done.returncode, "repair what it says" in done.stderr) == (1, True)
    assert site.files() == {"host.conf": mine, "host.conf.before": site.text}
