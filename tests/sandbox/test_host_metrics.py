# SPDX-License-Identifier: Apache-2.0
"""host-metrics writes a textfile for node_exporter; with a real Open vSwitch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ri2n_lab.cluster.sandbox import PrivateOvs
from ri2n_sdn.certificates import certificate_times

SCRIPT = Path(__file__).parents[2] / "ovs-host-scripts" / "host-metrics"
STATUS = {
    "mac": "02:00:00:00:00:01",
    "held_bytes": 4096,
    "nics": [{"port": 1, "name": "eth0"}],
    "counters": {"frames_in": 2**53, "queue_drops": 0, "late": 7},
}


class Host:
    """Folders as host-up leaves them, with NICs eth0 (carrier) and eth1 (gone)."""

    def __init__(self, folder: Path, ovs: PrivateOvs) -> None:
        self.folder, self.ovs = folder, ovs
        self.file = folder / "out" / "ri2n.prom"
        self.file.parent.mkdir()
        for nic in ("eth0", "eth1"):
            (folder / "state" / "br-x" / f"nic.{nic}").mkdir(parents=True)
        device = folder / "sys" / "eth0"
        device.mkdir(parents=True)
        for name, value in (("carrier", 1), ("carrier_changes", 5), ("speed", 2500)):
            (device / name).write_text(f"{value}\n")
        self.socket = folder / "helper.sock"

    def run(
        self, *words: str, check: bool = True, before: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run the script; `before` is the command that starts it."""
        argv = [*before, SCRIPT, "--output", self.file, "--bridge", "br-x"]
        argv += ["--db", f"unix:{self.ovs.folder}/db.sock", "--helper-socket", self.socket]
        argv += ["--state-dir", self.folder / "state"]
        environment = {**os.environ, "RI2N_SYS_NET": str(self.folder / "sys")}
        environment["RI2N_FAST"] = str(self.folder / "ri2n-fast")
        return subprocess.run(
            [*map(str, argv), *words], capture_output=True, text=True, check=check, env=environment
        )

    def fast(self, program: str) -> None:
        """The host was asked for the fast path, and this is the program."""
        (self.folder / "state" / "br-x" / "fast").touch()
        path = self.folder / "ri2n-fast"
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)

    def written(self) -> dict[tuple[str, ...], float]:
        """What the file says, by name and labels."""
        families: Any = text_string_to_metric_families(self.file.read_text())
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }

    @contextmanager
    def helper(self, line: bytes) -> Iterator[None]:
        """A helper that has this to say on its status socket."""
        (self.folder / "state" / "br-x" / "helper").touch()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.socket))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join()
            self.socket.unlink()


@pytest.fixture(scope="module")
def ovs() -> Iterator[PrivateOvs]:
    with PrivateOvs() as made:
        made.vsctl("add-br", "br-x", "--", "set-controller", "br-x", "tcp:127.0.0.1:1")
        yield made


@pytest.fixture
def host(tmp_path: Path, ovs: PrivateOvs) -> Host:
    return Host(tmp_path, ovs)


def test_all_of_a_host_is_written(host: Host) -> None:
    began_s = time.time()
    with host.helper(json.dumps(STATUS, separators=(",", ":")).encode() + b"\n"):
        host.run()
    found = host.written()
    assert found.pop(("ri2n_node_written_timestamp_seconds",)) >= int(began_s)
    assert found == {
        ("ri2n_node_bridge_up", "br-x"): 1,
        ("ri2n_node_controller_connected", "tcp:127.0.0.1:1"): 0,
        ("ri2n_node_nic_present", "eth0"): 1,
        ("ri2n_node_nic_present", "eth1"): 0,
        ("ri2n_node_nic_up", "eth0"): 1,
        ("ri2n_node_nic_up", "eth1"): 0,
        ("ri2n_node_nic_carrier_changes_total", "eth0"): 5,
        ("ri2n_node_nic_speed_bytes_per_second", "eth0"): 312_500_000,
        ("ri2n_node_helper_up",): 1,
        ("ri2n_node_helper_held_bytes",): 4096,
        ("ri2n_node_helper_events_total", "frames_in"): 2**53,
        ("ri2n_node_helper_events_total", "queue_drops"): 0,
        ("ri2n_node_helper_events_total", "late"): 7,
    }
    assert host.file.stat().st_mode & 0o777 == 0o644, "node_exporter is another user"
    assert [path.name for path in host.file.parent.iterdir()] == ["ri2n.prom"]


