# SPDX-License-Identifier: Apache-2.0
"""Which Debian packages `./dev` installs, and that `./dev uninstall` removes those alone.

apt-get, apt-mark and dpkg-query stand in for Debian's: of the packages that they know, a file of
the checkout has one a line.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab.guide import Terminal
from tests.unit.dev_checkout import dev, environment, make_checkout
from tests.waiting import LONG_S

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="packages need root")

APT_GET = """#!/bin/bash
echo "apt-get $*" >>apt-asked
case " $* " in
*' --assume-no '*)
    echo 'Need to get 12.3 MB of archives.'
    echo 'After this operation, 45.6 MB of additional disk space will be used.'
    exit 1
    ;;
*' -s autoremove '*) sed 's/^/Remv /' unneeded ;;
*' -s purge '*) for name in "${@:3}" $(cat dragged 2>/dev/null); do echo "Purg $name [1.0]"; done ;;
*' -y '*' install '*) printf '%s\\n' "${@:8}" libnew >>installed; touch arrived ;;
*' -y '*' purge '*) ;;
esac
"""
DPKG_QUERY = "#!/bin/sh\nsed 's/^/ii  /' installed\n"
MISSING = (
    *("ovs-vswitchd", "ovs-vsctl", "iperf3", "ip", "tc", "ethtool", "nft", "ping", "ps", "sysctl"),
    *("modprobe", "chromium", "tcpdump", "srun", "mpirun"),
)
DEMO = {
    *("openvswitch-switch", "iperf3", "iproute2", "ethtool", "nftables", "iputils-ping"),
    *("procps", "kmod"),
}
COMMAND = f"""() {{
    [[ -e arrived || " {" ".join(MISSING)} " != *" $2 "* ]] && builtin command "$@"
}}"""
"""Bash takes this for its `command`: programs are missing until apt-get has installed something."""

MORE = {"BASH_FUNC_command%%": COMMAND}
RECORD = "machine/var/lib/ri2n-dev/packages"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    made = make_checkout(tmp_path)
    for name, text in (
        ("apt-get", APT_GET),
        ("apt-mark", "#!/bin/sh\ncat >/dev/null\n"),
        ("dpkg-query", DPKG_QUERY),
    ):
        (made / "programs" / name).write_text(text)
        (made / "programs" / name).chmod(0o755)
    (made / "installed").write_text("bash\npython3\n")
    (made / "machine/usr/sbin").mkdir(parents=True)
    return made


def apt_asked(checkout: Path, *words: str) -> list[str]:
    """The calls of apt-get with all of these words."""
    path = checkout / "apt-asked"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if all(f" {word} " in f"{line} " for word in words)]


def installs(checkout: Path) -> set[str]:
    """What apt-get was asked to install."""
    (line,) = apt_asked(checkout, "-y", "install")
    return set(line.partition("--no-install-recommends ")[2].split())


def test_the_demo_installs_its_own_packages_alone_and_says_how_large_they_are(
    checkout: Path,
) -> None:
    said = dev(checkout, "demo", more=MORE)[1]
    assert installs(checkout) == DEMO
    assert "12.3 MB to download, 45.6 MB on disk" in said
    assert not (checkout / "machine/usr/sbin/policy-rc.d").exists()


def test_setup_says_what_the_rest_is_for(checkout: Path) -> None:
    said = dev(checkout, "setup", more=MORE)[1]
    assert {*DEMO, "chromium", "tcpdump", "slurm-client", "openmpi-bin"} <= installs(checkout)
    for line in (
        "for tests of the GUI in a browser: chromium",
        "for captures of frames: tcpdump",
        "for Slurm: slurm-client",
    ):
        assert line in said


def test_what_the_guests_kernel_is_built_with_is_installed_and_recorded_too(
    checkout: Path,
) -> None:
    script = checkout / "ri2n_lab/guests/kernel/build-guest-kernel"
    script.parent.mkdir(parents=True)
    text = """#!/bin/bash
case ${1-} in
--print-path) echo kernel ;;
--print-packages) [[ -e arrived ]] || echo flex ;;
*) touch kernel && chmod 755 kernel ;;
esac
"""
    script.write_text(text)
    script.chmod(0o755)
    said = dev(checkout, "kernel", more=MORE)[1]
    assert installs(checkout) == {"flex"} and "for the guests' kernel: flex" in said
    assert (checkout / "kernel").exists() and "flex" in (checkout / RECORD).read_text().split()


def test_what_came_is_recorded_with_what_came_along(checkout: Path) -> None:
    dev(checkout, "demo", more=MORE)
    assert set((checkout / RECORD).read_text().split()) == {*DEMO, "libnew"}


def uninstall(checkout: Path, *argv: str, code: int = 0) -> str:
    return dev(checkout, "uninstall", *argv, code=code)[1]


@pytest.fixture
def used(checkout: Path) -> Path:
    """A checkout after a demo. Since then, the user's own package `theirs` needs nftables."""
    dev(checkout, "demo", more=MORE)
    with (checkout / "installed").open("a") as file:
        file.write("theirs\n")
    # kmod is gone already, and another package is unneeded that `./dev` has not installed.
    wanted = (checkout / "installed").read_text().replace("kmod\n", "")
    (checkout / "installed").write_text(wanted)
    (checkout / "unneeded").write_text("\n".join([*DEMO - {"nftables"}, "libnew", "old-kernel"]))
    (checkout / ".cache/ri2n/linux-guest-1").touch()
    (checkout / ".cache/other").touch()
    return checkout


def test_uninstall_removes_what_was_recorded_and_what_nobody_else_needs(used: Path) -> None:
    said = uninstall(used, "--yes")
    (purged,) = apt_asked(used, "-y", "purge")
    assert set(purged.partition(" purge ")[2].split()) == DEMO - {"nftables", "kmod"} | {"libnew"}
    assert "iperf3" in said and "old-kernel" not in said
    assert not (used / ".venv").exists() and not (used / ".cache/ri2n").exists()
    assert (used / ".cache/other").exists() and (used / "setup.cfg").exists()
    assert not (used / RECORD).parent.exists()
    assert "nothing is left" in uninstall(used, "--yes")


def test_without_a_record_no_package_is_removed(used: Path) -> None:
    (used / RECORD).unlink()
    uninstall(used, "--yes")
    assert apt_asked(used, "purge") == [] and not (used / ".venv").exists()


def test_nothing_goes_when_another_package_would_go_too(used: Path) -> None:
    (used / "dragged").write_text("theirs\n")
    assert "theirs" in uninstall(used, "--yes", code=2)
    assert apt_asked(used, "-y", "purge") == []
    assert (used / ".venv").exists() and (used / RECORD).exists()


def test_nobody_who_could_be_asked_means_no(used: Path) -> None:
    assert "--yes" in uninstall(used, code=2)
    assert apt_asked(used, "-y", "purge") == [] and (used / ".venv").exists()
    assert "--please" in uninstall(used, "--please", code=2)


@pytest.mark.parametrize("answer", ["n", "y"])
def test_it_asks_before(used: Path, answer: str) -> None:
    with Terminal("./dev uninstall", used, environment(used)) as terminal:
        terminal.until(r"remove it\?", LONG_S)
        terminal.type(f"{answer}\n")
        assert terminal.wait(LONG_S) == (0 if answer == "y" else 2)
    assert (used / ".venv").exists() == (answer == "n")
    assert len(apt_asked(used, "-y", "purge")) == (answer == "y")
