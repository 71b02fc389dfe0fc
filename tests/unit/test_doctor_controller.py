# SPDX-License-Identifier: Apache-2.0
"""`ri2n doctor --controller`: each thing that may be wrong is found, and said with what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ri2n_sdn import __version__
from ri2n_sdn.certificates import certificate_times, first_end_s
from ri2n_sdn.cli import doctor, doctor_machine
from ri2n_sdn.cli.doctor_controller import examine_controller
from ri2n_sdn.cli.examined import Examined, http_get
from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.cli.machine import (
    Process,
    last_option,
    listening,
    meminfo,
    process,
)
from ri2n_sdn.client import DEFAULT_SOCKET
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import NotAvailable
from tests.unit.commands import ri2n


def state(**controller: Any) -> Any:
    return {
        "controller": {
            **{"pid": os.getpid(), "started_s": 1.7e9, "strategy": "max_min", "in_charge": True},
            **{"version": __version__, "cycle_s": 0.01, "hbspan_s": 1.0},
            **{"store": {"kind": "own", "active": True, "epoch": 5, "problem": None}},
            **controller,
        },
        "problems": {},
        "hosts": {
            name: {"connected": True, "ovs": "3.1.0", "address": "192.0.2.1:1"}
            for name in ("node1", "node2")
        },
    }


@pytest.fixture
def seen(tmp_path: Path) -> Examined:
    """A controller that runs well: its sockets, its store and a port."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "ri2n.db").write_text("x")
    (folder / "ri2n.db").chmod(0o600)
    for name, mode in (("", 0o600), ("-jobs", 0o666), ("-web", 0o600)):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(tmp_path / f"c{name}.sock"))
        (tmp_path / f"c{name}.sock").chmod(mode)
    running = process(os.getpid())
    assert running is not None
    argv = ("ri2n", "controller", "--listen", "127.0.0.1:1", "--state-dir", str(folder))
    running = replace(running, argv=argv, uid=os.getuid() or 7, max_files=65536)
    return Examined(tmp_path / "c.sock", state(), "", running, argv)


def of(findings: list[Finding], check: str) -> tuple[str, str]:
    """(worst verdict, what was seen) of a check."""
    rows = [each for each in findings if each.check == check]
    worst = max(rows, key=lambda each: ("ok", "warning", "bad").index(each.verdict))
    assert worst.verdict == "ok" or worst.advice
    return worst.verdict, worst.seen


def examined(seen: Examined, check: str) -> tuple[str, str]:
    return of(examine_controller(seen, [check]), check)


def given(seen: Examined, *options: str) -> Examined:
    assert seen.running is not None
    argv = (*seen.argv, *options)
    return replace(seen, argv=argv, running=replace(seen.running, argv=argv))


def test_what_runs_well_is_ok(seen: Examined) -> None:
    findings = examine_controller(seen)
    wrong = [
        each
        for each in findings
        if each.verdict != "ok"
        # These depend on the machine of the test; sockets belong to whoever runs it.
        and each.check not in ("clock", "disk", "memory", "OpenFlow port", "sockets", "versions")
    ]
    assert wrong == []
    assert len({each.check for each in findings}) == 14


def test_a_controller_that_is_away_is_one_problem(tmp_path: Path) -> None:
    findings = examine_controller(Examined.of(tmp_path / "none.sock", tmp_path / "none"))
    assert of(findings, "controller")[0] == "bad"
    assert not [each for each in findings if each.check in ("sockets", "user", "limits", "hosts")]
    done = ri2n("doctor", "--controller", "--socket", str(tmp_path / "none.sock"), "--json")
    assert done.returncode == 2
    first = json.loads(done.stdout)["findings"][0]
    absent = refusal("controller_absent", path=str(tmp_path / "none.sock"))
    assert str(absent) in first["seen"] and "systemctl" in first["advice"]


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "text"),
    [
        ({"version": "0.0.1"}, "controller", "warning", "0.0.1 runs"),
        ({"cycle_s": 3.0}, "controller", "warning", "3.00 s"),
        ({"store": {"kind": "none"}}, "store", "bad", "no memory"),
        ({"store": {"kind": "own", "problem": "the disk is full"}}, "store", "bad", "disk is full"),
        ({"in_charge": False, "waits_because": "x is"}, "controller", "ok", "process"),
    ],
)
def test_what_the_controller_says(
    seen: Examined, changes: dict[str, Any], check: str, verdict: str, text: str
) -> None:
    found = examined(replace(seen, state=state(**changes)), check)
    assert found[0] == verdict and text in found[1]


