# SPDX-License-Identifier: Apache-2.0
"""The Ansible role on two machines: a controller and a host, from nothing, twice, and changed.

Each machine is a Debian with systemd (debian_box.py). Ansible reaches them as by ssh: what takes
ssh's place enters the box.
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
import yaml

from .conftest import await_true
from .debian_box import DebianBox
from .test_packages import HARDWARE, HARDWARE_SCRIPT, HARDWARE_UNIT, PATIENCE_S, is_active, status
from .test_packages import debian as debian
from .test_packages import packages as packages

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

ANSIBLE = Path(__file__).resolve().parents[2] / "deploy/ansible"
# The last word of ssh's command line is the command; the last but one is the machine.
SSH = """#!/usr/bin/env bash
for word; do before=$last last=$word; done
exec nsenter --all --target="$(cat "${0%/*}/$before.pid")" -- env -i HOME=/root LC_ALL=C.UTF-8 \\
    PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "$last"
"""


@pytest.fixture
def boxes(tmp_path: Path, debian: Path, packages: Path) -> Iterator[dict[str, DebianBox]]:
    """The machines `control` and `node1`, which reach each other."""
    if shutil.which("ansible-playbook") is None:
        pytest.skip("needs ansible-playbook: apt install ansible-core")
    with (
        DebianBox(tmp_path / "control", debian, packages) as control,
        DebianBox(tmp_path / "node1", debian, packages) as node1,
    ):
        made = {"control": control, "node1": node1}
        argv = ["ip", "link", "add", "ctl0", "netns", str(control.first), "type", "veth"]
        subprocess.run([*argv, "peer", "name", "ctl0", "netns", str(node1.first)], check=True)
        for number, (name, box) in enumerate(made.items(), start=1):
            box.sh(
                f"hostname {name}; echo {name} >/etc/hostname; ip link set lo up;"
                f"ip addr add 198.51.100.{number}/24 dev ctl0; ip link set ctl0 up"
            )
        node1.path(HARDWARE).write_text(HARDWARE_UNIT)
        node1.path("/usr/local/hardware").write_text(HARDWARE_SCRIPT)
        node1.run("systemctl", "enable", "--now", "hardware.service")
        node1.sh("ip addr add 192.0.2.1/24 dev eth0; ip link set eth0 up; ip link set eth1 up")
        yield made


class Site:
    """What an administrator has: an inventory, and a way to each machine."""

    def __init__(self, folder: Path, boxes: dict[str, DebianBox], packages: Path) -> None:
        """Write the inventory to a new folder."""
        folder.mkdir()
        self.folder = folder
        (folder / "ssh").write_text(SSH)
        (folder / "ssh").chmod(0o755)
        for name, box in boxes.items():
            (folder / f"{name}.pid").write_text(str(box.first))
        self.variables: dict[str, object] = {
            "ansible_connection": "ssh",
            "ansible_ssh_executable": str(folder / "ssh"),
            "ansible_ssh_transfer_method": "piped",
            "ansible_ssh_args": "",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_become": False,
            "ri2n_packages": str(packages / "newer"),
            "ri2n_controllers": ["tcp:198.51.100.1:6653"],
            "ri2n_nics": ["eth0", "eth1"],
            "ri2n_controller_options": "--config /etc/ri2n/cluster.yaml --listen 198.51.100.1:6653",
            "ri2n_cluster": {"strategy": "max_min"},
            "ri2n_host_options": ["datapath netdev"],
            "ri2n_network": "ifupdown",
            "ri2n_address": "192.0.2.1/24",
        }

    def play(self, *options: str, check: bool = True) -> dict[str, dict[str, int]]:
        """Run the playbook, and return what happened on each machine."""
        inventory = {
            "all": {
                "vars": self.variables,
                "children": {
                    "ri2n_control": {"hosts": {"control": None}},
                    "ri2n_hosts": {"hosts": {"node1": None}},
                },
            }
        }
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
        argv = ["ansible-playbook", "-i", str(self.folder / "inventory.yml"), "site.yml", *options]
        done = subprocess.run(
            argv,
            cwd=ANSIBLE,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={
                **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
                "HOME": str(self.folder),
                "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"),
                "ANSIBLE_NOCOLOR": "1",
            },
        )
        self.said = done.stdout + done.stderr
        assert not check or done.returncode == 0, self.said
        recap = re.findall(r"^(\w+) +: (.*)$", done.stdout.partition("PLAY RECAP")[2], flags=re.M)
        return {
            host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}
            for host, line in recap
        }

    def changed(self) -> list[str]:
        """The tasks and handlers that changed something in the last run."""
        task, found = "", []
        for line in self.said.splitlines():
            if match := re.match(r"(?:TASK|RUNNING HANDLER) \[(?:ri2n : )?(.*)\] \*", line):
                task = match[1]
            elif line.startswith("changed: "):
                found.append(task)
        return found


def test_a_cluster_from_nothing_and_a_second_run_that_changes_nothing(
    boxes: dict[str, DebianBox], packages: Path, tmp_path: Path
) -> None:
    control, node1 = boxes["control"], boxes["node1"]
    site = Site(tmp_path / "site", boxes, packages)
    # Looking changes nothing, also where nothing is installed.
    before = [box.files() for box in boxes.values()]
    site.play("--check", "--diff")
    for box, files in zip(boxes.values(), before, strict=True):
        new = {
            path
            for path in box.files() - files
            if not path.startswith(("/root/.ansible", "/var/log"))
        }
        assert not new

    site.play()
    for box, unit in (
        *((control, unit) for unit in ("ri2n-controller", "ri2n-web")),
        *((node1, unit) for unit in ("ri2n-host", "ri2n-host-watch", "ri2n-reorder")),
    ):
        assert is_active(box, unit), box.journal(unit)
        assert box.run("systemctl", "is-enabled", unit).stdout == "enabled\n"
    await_true(
        lambda: '"node1"' in json.dumps((status(control) or {}).get("hosts")),
        lambda: control.journal("ri2n-controller") + node1.run("host-status", check=False).stdout,
        PATIENCE_S,
    )
    assert "192.0.2.1/24" in node1.run("ip", "-o", "addr", "show", "dev", "br-ri2n").stdout
    # It was confirmed: nobody will undo it.
    assert not list(node1.path("/var/lib/ri2n").glob("*/pending"))

    recap = site.play()
    assert {host: line["changed"] for host, line in recap.items()} == {"control": 0, "node1": 0}
    recap = site.play("--check", "--diff")
    assert {host: line["changed"] for host, line in recap.items()} == {"control": 0, "node1": 0}

    # What changed is restarted, and nothing else.
    pids = {
        unit: control.run("systemctl", "show", "--property=MainPID", unit).stdout
        for unit in ("ri2n-controller", "ri2n-web")
    }
    site.variables["ri2n_web_options"] = "--listen 127.0.0.1:8421"
    site.play()
    assert site.changed() == ["Write the web process's options", "Restart the web process"]
    show = control.run("systemctl", "show", "--property=MainPID", "ri2n-controller").stdout
    assert show == pids["ri2n-controller"]
    site.variables["ri2n_cluster"] = {"strategy": "ri2n_plus"}
    site.play()
    assert site.changed() == ["Write cluster.yaml", "Restart the controller"]
    assert (status(control) or {})["strategy"] == "ri2n_plus"

    # A mistake is refused before anything is replaced.
    site.variables["ri2n_cluster"] = {"strategy": "best"}
    site.play(check=False)
    assert "strategy" in site.said and (status(control) or {})["strategy"] == "ri2n_plus"
    assert "ri2n_plus" in control.path("/etc/ri2n/cluster.yaml").read_text()

    # The host comes back with all of it after a loss of power.
    node1.cut_power()
    node1.boot()
    assert is_active(node1, "ri2n-host"), node1.journal("ri2n-host")


def test_variables_are_checked_before_the_first_task(
    boxes: dict[str, DebianBox], packages: Path, tmp_path: Path
) -> None:
    site = Site(tmp_path / "site", boxes, packages)
    site.variables["ri2n_network"] = "netplan"
    site.play(check=False)
    assert "ri2n_network" in site.said and "one of: none, ifupdown" in site.said
    site.variables |= {"ri2n_network": "none", "ri2n_nics": []}
    site.play("--limit", "node1", check=False)
    assert "A host needs ri2n_nics" in site.said
    assert not any(box.exists("/usr/bin/ri2n") for box in [boxes["node1"]])
