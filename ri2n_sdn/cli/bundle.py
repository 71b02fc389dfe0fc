# SPDX-License-Identifier: Apache-2.0
"""`ri2n support-bundle`: one file with what somebody needs who is to find a fault."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from ri2n_sdn import __version__
from ri2n_sdn.cli.common import os_errors_of
from ri2n_sdn.cli.doctor_controller import examine_controller
from ri2n_sdn.cli.examined import HOST, OPTIONS, Examined, http_get
from ri2n_sdn.cli.labs import Where
from ri2n_sdn.cli.machine import Process
from ri2n_sdn.cli.redact import known_macs, redact, redact_text
from ri2n_sdn.cli.store import take_name
from ri2n_sdn.client import DEFAULT_SOCKET, Watch, call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.operations import Operation
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError
from ri2n_sdn.shipped import host_script

__all__ = ["support_bundle"]

CONFIG = Path("/etc/ri2n/cluster.yaml")
WEB_OPTIONS = Path("/etc/ri2n/web.conf")
UNIT, WEB_UNIT = "ri2n-controller", "ri2n-web"
LOG_LINES = 2000
COMMAND_S = 60.0
MAX_FILE_BYTES = 16 << 20
FOLDER = "ri2n-support"

# The file, the operation, its arguments, and what the file says.
_ASKED: tuple[tuple[str, Operation[Any], dict[str, Any], str], ...] = (
    ("status.json", ops.STATUS, {"pairs": False}, "hosts, NICs, networks, problems and counters"),
    ("pairs.json", ops.PAIRS, {"limit": 500}, "the 500 busiest pairs of hosts, with their paths"),
    ("events.json", ops.EVENTS, {}, "what happened last, as the controller saw it"),
    ("jobs.json", ops.JOB_LIST, {}, "jobs that run or wait"),
    ("jobs-ended.json", ops.JOB_HISTORY, {}, "jobs that have ended, the newest first"),
    ("reservations.json", ops.RESERVE_LIST, {}, "reservations"),
    ("rights.json", ops.RIGHTS_LIST, {}, "what users may ask for"),
    ("policies.json", ops.POLICY_LIST, {}, "policies of jobs"),
    ("parameters.json", ops.PARAMETERS, {}, "the controller's parameters and their values"),
)
_PACKAGES = (
    *("os-ken", "ovs", "pydantic", "typer", "networkx", "scipy", "numpy", "PyYAML", "rich"),
    *("fastapi", "uvicorn", "nicegui", "prometheus_client"),
)


class _Bundle:
    """The files by name, what each says, and why others are missing."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.about: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.macs: frozenset[str] = frozenset()

    def add(self, name: str, about: str, text: str) -> None:
        """Keep the end of a text, which is the newest part of a log, without its secrets."""
        self.files[name] = redact_text(text, self.macs)[-MAX_FILE_BYTES:]
        self.about[name] = about

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Keep a file within this, or say why it is missing."""
        try:
            yield
        except Ri2nError as error:
            self.missing[name] = str(error)

    def ask(self, socket: Path) -> None:
        """Ask the controller for all that it may tell."""
        for name, op, arguments, about in _ASKED:
            with self.part(name):
                answer = call(socket, op, **arguments)
                if op is ops.STATUS:
                    self.macs = known_macs(answer.get("state"))
                self.document(name, about, answer)

    def watch(self, socket: Path) -> None:
        """Keep the state that watchers get: the web process shows nothing else."""
        about = "the whole state, as the web process gets it, with the newest events"
        with self.part("state.json"), Watch(socket) as watch:
            self.document("state.json", about, watch.state)

    def document(self, name: str, about: str, document: object) -> None:
        """Keep a JSON document, whose texts are redacted one by one, so that it stays one."""
        self.files[name] = json.dumps(redact(document, self.macs), indent=2) + "\n"
        self.about[name] = about

    def metrics(self, web: Process | None) -> None:
        """Keep what the web process says to Prometheus, if everybody on this machine may see it."""
        with self.part("metrics.txt"):
            if web is None:
                raise NotAvailable("there is no web process")
            listen, status, text = http_get(web.argv, "/metrics", MAX_FILE_BYTES)
            if status != 200:
                raise NotAvailable(
                    f"{listen} answers with HTTP status {status}; it may want a token"
                )
            self.add("metrics.txt", f"what {listen} says to Prometheus", text)

    def read(self, name: str, about: str, path: Path) -> None:
        """Keep a configuration file."""
        with self.part(name), os_errors_of(path), path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode(errors="replace")
            self.add(name, f"{about} ({path}), without secrets", text)

    def run(self, name: str, about: str, *command: str) -> None:
        """Keep what a command prints, whatever its exit code is."""
        with self.part(name), os_errors_of(command[0]):
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=COMMAND_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                why = f"{command[0]}: has not ended within {COMMAND_S:g} s"
                raise NotAvailable(why) from None
            self.add(name, about, done.stdout.decode(errors="replace"))

    def readme(self) -> str:
        """What each file says, and what is missing for which reason."""
        lines = [
            f"RI2N support bundle, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
            "",
            "Private keys, tokens, their hashes, and the addresses of isolated jobs are taken out,",
            "and so is all that looks like one of them. Names of hosts, users and jobs, and",
            "addresses of hosts are in it.",
            "",
            *(f"{name}: {about}" for name, about in self.about.items()),
        ]
        if self.missing:
            lines += ["", "Missing:", ""]
            lines += [f"{name}: {' '.join(why.split())}" for name, why in self.missing.items()]
        return redact_text("\n".join(lines) + "\n", self.macs)


def support_bundle(
    *,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.tar.gz", help="Default: ri2n-support-TIME.tar.gz, here."),
    ] = None,
    at: Where,
    config: Annotated[
        Path, typer.Option(metavar="FILE", help="The controller's cluster.yaml.")
    ] = CONFIG,
) -> None:
    """Collect in one file what is needed to find a fault; there are no secrets in it.

    It also works when the controller is away. The file README in it says what is missing then.
    """
    path = output or Path(time.strftime("ri2n-support-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    if os.path.lexists(path):
        raise BadInput(f"--output {path}: is there already")
    if not path.parent.is_dir():
        raise BadInput(f"--output {path}: there is no such folder")
    bundle = _Bundle()
    try:
        where = at.path
    except NotAvailable as error:
        where = DEFAULT_SOCKET
        bundle.missing.update(
            dict.fromkeys([*(name for name, *_ in _ASKED), "state.json"], str(error))
        )
    else:
        bundle.ask(where)
        bundle.watch(where)
    seen = Examined.of(where)
    about = "what ri2n doctor says of the controller's machine"
    bundle.document(
        "doctor-controller.json", about, [asdict(each) for each in examine_controller(seen)]
    )
    bundle.metrics(seen.web())
    bundle.read("cluster.yaml", "the controller's configuration", config)
    bundle.read("controller.conf", "the options of its service", OPTIONS)
    bundle.read("web.conf", "the options of the web process's service", WEB_OPTIONS)
    bundle.add("versions.txt", "versions of RI2N, Python, packages and the kernel", _versions())
    bundle.run("ovs.txt", "the version of Open vSwitch", "ovs-vsctl", "--version")
    for name, unit in (("log.txt", UNIT), ("log-web.txt", WEB_UNIT)):
        bundle.run(
            name,
            f"the newest {LOG_LINES} lines of the log of {unit}",
            *("journalctl", "--no-pager", "-o", "short-iso", "-n", str(LOG_LINES), "-u", unit),
        )
    for script in ("host-doctor", "host-status"):
        name = f"{script}.txt"
        with bundle.part(name):
            if not HOST.exists():
                raise NotAvailable(f"this machine is no managed host: there is no {HOST}")
            bundle.run(name, f"what {script} says of this host", str(host_script(script)))
    _write(path, bundle)
    gone = f"; {len(bundle.missing)} files are missing, see its README" if bundle.missing else ""
    print(f"{path}: {len(bundle.files)} files{gone}")


def _versions() -> str:
    lines = [f"ri2n {__version__}", f"Python {platform.python_version()}", f"{os.uname()}"]
    for package in _PACKAGES:
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package}: not installed")
    return "\n".join(lines) + "\n"


def _write(path: Path, bundle: _Bundle) -> None:
    """Write the file whole or not at all. Raises BadInput when there is one meanwhile."""
    with os_errors_of(f"--output {path}"):
        # The file gets mode 0600.
        handle, name = tempfile.mkstemp(prefix=".ri2n-support-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as made:
                for each, text in {"README": bundle.readme(), **bundle.files}.items():
                    data = text.encode(errors="replace")
                    member = tarfile.TarInfo(f"{FOLDER}/{each}")
                    member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
                    made.addfile(member, io.BytesIO(data))
            take_name(Path(name), path)
        except FileExistsError:
            raise BadInput(f"--output {path}: is there already") from None
        finally:
            Path(name).unlink(missing_ok=True)
