# SPDX-License-Identifier: Apache-2.0
"""The demo's web process: `ri2n web` for the lab's controller, as long as the demo runs."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from ri2n_sdn.client import call

__all__ = ["SOCKET", "DemoWeb"]

FIRST_PORT = 8420
"""The port that README.md names; any other one where it is taken."""

SOCKET = "demo.sock"
"""The socket of the demo's own process, in the lab's folder."""

TOKEN_BYTES = 16
"""As hard to guess as a key of 128 bits, and short enough for a line of 80 columns."""

START_S = 60.0
END_S = 5.0


class DemoWeb:
    """A web process that ends with this process, however that ends; a context manager."""

    def __init__(self, controller_socket: Path) -> None:
        """Start the process, which waits for the controller. Its log is in the lab's folder."""
        self._socket = controller_socket
        self._log = controller_socket.with_name("web.log")
        self._mine: int | None = None
        self._url: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._start(FIRST_PORT)

    def __enter__(self) -> DemoWeb:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def url(self) -> str | None:
        """Its address, when browsers can connect; None when it does not start (`why`).

        It is read once: a lab that is built again takes the log with it.
        """
        if self._url is not None:
            return self._url
        deadline_s = time.monotonic() + START_S
        while (found := re.search(r"^ri2n web: (\S+)", self._said(), re.MULTILINE)) is None:
            assert self._process is not None
            if self._process.poll() is not None:
                if "Address already in use" not in self._said():
                    return None
                self._end()
                self._start(0)
            if time.monotonic() > deadline_s:
                return None
            time.sleep(0.05)
        self._url = found[1]
        return self._url

    def why(self) -> str:
        """What it has said last."""
        return (self._said().strip().splitlines() or ["it said nothing"])[-1]

    def address(self, url: str) -> str:
        """The address that logs a browser in as an admin, until the demo ends.

        The token stands behind the "#", which a browser sends to no server.
        """
        return f"{url}login#token={self._new_token()}"

    def _new_token(self) -> str:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        digest = hashlib.sha256(token.encode()).hexdigest()
        call(self._socket, "token_add", name="demo", role="admin", hash=digest)
        return token

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _start(self, port: int) -> None:
        its, self._mine = os.pipe()
        argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "web", "--socket", str(self._socket)]
        argv += ["--listen", f"127.0.0.1:{port}", "--ends-with", str(its)]
        argv += ["--demo", str(self._socket.with_name(SOCKET))]
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(its,),
                    start_new_session=True,  # Ctrl-C is for the demo, which ends this one
                )
        finally:
            os.close(its)

    def _end(self) -> None:
        if self._mine is not None:
            os.close(self._mine)
            self._mine = None
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
