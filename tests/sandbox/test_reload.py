# SPDX-License-Identifier: Apache-2.0
"""`ri2n reload` and SIGHUP: the controller reads its files again and uses them if they are right.

Traffic goes on in either case.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, execute
from ri2n_sdn.errors import BadInput, NotAvailable
from tests.problem_texts import problem_texts
from tests.waiting import LONG_S, wait_until

from .test_kills import Traffic
from .test_tls import authority, connected, signed


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A controller as a user starts it: an interpreter of its own, which it replaces."""
    with Sandbox({name: ["n0", "n1"] for name in "ABC"}) as made:
        made.spawn = execute
        made.start_controller(config="slots: 64\n" + made.declared())
        made.wait_settled()
        yield made


def configure(sandbox: Sandbox, text: str) -> Path:
    path = sandbox.folder / "cluster.yaml"
    path.write_text(text + sandbox.declared())
    return path


def reload(sandbox: Sandbox) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "reload", "--socket", str(sandbox.socket)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LONG_S, check=False)


def slots(sandbox: Sandbox) -> int:
    try:
        return len(sandbox.ask("explain", src="A", dst="C")["slots"])
    except (BadInput, NotAvailable):  # while it starts, or before its hosts are there
        return 0


def not_reloaded(sandbox: Sandbox) -> list[str]:
    return [text for text in problem_texts(sandbox.ask("status")) if "not reloaded" in text]


def test_it_takes_what_is_new_and_no_frame_is_lost(sandbox: Sandbox) -> None:
    pid = sandbox.ask("status")["pid"]
    other = 256 if slots(sandbox) == 128 else 128
    configure(sandbox, f"slots: {other}\n")
    with Traffic(sandbox) as traffic:
        done = reload(sandbox)
        assert (done.returncode, done.stdout) == (0, "reloaded: strategy round_robin\n"), done
        sandbox.hurry()
        assert sandbox.wait_settled()["pid"] == pid
        assert slots(sandbox) == other
    traffic.all_arrived()


def test_what_is_wrong_is_told_and_changes_nothing(sandbox: Sandbox) -> None:
    before, used = sandbox.wait_settled(), slots(sandbox)
    path = configure(sandbox, "slots: 100\n")
    done = reload(sandbox)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert str(path) in done.stderr and "slots" in done.stderr
    after = sandbox.ask("status")
    assert after["uptime_s"] > before["uptime_s"] and slots(sandbox) == used
    (message,) = not_reloaded(sandbox)
    assert message.startswith(f"not reloaded: {path}: slots")
    configure(sandbox, f"slots: {used}\n")
    assert reload(sandbox).returncode == 0
    sandbox.hurry()
    assert not not_reloaded(sandbox)


def test_the_signal_does_the_same(sandbox: Sandbox) -> None:
    pid = sandbox.wait_settled()["pid"]
    other = 256 if slots(sandbox) == 128 else 128
    configure(sandbox, "slots: 100\n")
    os.kill(pid, signal.SIGHUP)
    wait_until(lambda: not_reloaded(sandbox), sandbox.log)
    configure(sandbox, f"slots: {other}\n")
    os.kill(pid, signal.SIGHUP)
    wait_until(lambda: slots(sandbox) == other, sandbox.log)
    assert sandbox.ask("status")["pid"] == pid


def test_certificates_are_read_again(tmp_path: Path) -> None:
    authority(tmp_path, "ours")
    authority(tmp_path, "theirs")
    for name in ("controller", "A"):
        signed(tmp_path, name, "ours")
    files = {name: tmp_path / name for name in ("controller.key", "controller.pem", "ours.pem")}
    options = ("--tls-key", "--tls-cert", "--tls-ca")
    tls = [
        word
        for option, file in zip(options, files.values(), strict=True)
        for word in (option, str(file))
    ]
    with Sandbox({"A": ["n0"]}) as sandbox:
        sandbox.spawn = execute
        sandbox.ovs.vsctl(
            "set-ssl", str(tmp_path / "A.key"), str(tmp_path / "A.pem"), str(tmp_path / "ours.pem")
        )
        sandbox.ovs.vsctl("set-controller", "A", f"ssl:127.0.0.1:{sandbox.port}")
        sandbox.start_controller(extra=tls)
        wait_until(lambda: connected(sandbox), sandbox.log)
        right = files["ours.pem"].read_text()
        files["ours.pem"].write_text("no certificate")
        done = reload(sandbox)
        assert done.returncode == 2 and "TLS: cannot use" in done.stderr
        assert connected(sandbox)
        files["ours.pem"].write_text((tmp_path / "theirs.pem").read_text())
        before = len(sandbox.log())
        assert reload(sandbox).returncode == 0
        # This happens at once.
        sandbox.ovs.vsctl("set-controller", "A", f"ssl:[::ffff:127.0.0.1]:{sandbox.port}")
        wait_until(lambda: "dropped" in sandbox.log()[before:], sandbox.log)
        assert not connected(sandbox)
        files["ours.pem"].write_text(right)
        assert reload(sandbox).returncode == 0
        sandbox.ovs.vsctl("set-controller", "A", f"ssl:127.0.0.1:{sandbox.port}")
        wait_until(lambda: connected(sandbox), sandbox.log)