def test_its_problems_hosts_and_their_switches(seen: Examined) -> None:
    now = state()
    now["problems"] = {"x": {"severity": "bad"}, "y": {"severity": "warning"}}
    now["hosts"]["node2"]["connected"] = False
    now["hosts"]["node1"]["ovs"] = "2.13.8"
    findings = examine_controller(replace(seen, state=now), ["controller", "hosts"])
    assert of(findings, "controller") == ("bad", "it reports 1 bad problems and 1 warnings")
    away = [each for each in findings if "node2" in each.seen]
    assert away[0].verdict == "bad" and "ri2n host retire" in away[0].advice
    assert any(each.verdict == "bad" and "2.13.8 on 1" in each.seen for each in findings)


def test_its_user_and_limits(seen: Examined) -> None:
    assert seen.running is not None
    running = replace(seen.running, uid=0, max_files=100, files=95)
    assert examined(replace(seen, running=running), "user")[0] == "warning"
    assert examined(replace(seen, running=running), "limits")[0] == "bad"
    few = replace(running, files=10)
    assert examined(replace(seen, running=few), "limits")[0] == "warning"
    assert examined(given(seen, "--web-group", "nosuchgroup-ri2n"), "user")[0] == "bad"


def test_sockets(seen: Examined) -> None:
    seen.socket.chmod(0o666)
    verdict, text = examined(seen, "sockets")
    assert verdict == "bad" and "0666" in text
    seen.socket.unlink()
    assert any("is missing" in row.seen for row in examine_controller(seen, ["sockets"]))


def test_the_store_is_private(seen: Examined, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.chmod(0o755)
    assert examined(seen, "store")[0] == "ok"  # the file itself is private
    (folder / "ri2n.db").chmod(0o644)
    assert examined(seen, "store")[0] == "bad"
    (folder / "ri2n.db").unlink()
    assert examined(seen, "store")[0] == "warning"


def test_its_configuration(seen: Examined, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("strategy: max_min\n")
    path.chmod(0o644)
    assert examined(given(seen, "--config", str(path)), "cluster.yaml")[0] == "ok"
    path.chmod(0o600)
    assert seen.running is not None
    stranger = replace(given(seen, "--config", str(path)))
    assert stranger.running is not None
    stranger = replace(stranger, running=replace(stranger.running, uid=54321, groups=frozenset()))
    assert examined(stranger, "cluster.yaml")[0] == "bad"
    path.write_text("strategie: max_min\n")
    verdict, text = examined(given(seen, "--config", str(path)), "cluster.yaml")
    assert verdict == "bad" and "strategie" in text


def test_its_port(seen: Examined) -> None:
    assert examined(seen, "OpenFlow port")[0] == "bad"  # nobody listens on port 1
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        inode = os.fstat(listener.fileno()).st_ino
        assert listening(port) == {inode: True}
        mine = given(seen, "--listen", f"127.0.0.1:{port}")
        assert mine.running is not None
        others = replace(mine, running=replace(mine.running, sockets=frozenset({1})))
        mine = replace(mine, running=replace(mine.running, sockets=frozenset({inode})))
        assert examined(mine, "OpenFlow port")[0] == "ok"
        assert "another process" in examined(others, "OpenFlow port")[1]
        away = state()
        away["hosts"] = {}
        assert examined(replace(mine, state=away), "OpenFlow port")[0] == "warning"
        none = replace(mine, state=None, running=None)
        assert "in use" in examined(none, "OpenFlow port")[1]
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        assert list(listening(listener.getsockname()[1]).values()) == [False]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("a", "b"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "90", "-subj", f"/CN={name}"),
                *("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"),
            ],
            check=True,
            capture_output=True,
        )
        (folder / f"{name}.key").chmod(0o600)
    return folder


