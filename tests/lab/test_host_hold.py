# SPDX-License-Identifier: Apache-2.0
"""host-up with helper and fast path: a third TAP beside the bridge, as long as both are asked for.

`ri2n-fast` is a stand-in here; tests/lab/test_fast_striping.py has the real programs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ri2n_sdn.fabric.taps import HOLD_TAP, PLAIN_TAP, WIRE_TAP

from .conftest import WaitUntil
from .failing_host import Change, Failing, alone, differences, host, recorded
from .fake_helper import __file__ as fake_helper
from .prepared_host import HOST, WAIT_S, Host
from .test_host_fast import STATUS, FastHost, fast
from .test_lab import carrier

__all__ = ["alone", "fast", "host", "recorded"]

BOTH = ("--helper", "--fast")
BESIDE = "TCP to hosts with a helper goes through Open vSwitch"


def devices(host: Host) -> dict[str, dict[str, object]]:
    """The host's devices, by name."""
    return {
        entry["ifname"]: entry for entry in json.loads(host.run("ip", "-d", "-j", "link").stdout)
    }


def options_of(fast: FastHost) -> str:
    """What the helper's service is told."""
    return fast.file.with_name("helper").read_text()


def test_the_third_tap_is_there_while_both_are_asked_for(fast: FastHost) -> None:
    before = fast.host.snapshot()
    fast.up(*BOTH)
    maps = fast.host.folder / "ri2n-fast" / "maps.sock"
    words = f" --fast-maps {maps} --hold {HOLD_TAP}\n"
    assert options_of(fast).endswith(words)
    hold = devices(fast.host)[HOLD_TAP]
    assert (hold["mtu"], hold["txqlen"]) == (1500, 1000)
    info = hold["linkinfo"]
    assert isinstance(info, dict) and info["info_data"]["persist"] is True
    assert "UP" in str(hold["flags"]) and "master" not in hold
    assert fast.host.run("cat", f"/proc/sys/net/ipv6/conf/{HOLD_TAP}/disable_ipv6").stdout == "1\n"
    ports = fast.host.lab.vsctl(HOST, "list-ports", "br-ri2n").split()
    assert PLAIN_TAP in ports and HOLD_TAP not in ports
    assert "nothing to do" in fast.up(*BOTH).stdout
    for less in (["--helper"], ["--fast"]):
        fast.up(*less)
        assert HOLD_TAP not in devices(fast.host)
        assert less != ["--helper"] or "--hold" not in options_of(fast)
        assert "nothing to do" in fast.up(*less).stdout
        fast.up(*BOTH)
        assert HOLD_TAP in devices(fast.host) and options_of(fast).endswith(words)
    fast.script("host-down")
    assert fast.host.snapshot() == before


def test_no_program_gives_frames_to_a_tap_that_goes(fast: FastHost) -> None:
    """Whoever loses the fast path unloads it while the device is there."""
    fast.program.write_text(
        fast.program.read_text().replace("bridge=$(", f"ls /sys/class/net >{fast.folder}/there; (")
    )
    for name, words in (("host-up", ("--helper",)), ("host-down", ())):
        fast.up(*BOTH)
        fast.up(*words) if name == "host-up" else fast.script(name)
        assert HOLD_TAP in (fast.folder / "there").read_text().split()
        assert HOLD_TAP not in devices(fast.host)


def test_a_device_of_that_name_that_is_not_ours_stays(fast: FastHost) -> None:
    fast.host.run("ip", "link", "add", HOLD_TAP, "type", "bridge")
    try:
        before = fast.host.snapshot()
        done = fast.up(*BOTH, check=False)
        assert done.returncode == 2
        assert done.stderr == (
            f"host-up: --helper: there is a device {HOLD_TAP} that host-up did not make: remove "
            "it\n"
        )
        assert fast.host.snapshot() == before
        for words in (["--helper"], ["--fast"]):
            fast.up(*words)
        fast.script("host-down")
        assert fast.host.snapshot() == before
    finally:
        fast.host.run("ip", "link", "del", HOLD_TAP)


def test_a_dry_run_tells_of_it(fast: FastHost) -> None:
    said = fast.up(*BOTH, "--dry-run").stdout.splitlines()
    assert f"ip tuntap add dev {HOLD_TAP} mode tap" in said
    assert not any("add-port" in line and HOLD_TAP in line for line in said)
    assert HOLD_TAP not in devices(fast.host)


