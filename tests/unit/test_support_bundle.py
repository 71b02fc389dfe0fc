# SPDX-License-Identifier: Apache-2.0
"""`ri2n support-bundle`: all that helps is in it, no secret is, and no file is replaced."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.cli import bundle
from ri2n_sdn.cli.redact import redact_text
from ri2n_sdn.pipeline.layout import job_mac
from tests.unit.commands import ri2n
from tests.unit.test_cli_client import listener

OWN_MAC = "02:0a:00:00:00:01"
NIC_MAC = "04:0a:00:00:00:01"
WIRE_MAC = job_mac(b"a key of a job", OWN_MAC)
TOKEN = "Zq3-x8Vn_Yk7Rm2Tp5Wc9Ld4Hs6Jf1Gb0NaQeUiOoXy"
HASH = "5f" * 32
BODY = "MC4CAQAwBQYDK2VwBCIEIMarker/Of+A+Private+Key0123456789abcdefghij"
PEM = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----"
PASSWORD = "correct-horse"
SECRETS = (WIRE_MAC, WIRE_MAC.upper().replace(":", "-"), TOKEN, HASH, BODY, PASSWORD)
PLANTED = f"a {WIRE_MAC.upper().replace(':', '-')} b {WIRE_MAC} c {TOKEN} d {HASH}\n{PEM}\nseen"


def content(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.removeprefix("ri2n-support/")] = file.read().decode()
        return found


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\nexit 1\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration, a log and host scripts, all with secrets in them."""
    text = f"password: {PASSWORD}\ntokens:\n- {PASSWORD}\nkept: 1\n# {PLANTED}\n"
    for name in ("cluster.yaml", "controller.conf", "host.conf", "web.conf"):
        (tmp_path / name).write_text(text)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("journalctl", "ovs-vsctl", "host-doctor", "host-status"):
        script(programs / name, f"{name} {PLANTED} token={PASSWORD}\nBearer {PASSWORD}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(bundle, "OPTIONS", tmp_path / "controller.conf")
    monkeypatch.setattr(bundle, "WEB_OPTIONS", tmp_path / "web.conf")
    monkeypatch.setattr(bundle, "HOST", tmp_path / "host.conf")
    monkeypatch.setattr(bundle, "host_script", lambda name: programs / name)
    return tmp_path


def serve(connection: socket.socket) -> None:
    request = json.loads(connection.makefile("rb").readline())
    answer = {
        "ok": True,
        "seq": 1,
        "state": {
            "controller": {"pid": 0},
            "hosts": {"A": {"mac": OWN_MAC, "nics": {"eth0": {"mac": NIC_MAC}}}},
            "problems": {"p": {"text": PLANTED}},
        },
        "asked": request["op"],
        "token": PASSWORD,
        "tokens": {"web": {"hash": HASH}},
        "deep": [{"key": BODY, "text": PLANTED, WIRE_MAC: 1}],
        "error_text": f"password={PASSWORD}",
    }
    connection.sendall(json.dumps(answer).encode() + b"\n")


def test_no_secret_is_in_it_and_all_else_is(machine: Path) -> None:
    output = machine / "out.tar.gz"
    options = ("--output", str(output), "--config", str(machine / "cluster.yaml"))
    with listener(serve) as path:
        ended = ri2n("support-bundle", *options, "--socket", str(path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    files = content(output)
    told = {name for name, *_ in bundle._ASKED}
    assert set(files) == told | {
        *("README", "cluster.yaml", "controller.conf", "versions.txt", "ovs.txt", "log.txt"),
        *("host-doctor.txt", "host-status.txt", "web.conf", "log-web.txt", "state.json"),
        "doctor-controller.json",
    }
    for name, text in files.items():
        assert not [secret for secret in SECRETS if secret in text], name
        assert name == "README" or f"{name}: " in files["README"]
    missing = files["README"].split("Missing:")[1]
    assert missing.strip() == "metrics.txt: there is no web process"
    for name, op, *_ in bundle._ASKED:
        document = json.loads(files[name])
        host = document["state"]["hosts"]["A"]
        assert document["asked"] == op.name and host["mac"] == OWN_MAC
        assert host["nics"]["eth0"]["mac"] == NIC_MAC
        assert document["deep"][0]["text"].endswith("seen")
    assert "kept: 1" in files["cluster.yaml"] and "seen" in files["cluster.yaml"]
    assert files["log.txt"].startswith("journalctl ") and "seen" in files["log.txt"]
    assert not list(machine.glob(".ri2n-support-*"))


def test_it_works_without_a_controller_and_says_what_is_missing(machine: Path) -> None:
    output = machine / "out.tar.gz"
    (machine / "host.conf").unlink()
    options = ("--output", str(output), "--config", str(machine / "none.yaml"))
    ended = ri2n("support-bundle", *options, "--socket", str(machine / "none.sock"))
    assert ended.returncode == 0 and "are missing" in ended.stdout
    files = content(output)
    assert set(files) == {
        *("README", "controller.conf", "versions.txt", "ovs.txt", "log.txt", "log-web.txt"),
        *("web.conf", "doctor-controller.json"),
    }
    missing = files["README"].split("Missing:")[1]
    for name in ("status.json", "state.json", "cluster.yaml", "host-doctor.txt", "metrics.txt"):
        assert f"\n{name}: " in missing
    for name, text in files.items():
        assert not [secret for secret in SECRETS if secret in text], name


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_that_is_there_stays(kind: str, machine: Path) -> None:
    output = machine / "out.tar.gz"
    if kind == "file":
        output.write_text("old")
    else:
        output.symlink_to(machine / "nowhere")
    ended = ri2n("support-bundle", "--output", str(output))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"ri2n: --output {output}: is there already\n"
    assert output.is_symlink() if kind == "link" else output.read_text() == "old"


def test_a_file_that_appears_meanwhile_stays(machine: Path) -> None:
    output = machine / "out.tar.gz"

    def appear(connection: socket.socket) -> None:
        output.write_text("old")
        serve(connection)

    with listener(appear) as path:
        ended = ri2n("support-bundle", "--output", str(output), "--socket", str(path))
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1
    assert output.read_text() == "old"
    assert not list(machine.glob(".ri2n-support-*"))


def test_it_goes_where_there_are_no_links(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on most USB sticks, by which it may be taken to somebody else."""

    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    output = machine / "out.tar.gz"
    options = ("--output", str(output), "--socket", str(machine / "none.sock"))
    assert ri2n("support-bundle", *options).returncode == 0
    assert "README" in content(output) and stat.S_IMODE(output.stat().st_mode) == 0o600
    assert not list(machine.glob(".ri2n-support-*"))


@given(key=st.binary(min_size=1, max_size=64), before=st.text(max_size=20))
def test_each_address_of_a_job_is_taken_out(key: bytes, before: str) -> None:
    mac = job_mac(key, OWN_MAC)
    text = redact_text(f"{before} {mac} {OWN_MAC}", {OWN_MAC} - {mac})
    assert mac not in text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("< Cookie: session=abc; id=1\nnext", "< Cookie: (taken out)\nnext"),
        ('{"set-cookie": "abc"}', '{"set-cookie": (taken out)'),
        ("from https://alice:correct@h/a: b@c", "from https://alice:(taken out)@h/a: b@c"),
        ("cookie=0x5249, cookie: 0x5249, table=0", "cookie=0x5249, cookie: 0x5249, table=0"),
    ],
)
def test_cookies_of_browsers_are_taken_out_and_those_of_flows_stay(text: str, left: str) -> None:
    assert redact_text(text) == left


def test_the_end_of_a_key_is_taken_out_where_its_begin_is_missing() -> None:
    text = redact_text(
        f"host: abcDEF0\nhost: xyz=\nhost: -----END RSA PRIVATE KEY-----\nseen {HASH}"
    )
    assert text == "(taken out)\nseen (taken out)"


@pytest.mark.parametrize(
    "unit",
    ["a", "://a:", "://a:b", "-----BEGIN ", "token", "cookie:", "a:", "0f", "-----END ", "Aa0"],
)
def test_a_long_line_of_a_stranger_takes_no_long_time(unit: str) -> None:
    # With a time that grows with the square of the length, this would take minutes.
    redact_text(unit * (100_000 // len(unit)))
