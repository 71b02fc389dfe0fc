# SPDX-License-Identifier: Apache-2.0
"""host-up and host-down are killed by SIGKILL after any change.

The next run finishes what they began.
"""

from __future__ import annotations

import re

import pytest

from .failing_host import Change, Failing, alone, differences, host, recorded
from .prepared_host import Host

__all__ = ["alone", "host", "recorded"]


def moved(host: Host) -> str:
    """Addresses and routes of the bridge's own port, and those that the NICs still have."""
    host.settle()
    words = (
        "ip -o addr show dev br-ri2n scope global; ip -4 route show table all; ip -6 route "
        "show table all"
    )
    nics = "ip -o addr show dev eth0 scope global; ip -o addr show dev eth1 scope global"
    lines = host.run("sh", "-c", f"{words}; {nics}").stdout.splitlines()
    lines = [
        re.sub(r"^\d+: | proto kernel| expires \S+|\s+valid_lft.*| pref \w+", "", line)
        for line in lines
    ]
    return "\n".join(
        sorted(
            {" ".join(line.split()) for line in lines if "fe80" not in line and "ff00" not in line}
        )
    )


def some(changes: list[Change]) -> list[Change]:
    """The last change of each step, and each change of the steps that move addresses and routes."""
    last = {change.step: change.number for change in changes}
    return [
        change
        for change in changes
        if change.number == last[change.step]
        or change.step in ("move_addresses", "add_routes", "add_addresses")
        or change.text.startswith("mv ")
    ]


def check_host_up_killed(changes: list[Change], recorded: Failing, host: Host) -> None:
    """host-up is killed after each of the changes, and run once more.

    All addresses and routes by which the host is reached are then where they belong.
    """
    options = [word for word in recorded.options if word not in ("--confirm", "99999")]
    before = host.snapshot()
    assert recorded.command(options, {}).returncode == 0
    right = moved(host)
    host.script("host-down")
    assert differences(before, host.snapshot()) == ""
    for change in changes:
        assert (
            recorded.command(options, {"RI2N_TEST_KILL_AT": str(change.number)}).returncode != 0
        ), change
        again = recorded.command(options, {})
        assert again.returncode == 0, (change, again.stderr)
        assert moved(host) == right, change
        host.script("host-down")
        assert differences(before, host.snapshot()) == "", change
        host.prepare()


def check_host_down_killed(changes: list[Change], recorded: Failing, host: Host) -> None:
    """host-down is killed after each of the changes, and run once more.

    Everything is then as it was before host-up.
    """
    before = host.snapshot()
    for change in changes:
        host.up("--helper")
        assert (
            recorded.down(
                {"RI2N_TEST_KILL": "host-down", "RI2N_TEST_KILL_AT": str(change.number)}
            ).returncode
            != 0
        )
        again = host.script("host-down", check=False)
        assert again.returncode == 0, (change, again.stderr)
        assert differences(before, host.snapshot()) == "", change


def changes_without_confirm(recorded: Failing, host: Host) -> list[Change]:
    options = [word for word in recorded.options if word not in ("--confirm", "99999")]
    changes = recorded.recorded(options)
    host.script("host-down")
    host.prepare()
    return changes


def test_a_killed_host_up_is_finished_by_the_next_one(recorded: Failing, host: Host) -> None:
    check_host_up_killed(some(changes_without_confirm(recorded, host)), recorded, host)


def test_a_killed_host_down_is_finished_by_the_next_one(recorded: Failing, host: Host) -> None:
    host.up("--helper")
    check_host_down_killed(some(recorded.changes_of_down()), recorded, host)


@pytest.mark.long
def test_host_up_and_host_down_are_killed_at_every_change(recorded: Failing, host: Host) -> None:
    check_host_up_killed(changes_without_confirm(recorded, host), recorded, host)
    host.up("--helper")
    check_host_down_killed(recorded.changes_of_down(), recorded, host)