def test_tls_files(seen: Examined, tls: Path, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)

    def found(cert: Path, key: Path, days: int = 0) -> tuple[str, str]:
        options = given(seen, "--tls-cert", str(cert), "--tls-key", str(key), "--tls-ca", str(cert))
        return examined(replace(options, now=now + timedelta(days=days)), "TLS")

    cert, key = tls / "a.pem", tls / "a.key"
    assert found(cert, key)[0] == "ok"
    assert found(cert, key, 61)[0] == "warning"
    assert found(cert, key, 91) == ("bad", f"{cert}: has ended on {certificate_times(cert)[1]:%F}")
    assert found(cert, key, -1)[0] == "bad"
    assert "does not fit" in found(cert, tls / "b.key")[1]
    assert "No such file" in found(cert, tmp_path / "gone")[1]
    both = tmp_path / "chain.pem"
    both.write_text(cert.read_text() + (tls / "b.pem").read_text())
    assert found(both, key)[0] == "ok"
    broken = tmp_path / "broken.pem"
    for text in ("no certificate", cert.read_text()[:200], cert.read_text().replace("M", "A")):
        broken.write_text(text)
        assert found(broken, key)[0] == "bad"
    loose = tmp_path / "loose.key"
    loose.write_text(key.read_text())
    loose.chmod(0o644)
    assert "all users can read" in found(cert, loose)[1]
    assert "2049" not in str(certificate_times(cert))
    ends_s = certificate_times(cert)[1].timestamp()
    assert first_end_s(tls / "b.pem", None, both, broken, tmp_path / "gone") == ends_s
    assert first_end_s(None, broken) is None


def test_disk_memory_and_clock(seen: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "FEW_FREE_BYTES", 1 << 62)
    assert examined(seen, "disk")[0] == "warning"
    monkeypatch.setattr(doctor_machine, "MIN_FREE_BYTES", 1 << 62)
    assert examined(seen, "disk")[0] == "bad"
    monkeypatch.setattr(doctor_machine, "clock_is_synchronised", lambda: False)
    assert examined(seen, "clock")[0] == "warning"
    monkeypatch.setattr(doctor_machine, "clock_is_synchronised", lambda: True)
    assert examined(seen, "clock")[0] == "ok"
    assert examined(replace(seen, now=datetime(1970, 1, 1)), "clock")[0] == "bad"
    monkeypatch.setattr(
        doctor_machine, "meminfo", lambda proc: {"MemTotal": 1 << 34, "MemAvailable": 1 << 20}
    )
    assert examined(seen, "memory")[0] == "warning"