@contextmanager
def helper(fast: FastHost, wait_until: WaitUntil, *, hold: bool) -> Iterator[None]:
    """A stand-in for the helper, which has the third TAP or not."""
    socket = fast.host.folder / "test.sock"
    socket.unlink(missing_ok=True)
    argv = [fake_helper, "--plain", PLAIN_TAP, "--wire", WIRE_TAP, "--status", str(socket)]
    argv += ["--hold", HOLD_TAP] if hold else []
    process = fast.host.lab.popen(HOST, argv, stdout=subprocess.DEVNULL)
    try:
        last = HOLD_TAP if hold else WIRE_TAP
        wait_until(lambda: carrier(fast.host.lab, HOST, last), "no carrier", WAIT_S)
        yield
    finally:
        process.kill()
        process.wait()
        socket.unlink(missing_ok=True)


def test_the_doctor_says_why_tcp_does_not_pass_beside_the_bridge(
    fast: FastHost, wait_until: WaitUntil
) -> None:
    def says(order: str | None) -> dict[str, str]:
        status = {**STATUS, "order": order}
        if order is None:
            del status["order"]
        fast.answers("status", json.dumps(status))
        (finding,) = fast.found()
        return finding

    def reason(order: str | None = "none") -> str:
        finding = says(order)
        assert finding["verdict"] == "warning" and finding["advice"]
        assert finding["seen"].startswith(f"{BESIDE} (")
        return finding["seen"].removeprefix(f"{BESIDE} (").removesuffix(")")

    fast.up("--fast")
    assert says("none")["verdict"] == "ok", "there is no helper"
    fast.up(*BOTH)
    assert says("ready")["verdict"] == "ok"
    assert reason() == "no_helper"
    assert reason(None) == "old_fast_path"
    with helper(fast, wait_until, hold=False):
        assert reason() == "not_held"
    with helper(fast, wait_until, hold=True):
        assert reason() == "no_maps"
        assert says("ready")["verdict"] == "ok"
        status = json.loads(fast.script("host-status", "--json", check=False).stdout)
        assert {"name": HOLD_TAP, "port": None, "link": "up", "mtu": 1500} in status["helper"][
            "taps"
        ]
        assert status["fast"]["order"] == "ready"
    fast.host.run("ip", "link", "del", HOLD_TAP)
    assert reason() == "no_tap"
    problems = json.loads(fast.script("host-status", "--json", check=False).stdout)["problems"]
    assert f"TAP {HOLD_TAP} is not there" in [problem["text"] for problem in problems]
    fast.up(*BOTH)
    assert reason() == "no_helper"


def about_it(changes: list[Change]) -> list[Change]:
    """The changes that make or remove the TAP, or tell the helper of it."""
    found = [change for change in changes if HOLD_TAP in change.text]
    assert found
    return found


def test_what_a_killed_run_left_of_it_is_made_whole_or_removed(
    recorded: Failing, host: Host
) -> None:
    def words(*more: str) -> list[str]:
        return [*host.up_arguments, *more]

    def check_killed(change: Change, *more: str) -> None:
        done = recorded.command(words(*more), {"RI2N_TEST_KILL_AT": str(change.number)})
        assert done.returncode != 0, change

    host.script("host-down", check=False)
    host.prepare()
    before = host.snapshot()
    for change in about_it(recorded.recorded(words(*BOTH))):
        host.script("host-down")
        check_killed(change, *BOTH)
        assert recorded.command(words(*BOTH), {}).returncode == 0, change
        assert HOLD_TAP in devices(host), change
        host.script("host-down")
        check_killed(change, *BOTH)
        host.script("host-down")
        assert differences(before, host.snapshot()) == "", change
    recorded.recorded(words(*BOTH))
    for change in about_it(recorded.recorded(words("--helper"))):
        assert recorded.command(words(*BOTH), {}).returncode == 0
        check_killed(change, "--helper")
        assert recorded.command(words("--helper"), {}).returncode == 0, change
        assert HOLD_TAP not in devices(host), change
        host.script("host-down")
        assert differences(before, host.snapshot()) == "", change
        assert recorded.command(words(*BOTH), {}).returncode == 0
    for change in about_it(recorded.changes_of_down()):
        assert recorded.command(words(*BOTH), {}).returncode == 0
        kill = {"RI2N_TEST_KILL": "host-down", "RI2N_TEST_KILL_AT": str(change.number)}
        assert recorded.down(kill).returncode != 0
        host.script("host-down")
        assert differences(before, host.snapshot()) == "", change
