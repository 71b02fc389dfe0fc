# SPDX-License-Identifier: Apache-2.0
"""Hosts connect by TLS with certificates of the cluster's own authority.

A host with a certificate of another authority is refused.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.certificates import certificate_times
from ri2n_sdn.errors import NotAvailable
from tests.problem_texts import problem_texts
from tests.waiting import LONG_S, wait_until

from .test_watch import watch


def openssl(*argv: str) -> None:
    subprocess.run(["openssl", *argv], check=True, capture_output=True, timeout=LONG_S)


def authority(folder: Path, name: str) -> None:
    """A self-signed certificate `name`.pem, and its key."""
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-keyout", str(folder / f"{name}.key"),
            "-out", str(folder / f"{name}.pem"))  # fmt: skip


def signed(folder: Path, name: str, by: str, *hosts: str) -> None:
    """A certificate `name`.pem that `by` signed, and its key.

    It is for these hosts, or for its common name.
    """
    names = (
        ["-addext", f"subjectAltName={','.join(f'DNS:{host}' for host in hosts)}"] if hosts else []
    )
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", *names,
            "-keyout", str(folder / f"{name}.key"),
            "-out", str(folder / f"{name}.csr"))  # fmt: skip
    openssl("x509", "-req", "-days", "2", "-in", str(folder / f"{name}.csr"),
            "-CA", str(folder / f"{by}.pem"),
            "-CAkey", str(folder / f"{by}.key"), "-CAcreateserial",
            "-copy_extensions", "copy", "-out", str(folder / f"{name}.pem"))  # fmt: skip


def test_the_keys_that_the_docs_make_connect(tmp_path: Path) -> None:
    """The commands of docs/operations.md as they are, except for the folder.

    Each file is where its table says.
    """
    text = (
        (Path(__file__).resolve().parents[2] / "docs" / "operations.md")
        .read_text()
        .partition("### TLS\n")[2]
    )
    commands = (
        text.partition("```sh\n")[2]
        .partition("```")[0]
        .replace("/etc/ri2n/tls", str(tmp_path / "tls"))
    )
    subprocess.run(["bash", "-ec", commands], check=True, capture_output=True, timeout=LONG_S)
    rows = re.findall(r"^\| [^|]+ \| (`--[^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    pairs = [(option.split("`")[1::2], file.split("`")[1::2]) for option, file in rows]
    found = {
        option: tmp_path / "tls" / file
        for options, files in pairs
        for option, file in zip(options, files, strict=True)
    }
    tls = [
        word
        for option in ("--tls-key", "--tls-cert", "--tls-ca")
        for word in (option, str(found[option]))
    ]
    with Sandbox({"node1": ["n0"], "node2": ["n0"]}) as sandbox:
        sandbox.ovs.vsctl(
            "set-ssl", *(str(found[option]) for option in ("--ssl-key", "--ssl-cert", "--ssl-ca"))
        )
        for host in sandbox.hosts:
            sandbox.ovs.vsctl("set-controller", host, f"ssl:127.0.0.1:{sandbox.port}")
        sandbox.start_controller(extra=tls)
        wait_until(lambda: connected(sandbox) == {"node1"}, sandbox.log)
        wait_until(  # one Open vSwitch, one certificate
            lambda: (
                "node2 at 127.0.0.1 refused: its certificate is for node1"
                in " ".join(problem_texts(sandbox.ask("status")))
            ),
            sandbox.log,
        )


def connected(sandbox: Sandbox) -> set[str]:
    try:
        return {host["name"] for host in sandbox.ask("status")["hosts"] if host["connected"]}
    except NotAvailable:
        return set()


def test_hosts_connect_by_tls_and_strangers_do_not(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        authority(tmp_path, name)
    signed(tmp_path, "controller", "ours")
    signed(tmp_path, "A", "ours")
    signed(tmp_path, "host", "ours", "a.cluster.example", "B")
    signed(tmp_path, "stranger", "theirs")
    files = [str(tmp_path / name) for name in ("controller.key", "controller.pem", "ours.pem")]
    tls = [
        word
        for pair in zip(("--tls-key", "--tls-cert", "--tls-ca"), files, strict=True)
        for word in pair
    ]
    with Sandbox({"A": ["n0", "n1"], "B": ["n0", "n1"]}) as sandbox:
        sandbox.ovs.vsctl(
            "set-ssl", str(tmp_path / "stranger.key"), str(tmp_path / "stranger.pem"), files[2]
        )
        for host in sandbox.hosts:
            sandbox.ovs.vsctl("set-controller", host, f"ssl:127.0.0.1:{sandbox.port}")
        sandbox.start_controller(extra=tls)
        wait_until(lambda: "dropped: its certificate is not good: " in sandbox.log(), sandbox.log)
        assert sandbox.ask("status")["counters"]["certificates_refused"] > 0
        assert not connected(sandbox)
        # Both hosts' bridges share one Open vSwitch here, and so its certificate.
        sandbox.ovs.vsctl("set-ssl", str(tmp_path / "A.key"), str(tmp_path / "A.pem"), files[2])
        refused = "B at 127.0.0.1 refused: its certificate is for A"
        wait_until(lambda: connected(sandbox) == {"A"} and refused in sandbox.log(), sandbox.log)
        assert refused in problem_texts(sandbox.ask("status"))
        sandbox.ovs.vsctl(
            "set-ssl", str(tmp_path / "host.key"), str(tmp_path / "host.pem"), files[2]
        )
        wait_until(lambda: connected(sandbox) == {"A", "B"}, sandbox.log)
        with watch(sandbox) as watching:
            ends_s = watching.state["controller"]["certificate_ends_s"]
            of_hosts = {
                name: host["certificate_ends_s"] for name, host in watching.state["hosts"].items()
            }
        assert ends_s == min(certificate_times(Path(file))[1].timestamp() for file in files[1:])
        # A may go on with the connection that it has.
        old, new = (certificate_times(tmp_path / name)[1] for name in ("A.pem", "host.pem"))
        assert of_hosts["B"] == new.timestamp()
        assert of_hosts["A"] in (old.timestamp(), new.timestamp())
        texts = problem_texts(sandbox.ask("status"))
        assert f"B: its certificate ends on {new:%Y-%m-%d}" in texts
        assert "Traceback" not in sandbox.log()
