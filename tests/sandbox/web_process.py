# SPDX-License-Identifier: Apache-2.0
"""Real web processes for tests: `ri2n web` as a user starts it, and HTTP requests to it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Process, Sandbox, execute
from tests.waiting import LONG_S, wait_until

from .forked import fork

__all__ = ["HOSTS", "Answer", "WebProcess", "get", "gone", "sandbox", "web_process", "written"]

HOSTS = ("A", "B")


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: Any
    body: bytes

    def json(self) -> Any:
        """What the body says."""
        return json.loads(self.body)


@dataclass(frozen=True)
class WebProcess:
    """A running `ri2n web`: its process, its address, and what it has written."""

    process: Process
    url: str
    log_file: Path

    def log(self) -> str:
        """What it has written on stderr."""
        return written(self.log_file)

    def get(self, path: str, token: str | None = None, **more: Any) -> Answer:
        """The answer to a GET of a path."""
        return get(self.url.rstrip("/") + path, token, **more)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Two hosts on two networks with a controller, for all tests of a file."""
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as made:
        made.start_controller(strategy="max_min")
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()


@contextlib.contextmanager
def web_process(
    socket: Path,
    *options: str,
    listen: str = "127.0.0.1:0",
    gui: bool = False,
    before: str = "",
    traces: bool = False,
) -> Iterator[WebProcess]:
    """Run `ri2n web` until the block ends; then it must end by SIGTERM, if it runs still.

    With the GUI it is a new interpreter, as a user starts it; otherwise a fork, which starts soon.
    `before` is Python code that runs first. `traces` are no fault, since a test provokes them.
    """
    with tempfile.TemporaryDirectory(prefix="ri2n-web-test-") as folder:
        log = Path(folder) / "log"
        # What a killed process leaves goes with the folder.
        before = f"import tempfile; tempfile.tempdir = {folder!r}\n{before}"
        argv = ["web", "--socket", str(socket), "--listen", listen, *options]
        process = execute(before, argv, log) if gui else fork(before, [*argv, "--no-gui"], log)
        try:

            def said() -> str | None:
                assert process.poll() is None, written(log)
                found = re.search(r"^ri2n web: (\S+)", written(log), re.MULTILINE)
                return found[1] if found else None

            wait_until(said, lambda: written(log))
            url = said()
            assert url is not None
            yield WebProcess(process, url, log)
            if process.poll() is None:
                process.terminate()
                assert process.wait(LONG_S) == 0, written(log)
            assert traces or "Traceback" not in written(log), written(log)
        finally:
            process.kill()
            process.wait()


def written(log: Path) -> str:
    """What a process has written so far."""
    return log.read_text(errors="replace") if log.exists() else ""


def get(
    url: str,
    token: str | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    headers: dict[str, str] | None = None,
    method: str = "GET",
) -> Answer:
    """The answer to a request. Raises URLError when nobody listens."""
    request = urllib.request.Request(url, headers=headers or {}, method=method)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=LONG_S, context=tls) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has ended, too."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return True
    return state in "ZX"