def test_what_the_fast_path_does_is_written(host: Host) -> None:
    peers = {"carried": 12, "striped": 1, "undecided": 0, "unsupported": 0, "too_many": 2}
    peers["striped_tcp"] = 3
    says = {"programs": "in_force", "plan_age_ms": 61_007, "peers": peers, "order": "ready"}
    host.fast(f"[ \"$1\" = status ] && echo '{json.dumps(says)}'")
    host.run()
    found = {key: value for key, value in host.written().items() if "fast" in key[0]}
    wanted: dict[tuple[str, ...], float] = {
        ("ri2n_node_fast_peers", state): count for state, count in peers.items()
    }
    wanted[("ri2n_node_fast_up",)] = wanted[("ri2n_node_fast_in_force",)] = 1
    wanted[("ri2n_node_fast_plan_age_seconds",)] = 61.007
    assert found == wanted
    # With a helper there is one figure more.
    (host.folder / "state" / "br-x" / "helper").touch()
    for order, ready in (("ready", 1), ("none", 0)):
        host.fast(f"echo '{json.dumps({**says, 'order': order})}'")
        host.run()
        assert host.written()[("ri2n_node_fast_order_ready",)] == ready
    (host.folder / "state" / "br-x" / "helper").unlink()
    host.fast("exit 1")
    host.run()
    found = {key: value for key, value in host.written().items() if "fast" in key[0]}
    assert found == {("ri2n_node_fast_up",): 0}
    host.fast("""echo '{"programs": "in_force", "plan_age_ms": -1, "peers": {"carried": "x"}}'""")
    host.run()
    assert host.written()[("ri2n_node_fast_peers", "carried")] == 0


def test_a_helper_that_is_not_there_or_writes_nonsense_costs_only_its_own_part(host: Host) -> None:
    (host.folder / "state" / "br-x" / "helper").touch()
    host.run()
    found = host.written()
    assert found["ri2n_node_helper_up",] == 0 and ("ri2n_node_nic_up", "eth0") in found
    nonsense = b'{"counters":{"a\\"} 1\nx":3,"good":4,"bad":-1,"much":1e9,"B":2}}\n'
    with host.helper(nonsense):
        host.run()
    events = [key for key in host.written() if key[0] == "ri2n_node_helper_events_total"]
    assert events in ([], [("ri2n_node_helper_events_total", "good")])


def test_without_open_vswitch_the_rest_is_written(host: Host, tmp_path: Path) -> None:
    host.run("--db", f"unix:{tmp_path}/nothing.sock")
    found = host.written()
    assert found["ri2n_node_bridge_up", "br-x"] == 0 and ("ri2n_node_nic_up", "eth0") in found


def test_a_reader_finds_the_file_whole_at_any_time(host: Host) -> None:
    host.run()
    before = host.file.read_text()
    with host.file.open() as reader:
        host.run()
        assert reader.read() == before, "the file was written over"


def test_what_a_killed_run_left_is_removed_later(host: Host) -> None:
    folder = host.file.parent
    old, new = folder / ".ri2n.aaaaaa", folder / ".ri2n.bbbbbb"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    host.run()
    assert sorted(path.name for path in folder.iterdir()) == [".ri2n.bbbbbb", "ri2n.prom"]


def test_a_folder_that_cannot_be_written_is_one_line_and_costs_nothing(host: Host) -> None:
    host.run()
    before = host.file.read_text()
    host.file.parent.chmod(0o555)
    # Root may write everywhere, but for this power.
    bounded = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    done = host.run(check=False, before=bounded)
    host.file.parent.chmod(0o755)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{host.file}: cannot be written: Permission denied" in done.stderr
    assert host.file.read_text() == before and len(list(host.file.parent.iterdir())) == 1


