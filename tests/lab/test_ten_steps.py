# SPDX-License-Identifier: Apache-2.0
"""The ten steps of docs/ten-steps.md, run as written on three machines with nothing.

At their end two hosts stripe. What cannot be done as written, the test does instead: packages (the
machines have those of this one), the network for `./dev install` (the controller runs from this
checkout), `scp` (files are copied to where it would put them), and a reboot (a loss of power).
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.machine import Machine
from ri2n_sdn.errors import NotAvailable
from tests.topology_text import parse_topology

from .conftest import WaitUntil

ROOT = Path(__file__).resolve().parents[2]
SITE = """
name: steps
switches: {n1: {}, n2: {}}
hosts:
  node1: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
                 {name: eth1, switch: n2, rate_bps: 100000000}]}
  node2: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
                 {name: eth1, switch: n2, rate_bps: 100000000}]}
  control: {nics: [{name: eth0, switch: n1, rate_bps: 100000000}]}
"""
ADDRESSES = {"control": "192.0.2.10", "node1": "192.0.2.1", "node2": "192.0.2.2"}
PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def machines() -> Iterator[dict[str, Machine]]:
    """Three machines with nothing but an address on eth0, by systemd-networkd."""
    site = Path(yaml.__file__).parents[1]
    with Lab.create(parse_topology(SITE), software="ovs") as lab, ExitStack() as made:
        found = {}
        for name, address in ADDRESSES.items():
            try:
                machine = made.enter_context(Machine(lab, name, ROOT, site))
                machine.boot()
            except NotAvailable as error:
                pytest.skip(str(error))
            network = f"[Match]\nName=eth0\n[Network]\nAddress={address}/24\n"
            machine.write("/etc/systemd/network/10-eth0.network", network)
            machine.run("systemctl", "enable", "--now", "systemd-networkd")
            found[name] = machine
        yield found


def steps() -> dict[int, tuple[str, str]]:
    """For each step, by its number, the words before its commands, and the commands."""
    text = (
        (ROOT / "docs" / "ten-steps.md")
        .read_text()
        .partition("## Ten steps\n")[2]
        .partition("\n## ")[0]
    )
    found = re.findall(r"\*\*(\d+)\.\*\* (.*?)```sh\n(.*?)```", text, re.DOTALL)
    return {int(number): (words, commands) for number, words, commands in found}


def do(machine: Machine, name: str, commands: str) -> str:
    """Run the commands on that machine, in root's home; node2 has its own address."""
    own = commands.replace("192.0.2.1/24", f"{ADDRESSES[name]}/24")
    lines = [line for line in own.splitlines() if not line.startswith("apt ")]
    done = machine.run("bash", "-ec", "cd /root\n" + "\n".join(lines), check=False)
    assert done.returncode == 0 or "host-doctor" in commands or "ri2n status" in commands, (
        commands,
        done,
    )
    return done.stdout + done.stderr


def test_ten_steps(
    machines: dict[str, Machine], reorder_program: Path, wait_until: WaitUntil
) -> None:
    by_number = steps()
    assert list(by_number) == list(range(1, 11))
    control, nodes = machines["control"], ("node1", "node2")
    began_s = time.monotonic()

    site = Path(yaml.__file__).parents[1]
    nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
    ]
    paths = f"import sys; sys.path[:0] = ['{ROOT}', '{site}']"
    if control.run(
        *nobody, f"{paths}; import ri2n_sdn, numpy, pydantic, yaml", check=False
    ).returncode:
        pytest.skip("this checkout is not for everybody to read, or not for /usr/bin/python3")
    assert by_number[1][1] == "cd /opt/ri2n_sdn && ./dev install\n"
    code = f"#!/usr/bin/python3\n{paths}; from ri2n_sdn.cli.main import main; main()\n"
    control.write("/opt/ri2n_sdn/.venv/bin/ri2n", code)
    control.run("sh", "-ec", "chmod 755 /opt/ri2n_sdn/.venv/bin/ri2n")
    control.run("cp", "-r", f"{ROOT}/ovs-host-scripts", "/opt/ri2n_sdn/")
    # The service has a /tmp of its own, and no homes. It must see these folders even there.
    shown = f"[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths={ROOT} {site}\n"
    control.write("/etc/systemd/system/ri2n-controller.service.d/checkout.conf", shown)

    for number, (words, commands) in sorted(by_number.items())[1:]:
        if number == 3:
            copied = shlex.split(commands)[2:-1]
            assert copied == [
                "/opt/ri2n_sdn/ovs-host-scripts",
                "/opt/ri2n_sdn/.venv/bin/ri2n-reorder",
            ]
            for name in nodes:
                machines[name].run(
                    "cp", "-r", f"{ROOT}/ovs-host-scripts", str(reorder_program), "/root/"
                )
                assert reorder_program.name == "ri2n-reorder"
            continue
        assert words.startswith(("On the controller's machine", "On each host")), words
        for name in ["control"] if words.startswith("On the controller") else nodes:
            output = do(machines[name], name, commands)
            assert number != 5 or ("ovs-vsctl" in output and "eth0 is named here" in output), output
    took_s = time.monotonic() - began_s
    print(f"ten steps: {took_s:.0f} s")

    def status() -> dict[str, object]:
        done = control.run("/opt/ri2n_sdn/.venv/bin/ri2n", "status", "--json", check=False)
        return dict(json.loads(done.stdout)) if done.stdout else {"error": done.stderr}

    def striped() -> bool:
        pairs = status().get("pairs", ())
        assert isinstance(pairs, list | tuple)
        return [(pair["src"], pair["striped"]) for pair in pairs] == [
            ("node1", True),
            ("node2", True),
        ]

    def said() -> str:
        return str(status())[:3000] + "".join(
            machines[name].run("host-doctor", check=False).stdout for name in nodes
        )

    wait_until(striped, said, PATIENCE_S)
    wait_until(lambda: status()["problems"] == [], said, PATIENCE_S)
    for name in nodes:
        done = machines[name].run("host-doctor", check=False)
        assert done.returncode == 0, done.stdout
    node1 = machines["node1"]
    wait_until(
        lambda: (
            node1.run(
                "ping", "-q", "-c3", "-i0.2", "-W5", ADDRESSES["node2"], check=False
            ).returncode
            == 0
        ),
        said,
    )

    node1.cut_power()
    node1.boot()
    wait_until(striped, said, PATIENCE_S)
    wait_until(
        lambda: (
            node1.run(
                "ping", "-q", "-c3", "-i0.2", "-W5", ADDRESSES["node2"], check=False
            ).returncode
            == 0
        ),
        said,
    )
    assert took_s < 600
