# SPDX-License-Identifier: Apache-2.0
"""`ri2n doctor` shows what host-doctor finds, the worst first, and returns its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn import shipped
from ri2n_sdn.cli import doctor
from tests.unit.commands import ri2n

OK = {"check": "bridge", "verdict": "ok", "seen": "br-ri2n, netdev datapath", "advice": ""}
WARNING = {
    "check": "NICs",
    "verdict": "warning",
    "seen": "NIC eth1 has no link",
    "advice": "check its cable",
}
BAD = {
    "check": "flows",
    "verdict": "bad",
    "seen": "no start-up flow",
    "advice": "run host-up again",
}


def says(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """Replace host-doctor by a script."""
    script = folder / "host-doctor"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setattr(doctor, "host_script", lambda name: folder / name)


@pytest.mark.parametrize(
    ("findings", "code", "bad", "warnings"),
    [([OK], 0, 0, 0), ([WARNING, OK], 1, 0, 1), ([OK, WARNING, BAD], 2, 1, 1)],
)
def test_the_exit_code_is_for_monitoring(
    findings: list[dict[str, Any]],
    code: int,
    bad: int,
    warnings: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    says(monkeypatch, tmp_path, f"echo '{json.dumps({'findings': findings})}'; exit {code}")
    done = ri2n("doctor", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["bad"], document["warnings"]) == (code, bad, warnings)
    assert [{key: row[key] for key in OK} for row in document["findings"]] == findings
    shown = ri2n("doctor")
    assert shown.returncode == code
    assert "netdev datapath" in shown.stdout
    if bad:
        first, second, *_ = shown.stdout.splitlines()
        assert first.startswith("bad: ") and first.endswith(": no start-up flow: run host-up again")
        assert second.startswith("warning: ") and second.endswith(
            "NIC eth1 has no link: check its cable"
        )


@pytest.mark.parametrize(
    "body",
    ["echo host-doctor: must run as root: use sudo >&2; exit 2", "echo '{}'; exit 1", "exit 7"],
)
def test_a_host_doctor_that_cannot_look_is_one_line(
    body: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    says(monkeypatch, tmp_path, body)
    done = ri2n("doctor")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert ("must run as root" if "root" in body else "printed nothing") in done.stderr


def test_a_host_doctor_that_hangs_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    says(monkeypatch, tmp_path, "exec sleep 1000")
    monkeypatch.setattr("ri2n_sdn.cli.doctor.LIMIT_S", 0.2)
    done = ri2n("doctor")
    assert (
        done.returncode == 2
        and "has not ended" in done.stderr
        and len(done.stderr.splitlines()) == 1
    )


def test_scripts_that_are_not_installed_are_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shipped, "_CHECKOUT", tmp_path / "checkout")
    monkeypatch.setattr(shipped, "_SHARE", tmp_path / "share")
    done = ri2n("doctor")
    assert done.returncode == 2 and "host-doctor is missing: run from a checkout" in done.stderr
