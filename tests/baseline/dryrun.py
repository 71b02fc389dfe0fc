# SPDX-License-Identifier: Apache-2.0
"""What each host script would do, by its --dry-run, on hosts of a lab."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ri2n_lab.cluster import Lab
from ri2n_sdn.errors import NotAvailable
from tests.lab.prepared_host import SCRIPTS
from tests.lab.test_host_nic import SITE, Nics
from tests.topology_text import parse_topology

__all__ = ["dry_runs"]

_UP = (
    (),
    ("--helper",),
    ("--helper", "--rate-mbps", "200", "--mtu", "1400"),
    ("--mtu", "1300", "--nic-mtu", "1600"),
    ("--flood-limit", "100"),
    ("--extra-mac", "02:aa:00:00:00:01", "--extra-mac", "02:aa:00:00:00:02@tap5"),
    ("--confirm", "5"),
    ("--skip-missing", "--nic", "eth9"),
    ("--nic", "eth9"),
    ("--nic", "eth2", "--name", "other"),
    ("--controller", "tcp:192.0.2.7:6653"),
)
"""What host-up is called with, before the bridge is there and when it is."""

_NIC = (
    ("ls",),
    ("add", "eth2"),
    ("add", "eth9"),
    ("retire", "eth1"),
    ("retire", "eth2"),
    ("replace", "eth1", "eth2"),
    ("replace", "eth1", "eth0"),
    ("--force", "retire", "eth0"),
)
_CHANGING = {
    r"/tmp/[\w./-]*|/dev/fd/\d+": "TEMPORARY",
    r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "UUID",
    r"echo '\d+ \d{10} ": "echo 'NUMBER TIME ",
}
_SAME_LINK = (("up",), ("up", "eth0"), ("down",), ("up", "lo"), ("status",))


def dry_runs() -> str:
    """What all scripts say. Raises NotAvailable without root."""
    if os.geteuid() != 0:
        raise NotAvailable("a lab needs root")
    with (
        tempfile.TemporaryDirectory(prefix="ri2n-") as folder,
        Lab.create(parse_topology(SITE), datapath="netdev") as lab,
    ):
        host = Nics(lab, Path(folder))
        host.prepare()
        hidden = {
            str(SCRIPTS): "SCRIPTS",
            str(lab.run_dir): "LAB",
            folder: "FOLDER",
            lab.controller_address: "CONTROLLER",
            lab.name: "NAME",
        }
        said = "".join(_before(host)) + "".join(_when_up(host))
        host.script("host-down")
    for text, name in hidden.items():
        said = said.replace(text, name)
    for pattern, name in _CHANGING.items():
        said = re.sub(pattern, name, said)
    return said


def _before(host: Nics) -> Iterator[str]:
    """On a host that has no bridge, with addresses and routes on its NICs."""
    for words in _UP:
        yield _said(host, "host-up", *_arguments(host), *words, "--dry-run")
    yield _said(host, "host-down", "--dry-run")
    for words in _SAME_LINK:
        yield _same_link(host, *words, "--dry-run")
    _same_link(host, "up")
    for words in _SAME_LINK:
        yield "when it is set up: " + _same_link(host, *words, "--dry-run")
    _same_link(host, "down")


def _when_up(host: Nics) -> Iterator[str]:
    """On a host with a bridge over eth0 and eth1."""
    host.write("eth0", "eth1")
    for words in _UP:
        said = _said(host, "host-up", *_arguments(host), *words, "--dry-run")
        yield f"when it is up: {said}"
    yield "when it is up: " + _said(host, "host-down", "--dry-run")
    for words in _NIC:
        yield _told(
            f"host-nic --dry-run {' '.join(words)}", host.nic("--dry-run", *words, check=False)
        )


def _arguments(host: Nics) -> list[str]:
    """What every host-up is called with; eth2 is free."""
    target = f"tcp:{host.lab.controller_address}:6653"
    nics = ["--nic", "eth0", "--nic", "eth1"]
    return [*nics, "--name", "A", "--controller", target, "--datapath", host.lab.datapath]


def _said(host: Nics, script: str, *words: str) -> str:
    return _told(f"{script} {' '.join(words)}", host.script(script, *words, check=False))


def _same_link(host: Nics, *words: str) -> str:
    argv = [str(SCRIPTS / "reply-same-link"), *words, "--state-dir", str(host.state)]
    return _told(f"reply-same-link {' '.join(words)}", host.run(*argv, check=False))


def _told(title: str, done: subprocess.CompletedProcess[str]) -> str:
    text = f"$ {title}\n{done.stdout}"
    if done.stderr:
        text += "".join(f"stderr: {line}\n" for line in done.stderr.splitlines())
    return f"{text}status {done.returncode}\n\n"
