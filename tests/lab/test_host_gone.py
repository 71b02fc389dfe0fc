# SPDX-License-Identifier: Apache-2.0
"""A managed host becomes a plain one under its NIC's address, and the others reach it at once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab

from .conftest import EXACT, await_true, controlled

pytestmark = pytest.mark.virtual
REACHED_S = 1.0
BOOT_S = 8.0  # longer than the controller waits for a host that is silent


@pytest.fixture
def lab() -> Iterator[Lab]:
    with controlled("fig4/d") as lab:
        yield lab


def answers(lab: Lab, source: str, target: str) -> bool:
    ping = ["ping", "-q", "-c1", "-W0.2", lab.address(target)]
    return lab.exec(source, ping, check=False).returncode == 0


@pytest.mark.parametrize("how", ["host-down", "another system"])
def test_a_host_is_reached_by_its_nics_address_within_a_second(how: str, lab: Lab) -> None:
    """All hosts reach it, though they have just talked with it and remember its bridge's MAC."""
    others = [host for host in lab.hosts if host != "A"]
    assert all(answers(lab, host, "A") for host in others)
    if how == "host-down":
        lab.host_script("A", "host-down")
        began_s = time.monotonic()
    else:
        kill_switch_and_restart(lab)
        began_s = time.monotonic()
        for host in others:  # it must send something first, as every host that boots does
            await_true(lambda host=host: answers(lab, "A", host), f"A does not reach {host}")  # type: ignore[misc]
    for host in others:
        await_true(lambda host=host: answers(lab, host, "A"), f"{host} does not reach A")  # type: ignore[misc]
    assert not EXACT or time.monotonic() - began_s < REACHED_S


def kill_switch_and_restart(lab: Lab) -> None:
    """Let A be what a rescue system makes of it.

    It has no Open vSwitch, and its address is on its first NIC.
    """
    for daemon in ("ovs-vswitchd", "ovsdb-server"):
        lab.exec("A", ["kill", "-9", (lab.run_dir / "A" / f"{daemon}.pid").read_text().strip()])
    forget = "ip link del br-ri2n; ovs-dpctl del-dp ovs-system; nft flush ruleset"
    lab.exec("A", ["sh", "-c", f"{{ {forget}; }} 2>/dev/null; true"])
    time.sleep(BOOT_S)
    lab.exec("A", ["ip", "addr", "replace", f"{lab.address('A')}/24", "brd", "+", "dev", "eth0"])