def test_the_kernels_limits(seen: Examined, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    for name, value in (
        ("net/core/somaxconn", "1"),
        ("net/netfilter/nf_conntrack_count", "90"),
        ("net/netfilter/nf_conntrack_max", "100"),
    ):
        (proc / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (proc / "sys" / name).write_text(value + "\n")
    rows = list(doctor_machine.kernel(replace(seen, proc=proc)))
    assert [row[0] for row in rows] == ["warning", "warning"]
    assert "somaxconn" in rows[0][1] and "90 of 100" in rows[1][1]


def test_a_check_that_fails_is_a_finding(seen: Examined) -> None:
    broken = state()
    del broken["controller"]["cycle_s"]
    verdict, text = examined(replace(seen, state=broken), "controller")
    assert verdict == "warning" and "cannot be checked" in text


def test_processes_and_their_options() -> None:
    own = process(os.getpid())
    assert own is not None and own.uid == os.geteuid() and own.resident_bytes > 1 << 20
    assert own.files and process(2**22 + 1) is None
    assert meminfo()["MemTotal"] > 1 << 20
    argv = ("x", "--a", "1", "--b=2", "--a=3", "--a")
    assert last_option(argv, "--a") == "3" and last_option(argv, "--c") is None
    assert isinstance(own, Process)


def test_without_options_both_sides_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "host-doctor"
    script.write_text(
        '#!/bin/sh\necho \'{"findings": [{"check": "bridge", "verdict": "ok", "seen": "b", '
        '"advice": ""}]}\'\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(doctor, "host_script", lambda name: tmp_path / name)
    monkeypatch.setattr(doctor, "OPTIONS", tmp_path / "controller.conf")
    monkeypatch.setattr(doctor, "DEFAULT_SOCKET", tmp_path / "controller.sock")
    monkeypatch.setattr(doctor, "HOST", tmp_path / "host.conf")

    def checks() -> set[str]:
        return {each["check"] for each in json.loads(ri2n("doctor", "--json").stdout)["findings"]}

    assert checks() == {"bridge"}
    (tmp_path / "controller.conf").write_text("")
    assert "controller" in checks() and "bridge" not in checks()
    (tmp_path / "host.conf").write_text("")
    assert {"controller", "bridge"} <= checks()
    assert ri2n("doctor", "--controller", "--lab", "x").returncode == 2


def machine_of(proc: Path, *commands: tuple[str, ...], net: str = "net:[1]") -> Path:
    """A /proc with a process for each command line, all in one network namespace."""
    own = proc / "self" / "ns"
    own.mkdir(parents=True, exist_ok=True)
    if not (own / "net").is_symlink():
        (own / "net").symlink_to("net:[1]")
    for number, argv in enumerate(commands, start=len(list(proc.iterdir()))):
        folder = proc / str(number)
        (folder / "ns").mkdir(parents=True)
        (folder / "ns" / "net").symlink_to(net)
        (folder / "cmdline").write_text("\0".join(argv) + "\0")
        for name in ("status", "limits"):
            shutil.copy(f"/proc/self/{name}", folder / name)
    return proc


def test_the_web_process_is_that_of_this_controller_and_of_this_machine(tmp_path: Path) -> None:
    """Containers' processes are seen, too, and so are those of other controllers."""
    path, proc = tmp_path / "c.sock", tmp_path / "proc"
    own = ("/usr/bin/python3", "/usr/bin/ri2n", "web", "--socket", str(path))
    seen = Examined(path, proc=proc)
    machine_of(proc, own, net="net:[2]")
    assert seen.web() is None
    machine_of(proc, ("/usr/bin/ri2n", "web"), (*own[:-1], "/run/other.sock"), ("web", "ri2n"))
    assert seen.web() is None
    machine_of(proc, own)
    found = seen.web()
    assert found is not None and found.argv == own


def test_options_of_a_controller_that_is_away_are_read_as_systemd_reads_them(
    tmp_path: Path,
) -> None:
    """It may be away because of them: a certificate on the second line has ended."""
    file = tmp_path / "controller.conf"
    file.write_text(
        "RI2N_CONTROLLER_OPTIONS=--config /old\n#RI2N_CONTROLLER_OPTIONS=--x \\\n# --y\n"
        "RI2N_CONTROLLER_OPTIONS='--config /new \\\n  --tls-cert /none.pem'\n"
    )
    seen = Examined.of(tmp_path / "none.sock", file)
    assert seen.argv == ("--config", "/new", "--tls-cert", "/none.pem")
    assert examined(seen, "TLS") == ("bad", "/none.pem: No such file or directory")


def test_what_a_user_starts_under_our_name_is_not_the_web_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise root is told to put that user into the group of the web process."""
    group = SimpleNamespace(gr_gid=4242)
    monkeypatch.setattr("ri2n_sdn.cli.examined.grp.getgrnam", lambda name: group)
    monkeypatch.setattr("ri2n_sdn.cli.doctor_controller.grp.getgrnam", lambda name: group)
    path, proc = tmp_path / "c.sock", tmp_path / "proc"
    machine_of(proc, ("ri2n", "web", "--socket", str(path), "--listen", "nonsense"))
    (folder,) = (each for each in proc.iterdir() if each.name != "self")
    status = (folder / "status").read_text()
    argv = ("ri2n", "controller", "--web-group", "ri2n-web")
    own = process(os.getpid())
    assert own is not None
    seen = Examined(path, state(), "", replace(own, argv=argv, uid=998), argv, proc)

    def runs_as(uid: int, *groups: int) -> Process | None:
        text = re.sub(r"^Uid:.*$", f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}", status, flags=re.M)
        text = re.sub(r"^Gid:.*$", f"Gid:\t{uid}\t{uid}\t{uid}\t{uid}", text, flags=re.M)
        text = re.sub(r"^Groups:.*$", f"Groups:\t{' '.join(map(str, groups))}", text, flags=re.M)
        (folder / "status").write_text(text)
        return seen.web()

    person = 20001 if os.geteuid() != 20001 else 20002
    assert runs_as(person) is None and runs_as(65534) is None
    assert examined(seen, "user")[0] == "ok"
    # A service's user, that of the controller, members of the group.
    assert runs_as(0) and runs_as(997) and runs_as(998) and runs_as(61500)
    assert runs_as(person, 4242)
    found = examined(seen, "web process")
    assert found[0] == "bad" and "nonsense" in found[1]


def test_an_address_of_a_web_process_that_makes_no_sense_is_one_line() -> None:
    for listen in ("nonsense", "host:", "host:x", "a b\r\n:80", f"{'ü' * 300}.example:80"):
        with pytest.raises(NotAvailable):
            http_get(("--listen", listen), "/", 10)


def test_a_web_process_without_a_socket_is_that_of_the_machine_s_controller(tmp_path: Path) -> None:
    proc = machine_of(tmp_path, ("/usr/bin/ri2n", "web", "--listen", "127.0.0.1:8420"))
    assert Examined(DEFAULT_SOCKET, proc=proc).web() is not None
    assert Examined(tmp_path / "c.sock", proc=proc).web() is None
