# SPDX-License-Identifier: Apache-2.0
"""Chromium without a screen, a real `ri2n web`, and a controller that says what a test wants."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from ri2n_sdn.client import web_socket_of
from ri2n_sdn.contract.state import merge
from tests.unit.web_state import TOKENS, FakeFeed
from tests.waiting import LONG_S, wait_until

__all__ = [
    "CHROMIUM",
    "LONG_MS",
    "FakeController",
    "Visit",
    "browser",
    "browsing",
    "serving",
    "until",
]

CHROMIUM = Path("/usr/bin/chromium")
LONG_MS = LONG_S * 1000

Answer = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]


class FakeController:
    """A socket that speaks as the controller does to the web process.

    * `answers`: by operation, what it answers, or a function of the request that says so. It may
      raise ValueError with the words of a refusal. Other operations are refused.
    * `asked`: all requests but `watch`.
    """

    def __init__(
        self,
        folder: Path,
        state: Mapping[str, Any],
        answers: Mapping[str, Answer] | None = None,
    ) -> None:
        self.socket = folder / "controller.sock"
        self.answers = dict(answers or {})
        self.asked: list[dict[str, Any]] = []
        self._state = {**state, "tokens": FakeFeed().tokens}
        self._seq = 1
        self._lock = threading.Lock()
        self._watchers: list[queue.Queue[bytes | None]] = []
        self._connections: set[socket.socket] = set()
        self._server: socket.socket | None = None

    def __enter__(self) -> FakeController:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def state(self) -> Mapping[str, Any]:
        """The state as it is now."""
        return self._state

    def start(self) -> None:
        """Listen."""
        path = web_socket_of(self.socket)
        path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(64)
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def stop(self) -> None:
        """End, as a controller that is killed does. `start` begins again."""
        server, self._server = self._server, None
        if server is None:
            return
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        web_socket_of(self.socket).unlink(missing_ok=True)
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for watcher in self._watchers:
                watcher.put(None)

    def change(self, changed: Mapping[str, Any]) -> None:
        """Tell all watchers of a change, in the form of the operation `watch`."""
        with self._lock:
            self._state = merge(self._state, changed)
            self._seq += 1
            for watcher in self._watchers:
                watcher.put(_line({"seq": self._seq, "changed": changed}))

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(server, connection), daemon=True).start()

    def _talk(self, server: socket.socket, connection: socket.socket) -> None:
        with self._lock:
            if self._server is not server:  # `stop` was called before it saw this connection
                connection.close()
                return
            self._connections.add(connection)
        try:
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    request = json.loads(line)
                    if request["op"] == "watch":
                        self._watch(connection)
                        return
                    self.asked.append(request)
                    connection.sendall(_line(self._answer(request)))
        except OSError:
            pass  # The other side has gone.
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _watch(self, connection: socket.socket) -> None:
        waiting: queue.Queue[bytes | None] = queue.Queue()
        with self._lock:
            self._watchers.append(waiting)
            waiting.put(_line({"ok": True, "seq": self._seq, "state": self._state}))
        try:
            while True:
                try:
                    line = waiting.get(timeout=5)
                except queue.Empty:
                    line = _line({"seq": self._seq, "changed": {}})
                if line is None:
                    return
                connection.sendall(line)
        finally:
            with self._lock:
                self._watchers.remove(waiting)

    def _answer(self, request: dict[str, Any]) -> Mapping[str, Any]:
        answer = self.answers.get(request["op"])
        if answer is None:
            return {"ok": False, "error": f"{request['op']}: no such operation"}
        try:
            return {"ok": True, **(answer(request) if callable(answer) else answer)}
        except ValueError as error:
            return {"ok": False, "error": str(error)}


@contextlib.contextmanager
def serving(controller: Path, log: Path, *options: str) -> Iterator[str]:
    """A real `ri2n web` for the controller at this socket; gives its address.

    At the end it must have ended cleanly, without a traceback in its log.
    """
    command = (sys.executable, "-m", "ri2n_sdn.cli.main", "web", "--socket", str(controller))
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", *options], stdout=out, stderr=out
        )
        try:

            def url() -> str | None:
                assert process.poll() is None, log.read_text()
                found = re.search(r"ri2n web: (https?://\S+)", log.read_text())
                return found.group(1).rstrip("/") if found else None

            wait_until(url, "ri2n web does not listen")
            yield str(url())
        finally:
            process.terminate()
            process.wait(LONG_S)
    assert "Traceback" not in log.read_text(), log.read_text()
    assert process.returncode == 0


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    """A browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser, for all tests of a file."""
    with browsing() as made:
        yield made


class Visit:
    """A browser window of its own on one site, which notes all that goes wrong.

    * `troubles`: messages of the console, requests that failed, answers that are errors, and
      requests to other origins.
    """

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.troubles: list[str] = []
        self.context: BrowserContext = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **options}
        )
        self.context.set_default_timeout(LONG_MS)
        self.page: Page = self.context.new_page()
        page = self.page
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("request", self._requested)
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert self.troubles == []

    def go(self, path: str) -> Page:
        """Open a page, and wait until it is live."""
        self.page.goto(f"{self.url}{path}")
        self.page.wait_for_selector("h1")
        self.page.wait_for_function("window.socket?.connected && window.did_handshake")
        return self.page

    def log_in(self, role: str) -> None:
        """Log in with the token of a role."""
        page = self.go("/login")
        page.get_by_label("Token").fill(TOKENS[role])
        page.get_by_role("main").get_by_role("button", name="Log in").click()
        page.wait_for_selector("text=Log out")

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"console: {message.text}")

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.troubles.append(f"another origin: {request.url}")

    def _failed(self, request: Any) -> None:
        # A page that is left may have requests under way.
        if "ERR_ABORTED" not in str(request.failure):
            self.troubles.append(f"failed: {request.url} {request.failure}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.troubles.append(f"{response.status}: {response.url}")


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def until(page: Page, condition: str, argument: Any = None) -> float:
    """Wait until a JavaScript condition holds, and return how many seconds it took."""
    began_s = time.monotonic()
    page.wait_for_function(condition, arg=argument)
    return time.monotonic() - began_s