def test_a_folder_in_the_place_of_the_file_is_one_line(host: Host) -> None:
    host.file.mkdir()
    done = host.run(check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{host.file}: is a folder" in done.stderr and not list(host.file.iterdir())


def test_a_series_is_there_once_also_when_its_source_is_there_twice(
    host: Host, ovs: PrivateOvs
) -> None:
    """For a series that a file has twice, node_exporter answers nothing at all, of any kind."""
    second = ["--id=@a", "create", "Controller", 'target="tcp:127.0.0.1:1"']
    ovs.vsctl("--", *second, "--", "add", "Bridge", "br-x", "controller", "@a")
    status = b'{"counters":{"late":1,"late":2}}\n'
    try:
        with host.helper(status):
            host.run()
    finally:
        ovs.vsctl("set-controller", "br-x", "tcp:127.0.0.1:1")
    lines = [line.partition(" ")[0] for line in host.file.read_text().splitlines()]
    series = [line for line in lines if line != "#"]
    assert len(series) == len(set(series))
    assert series.count('ri2n_node_controller_connected{target="tcp:127.0.0.1:1"}') == 1


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_name_that_is_no_text_costs_nothing_else(
    host: Host, locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host.folder / "state" / "br-x" / 'nic.e\udcff\n"').mkdir()
    monkeypatch.setenv("LC_ALL", locale)
    host.run()
    found = {key[1] for key in host.written() if key[0] == "ri2n_node_nic_present"}
    assert found == {"eth0", "eth1", 'e??"'}


def test_a_folder_that_is_not_there_is_one_line(host: Host) -> None:
    done = host.run("--output", "/nonexistent/ri2n.prom", check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "/nonexistent/ri2n.prom: there is no such folder" in done.stderr


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A folder with the certificates and keys `a` and `b`, of which `b` ends first."""
    for name, days in (("a", "300"), ("b", "3")):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-days", days, "-subj", f"/CN={name}"),
                *("-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"),
            ],
            check=True,
            capture_output=True,
        )
    return tmp_path


def of_certificates(host: Host, certificate: Path, authority: Path) -> dict[str, float]:
    """What is written of these files, by the label `file`; what cannot be read as "unreadable"."""
    files = (certificate.with_suffix(".key"), certificate, authority)
    host.ovs.vsctl("set-ssl", *map(str, files))
    try:
        host.run()
    finally:
        host.ovs.vsctl("del-ssl")
    return {
        (key[1:] or ("unreadable",))[0]: value
        for key, value in host.written().items()
        if key[0].startswith("ri2n_node_certificate")
    }


def end_s(file: Path) -> float:
    return certificate_times(file)[1].timestamp()


def test_when_certificates_end_is_written(host: Host, pem: Path) -> None:
    a, b, both = pem / "a.pem", pem / "b.pem", pem / "both.pem"
    assert of_certificates(host, a, b) == {
        **{"certificate": end_s(a), "authority": end_s(b)},
        "unreadable": 0,
    }
    # With what openssl writes around them; of several, the first one counts that ends.
    both.write_text(f"subject=CN=a\n{a.read_text()}\nsubject=CN=b\n{b.read_text().strip()}")
    found = of_certificates(host, both, a)
    assert found == {"certificate": end_s(b), "authority": end_s(a), "unreadable": 0}


def test_files_without_a_certificate_are_counted_and_cost_nothing_else(
    host: Host, pem: Path
) -> None:
    good = pem / "a.pem"
    text = good.read_text()
    begin, end = text.splitlines()[0], text.splitlines()[-1]
    bad: list[Path] = []
    for content in (
        text[:200].encode(),
        f"{begin}\n$(id)\n{end}\n".encode(),
        begin.encode() + b"\n" + bytes(range(256)) * 800,
        b"\0" * 10_000_000,
    ):
        bad.append(pem / f"bad{len(bad)}.pem")
        bad[-1].write_bytes(content)
    (pem / "folder.pem").mkdir()
    assert of_certificates(host, bad[0], good) == {"authority": end_s(good), "unreadable": 1}
    for one, other in ((bad[1], bad[2]), (bad[3], pem / "none.pem"), (pem / "folder.pem", bad[0])):
        assert of_certificates(host, one, other) == {"unreadable": 2}
    assert ("ri2n_node_nic_up", "eth0") in host.written()
