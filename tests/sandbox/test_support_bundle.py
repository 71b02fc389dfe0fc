# SPDX-License-Identifier: Apache-2.0
"""`ri2n support-bundle` with a real controller and host-doctor, and planted secrets."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, execute, reserve_port
from ri2n_sdn.cli import bundle
from ri2n_sdn.client import call, web_socket_of
from tests.unit.commands import ri2n
from tests.unit.test_support_bundle import content, script
from tests.waiting import wait_until

ADMIN = {"user": "carol", "uid": 20003, "role": "admin"}

# In place of the web process: it has its command line, and says more than it should.
WEB = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(open(sys.argv[0] + ".metrics", "rb").read())
    def log_message(self, *arguments):
        pass
port = int(sys.argv[sys.argv.index("--listen") + 1].rpartition(":")[2])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox({"A": ["n0", "n1"], "B": ["n0", "n1"], "C": ["n0", "n1"]}) as made:
        made.spawn = execute
        made.start_controller(strategy="max_min")
        made.wait_settled()
        yield made


@pytest.fixture
def web(sandbox: Sandbox) -> Iterator[Path]:
    """A web process of this controller; the path whose text plus .metrics is what it says."""
    program = sandbox.folder / "ri2n"
    program.write_text(WEB)
    program.with_name("ri2n.metrics").write_text("ri2n_hosts 3\n")
    reserved, port = reserve_port()
    command = [sys.executable, str(program), "web", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen([*command, "--socket", str(sandbox.socket)])

    def listens() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listens, "the web process does not listen")
        yield program
    finally:
        process.kill()
        process.wait()
        reserved.close()


def texts_of(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield str(key)
            yield from texts_of(value)
    elif isinstance(document, list):
        for value in document:
            yield from texts_of(value)
    else:
        yield str(document)


def test_real_secrets_are_not_in_it(
    sandbox: Sandbox, web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tokens of the web process, as `ri2n token add` makes them; the controller knows their hashes.
    tokens = [secrets.token_urlsafe(32) for _ in range(4)]
    hashes = [hashlib.sha256(token.encode()).hexdigest() for token in tokens]
    for number, each in enumerate(hashes):
        call(
            web_socket_of(sandbox.socket),
            "token_add",
            who=ADMIN,
            name=f"t{number}",
            role="viewer",
            hash=each,
        )
    cookie = secrets.token_hex(32)
    key = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines_of_key = [line for line in key.splitlines() if len(line) > 40]
    planted = f"Authorization: Bearer {tokens[0]}\n{key}\nstorage_secret: {cookie}\n{tokens[1]}\n"
    config = tmp_path / "cluster.yaml"
    config.write_text(sandbox.declared() + "# " + planted.replace("\n", "\n# ") + "\n")
    web.with_name("ri2n.metrics").write_text(
        f'ri2n_hosts 3\nri2n_build_info{{version="1"}} 1\nri2n_x{{what="{tokens[2]}"}} 1\n{planted}'
    )
    # An isolated job has addresses on the wire that nobody else may know.
    call(
        sandbox.socket,
        "job_begin",
        job={"id": "secret1", "user": "alice", "uid": 20001, "hosts": ["A", "B"]}
        | {"policy": "isolated"},
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    script(programs / "journalctl", f"listening\n{planted}cookie {cookie}\nthe end")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    for name in ("OPTIONS", "WEB_OPTIONS", "HOST"):
        (tmp_path / name).write_text(f"# {planted}")
        monkeypatch.setattr(bundle, name, tmp_path / name)
    for name in ("OVS_RUNDIR", "OVS_DBDIR"):
        monkeypatch.setenv(name, str(sandbox.folder))

    output = tmp_path / "bundle.tar.gz"
    ended = ri2n(
        *("support-bundle", "--output", str(output), "--config", str(config)),
        *("--socket", str(sandbox.socket)),
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    files = content(output)

    store = (sandbox.folder / "memory" / "ri2n.db").read_text()
    assert all(each in store for each in hashes), "the secrets were not where they should be"
    for name, text in files.items():
        found = [each for each in (*tokens, *hashes, cookie, *lines_of_key) if each in text]
        assert not found, (name, found)

    status = json.loads(files["status.json"])
    assert {host["name"] for host in status["hosts"]} == {"A", "B", "C"}
    assert all(host["mac"] == sandbox.mac(host["name"]) for host in status["hosts"])
    assert json.loads(files["jobs.json"])["jobs"][0]["id"] == "secret1"
    parameters = {each["name"] for each in json.loads(files["parameters.json"])["parameters"]}
    assert "strategy" in parameters
    state = json.loads(files["state.json"])
    assert state["hosts"].keys() == {"A", "B", "C"} and "tokens" not in state
    assert "ri2n_hosts 3" in files["metrics.txt"]
    assert files["log.txt"].startswith("listening") and "the end" in files["log-web.txt"]
    checks = {each["check"] for each in json.loads(files["doctor-controller.json"])}
    assert {"controller", "store"} <= checks
    (row,) = [
        each
        for each in json.loads(files["doctor-controller.json"])
        if each["check"] == "web process" and "answers on" in each["seen"]
    ]
    assert row["verdict"] == "ok"
    # The real host-doctor says that this machine is no host; what it says is kept.
    assert "br-ri2n" in files["host-doctor.txt"] and "host-status.txt" in files
    wires = sandbox.ovs.run("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "A")
    # Open vSwitch chooses those of NICs at random, so they may begin like those on the wire.
    own = {sandbox.mac(host) for host in sandbox.hosts}
    own |= {sandbox.nic_mac(host, port) for host in sandbox.hosts for port in (1, 2)}
    for text in texts_of(state):
        assert not (text.startswith("02:") and text in wires and text not in own), text
