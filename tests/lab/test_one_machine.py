# SPDX-License-Identifier: Apache-2.0
"""The controller's machine may be a host as well: docs/ten-steps.md, with both on one machine.

What cannot be done as written, the test does instead, as test_ten_steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.machine import Machine
from ri2n_sdn.errors import NotAvailable
from tests.topology_text import parse_topology

from .conftest import WaitUntil
from .test_ten_steps import PATIENCE_S, ROOT, do, steps

pytestmark = pytest.mark.long

SITE = """
name: both
switches: {n1: {}, n2: {}}
hosts:
  node1: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
                 {name: eth1, switch: n2, rate_bps: 100000000}]}
"""
PROGRAM = "/opt/ri2n_sdn/.venv/bin/ri2n"


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine with nothing but an address on eth0, and this checkout in place of a venv."""
    site = Path(yaml.__file__).parents[1]
    with Lab.create(parse_topology(SITE), software="ovs") as lab, ExitStack() as made:
        try:
            found = made.enter_context(Machine(lab, "node1", ROOT, site))
            found.boot()
        except NotAvailable as error:
            pytest.skip(str(error))
        network = "[Match]\nName=eth0\n[Network]\nAddress=192.0.2.10/24\n"
        found.write("/etc/systemd/network/10-eth0.network", network)
        found.run("systemctl", "enable", "--now", "systemd-networkd")
        paths = f"import sys; sys.path[:0] = ['{ROOT}', '{site}']"
        code = f"#!/usr/bin/python3\n{paths}; from ri2n_sdn.cli.main import main; main()\n"
        found.write(PROGRAM, code)
        found.run("chmod", "755", PROGRAM)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM]
        if found.run(*nobody, "check-config", "/dev/null", check=False).returncode:
            pytest.skip("this checkout is not for everybody to read, or not for /usr/bin/python3")
        found.run("cp", "-r", f"{ROOT}/ovs-host-scripts", "/opt/ri2n_sdn/")
        found.run("cp", "-r", f"{ROOT}/ovs-host-scripts", "/root/")
        # The service has a /tmp of its own; it must see these folders even if they are in /tmp.
        shown = f"[Service]\nBindReadOnlyPaths={ROOT} {site}\n"
        found.write("/etc/systemd/system/ri2n-controller.service.d/checkout.conf", shown)
        yield found


def test_the_controller_remembers_where_the_host_keeps_others_out(
    machine: Machine, reorder_program: Path, wait_until: WaitUntil
) -> None:
    machine.run("cp", str(reorder_program), "/root/")
    by_number = steps()
    for number in (2, 4, 6, 7):
        do(machine, "control", by_number[number][1])

    def status() -> dict[str, Any]:
        done = machine.run(PROGRAM, "status", "--json", check=False)
        return dict(json.loads(done.stdout)) if done.stdout else {"error": done.stderr}

    def hosts() -> list[str]:
        return [each["name"] for each in status().get("hosts", ()) if each["connected"]]

    def said() -> str:
        return f"{status()}"[:3000] + machine.journal("ri2n-controller")

    wait_until(lambda: hosts() == ["node1"], said, PATIENCE_S)
    machine.run(PROGRAM, "rights", "set", "nobody", "--policies", "shared")
    assert machine.run("stat", "-c", "%a", "/var/lib/ri2n").stdout == "700\n"
    # It finds its folder again, and in it what it has remembered.
    machine.run("systemctl", "restart", "ri2n-controller")
    wait_until(lambda: hosts() == ["node1"], said, PATIENCE_S)
    texts = [each["text"] for each in status()["problems"]]
    assert not [text for text in texts if "remembered" in text], said()
    shown = json.loads(machine.run(PROGRAM, "store", "show", "--json").stdout)
    assert shown["Right"] == ["nobody"]
    assert "nobody" in machine.run(PROGRAM, "rights", "ls").stdout
