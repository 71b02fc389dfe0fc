# SPDX-License-Identifier: Apache-2.0
"""What the systemd units of the host scripts may do, and that the docs say the same of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "ovs-host-scripts"
MAX_EXPOSED = {
    "ri2n-controller.service": 17,
    "ri2n-web.service": 15,
    "ri2n-reorder.service": 30,
    "ri2n-fast.service": 30,
    "ri2n-host.service": 50,
    "ri2n-host-watch.service": 50,
    "ri2n-host-metrics.service": 17,
    "ri2n-unconfirmed.service": 50,
}
"""What systemd-analyze may find, in tenths of its scale from 0 (nothing) to 10 (all of root)."""

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


@pytest.mark.parametrize("name", MAX_EXPOSED)
def test_a_service_has_hardly_more_powers_than_it_needs(name: str) -> None:
    argv = ["systemd-analyze", "security", "--no-pager", "--offline=true"]
    argv += [f"--threshold={MAX_EXPOSED[name]}", str(SCRIPTS / name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def settings_of(name: str) -> dict[str, str]:
    """The settings of a unit; of one that is there several times, the last."""
    return dict(re.findall(r"^(\w+)=(.*)$", (SCRIPTS / name).read_text(), flags=re.M))


def test_every_service_has_a_limit() -> None:
    assert set(MAX_EXPOSED) == {path.name for path in SCRIPTS.glob("*.service")}


@pytest.mark.parametrize("name", sorted(MAX_EXPOSED))
def test_what_goes_on_has_a_watchdog_and_starts_again(name: str) -> None:
    settings = settings_of(name)
    if settings.get("Type") == "oneshot":
        return
    assert settings["Type"] == "notify" and "WatchdogSec" in settings
    # A process that is stopped handles no other signal.
    assert settings["WatchdogSignal"] == "SIGKILL"
    assert settings["Restart"] == "always" and settings["StartLimitIntervalSec"] == "0"


def test_the_web_process_does_not_bring_back_a_controller_that_was_stopped() -> None:
    """Somebody may have moved it to another machine; two would be in charge after the next boot."""
    text = (SCRIPTS / "ri2n-web.service").read_text()
    pulls = re.findall(r"^(?:Wants|Requires|BindsTo|Upholds|Requisite)=(.*)$", text, flags=re.M)
    assert pulls and not any("ri2n-controller" in line for line in pulls)


def test_who_needs_no_root_is_not_root_and_the_controller_sees_who_asks_it() -> None:
    controller, web = settings_of("ri2n-controller.service"), settings_of("ri2n-web.service")
    assert controller["DynamicUser"] == "yes" and web["User"] == web["Group"] == "ri2n-web"
    assert controller["CapabilityBoundingSet"] == web["CapabilityBoundingSet"] == ""
    # In a namespace of users, all uids but its own are one: SO_PEERCRED says "nobody".
    assert "PrivateUsers" not in controller


@pytest.mark.parametrize("path", sorted(SCRIPTS.rglob("*.service")), ids=lambda path: path.name)
def test_systemd_understands_every_line(path: Path, tmp_path: Path) -> None:
    """Where nothing is installed, each command of the unit is replaced by one that exists."""
    command = re.compile(r"^(ExecStart|ExecReload)=(?:.*\\\n)*.*", flags=re.M)
    (tmp_path / path.name).write_text(command.sub(r"\1=/bin/true", path.read_text()))
    argv = ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if path.name in line or str(tmp_path) in line]
    assert not said
