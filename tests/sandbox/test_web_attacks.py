# SPDX-License-Identifier: Apache-2.0
"""Attacks on a real web process with its GUI, by clients that are no browsers."""

from __future__ import annotations

import contextlib
import html
import http.client
import json
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from tests.unit.web_state import TOKENS, cluster_state
from tests.waiting import LONG_S, wait_until

from .browser import FakeController
from .web_process import WebProcess, web_process

pytestmark = pytest.mark.long

OTHERS = 40
"""So many connections an address of another machine may have in these tests."""

BEFORE = (
    "from ri2n_sdn.web import listening\n"
    "listening.is_loopback = lambda address: False\n"
    f"listening.MAX_OF_ONE = {OTHERS}\n"
)


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeController]:
    state = cluster_state(hosts=1000)
    with FakeController(tmp_path_factory.mktemp("attacks"), state) as made:
        yield made


@pytest.fixture(scope="module")
def web(controller: FakeController) -> Iterator[WebProcess]:
    with web_process(controller.socket, "--require-tokens", gui=True, before=BEFORE) as made:
        wait_until(lambda: made.get("/metrics", TOKENS["viewer"]).status == 200, made.log)
        yield made


class Visitor:
    """One who speaks HTTP and NiceGUI's messages by hand, with a cookie."""

    def __init__(self, web: WebProcess) -> None:
        self.place = urllib.parse.urlsplit(web.url).netloc
        self.cookie = ""

    def ask(
        self, path: str, body: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """The status, the headers and the body of an answer."""
        connection = http.client.HTTPConnection(self.place, timeout=LONG_S)
        try:
            headers = {"Cookie": self.cookie} if self.cookie else {}
            if body is not None:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
            text = urllib.parse.urlencode(body) if body is not None else None
            connection.request("GET" if body is None else "POST", path, text, headers)
            answer = connection.getresponse()
            if cookie := answer.headers.get("Set-Cookie"):
                self.cookie = cookie.partition(";")[0]
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def log_in(self, role: str) -> None:
        """Log in with the token of a role."""
        self.ask("/login")
        status, headers, _ = self.ask("/login", {"token": TOKENS[role], "next": "/"})
        assert (status, headers["Location"]) == (303, "/")

    @contextlib.contextmanager
    def socket(self, **query: str) -> Iterator[ClientConnection]:
        """A WebSocket to NiceGUI, after its first message."""
        asked = urllib.parse.urlencode({"EIO": "4", "transport": "websocket", **query})
        url = f"ws://{self.place}/_nicegui_ws/socket.io/?{asked}"
        headers = {"Cookie": self.cookie} if self.cookie else {}
        with connect(url, additional_headers=headers, max_size=None, proxy=None) as made:
            assert str(made.recv(LONG_S)).startswith("0")
            made.send("40")
            yield made


class Page:
    """An open page, without a browser."""

    def __init__(self, visitor: Visitor, path: str) -> None:
        status, _, body = visitor.ask(path)
        assert status == 200
        found = re.search(r'[\'"]?client_id[\'"]?: ?[\'"]([0-9a-f-]{36})', html.unescape(body))
        assert found, body
        self.id = found[1]
        raw = re.search(r"String\.raw`(.*?)`", body, re.DOTALL)
        assert raw
        self.elements: dict[str, Any] = json.loads(html.unescape(raw[1]))
        self._visitor = visitor

    @contextlib.contextmanager
    def open(self) -> Iterator[ClientConnection]:
        """The WebSocket of the page."""
        more = {"client_id": self.id, "implicit_handshake": "true", "tab_id": "t"}
        with self._visitor.socket(**more, document_id="d", next_message_id="0") as made:
            assert str(made.recv(LONG_S)).startswith("40")
            yield made

    def event(self, kind: str, *arguments: object) -> str:
        """The message of an event, for the first element that listens to it."""
        element, listener = next(
            (number, each["listener_id"])
            for number, known in self.elements.items()
            for each in known.get("events", ())
            if each["type"] == kind
        )
        return "42" + json.dumps(
            [
                "event",
                {
                    **{"id": int(element), "client_id": self.id, "listener_id": listener},
                    "args": [json.dumps(each) for each in arguments],
                },
            ]
        )


def heard(socket: ClientConnection, wanted: str, limit_s: float = LONG_S) -> bool:
    """Whether a message with this text comes; pings are answered meanwhile."""
    with contextlib.suppress(TimeoutError):
        while True:
            message = str(socket.recv(limit_s))
            if message == "2":
                socket.send("3")
            elif wanted in message:
                return True
    return False


def test_a_page_shows_nothing_more_when_its_token_is_removed(
    controller: FakeController, web: WebProcess
) -> None:
    """Its browser need not follow to the login, and may go on to send events."""
    visitor = Visitor(web)
    visitor.log_in("viewer")
    page = Page(visitor, "/")
    with page.open() as socket:
        socket.send(page.event("ri2nHost", "h0007"))
        assert heard(socket, "Host h0007")
        tokens = dict(controller.state["tokens"])
        controller.change({"tokens": {"viewer": None}})
        try:
            assert heard(socket, "/login?ended=1")
            socket.send(page.event("ri2nHost", "h0008"))
            assert not heard(socket, "h0008", 1.0)
        finally:
            controller.change({"tokens": {"viewer": tokens["viewer"]}})


def test_strangers_cannot_fill_the_log(controller: FakeController) -> None:
    """Neither by addresses that do not exist, nor by messages that make no sense."""
    long = 4000 * "x"
    with web_process(controller.socket, "--require-tokens", gui=True, traces=True) as web:
        visitor = Visitor(web)
        for number in range(500):
            status, _, body = visitor.ask(f"/{number}{long}")
            assert status == 404 and len(body) < 1000 and "first page" in body
        assert web.log().count("\n") == 1
        with visitor.socket() as socket:
            for number in range(500):
                socket.send("42" + json.dumps(["handshake", number]))
                socket.send("42" + json.dumps(["event", {"client_id": [number]}]))
        page = Page(visitor, "/login")
        with page.open() as socket:
            for number in range(500):
                said = {"client_id": page.id, "level": "error", "message": f"{number}{long}"}
                socket.send("42" + json.dumps(["log", said]))
            assert visitor.ask("/login")[0] == 200
        wait_until(lambda: "more like this" in web.log(), "nobody says that much was left out")
        assert web.log().count("nicegui: ") < 300 and web.log().count("Traceback") < 300


FULL = """
import errno, os, pathlib
def write_text(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
pathlib.Path.write_text = write_text
"""


def test_a_full_disk_keeps_nobody_out_and_is_one_line_for_each_login(
    controller: FakeController,
) -> None:
    with web_process(controller.socket, "--require-tokens", gui=True, before=FULL) as web:
        wait_until(lambda: web.get("/metrics", TOKENS["viewer"]).status == 200, web.log)
        for _ in range(3):
            visitor = Visitor(web)
            visitor.log_in("viewer")
            assert visitor.ask("/")[0] == 200
        said = "No space left on device: logins are not kept"
        wait_until(lambda: web.log().count(said) == 3, web.log)
        # The first line names the address.
        assert web.log().count("\n") == 4


def test_one_address_cannot_take_all_places(web: WebProcess) -> None:
    """Neither by WebSockets, which need no login, nor by connections that say nothing."""
    visitor = Visitor(web)
    with contextlib.ExitStack() as stack:
        taken = 0
        with contextlib.suppress(OSError, WebSocketException):
            for _ in range(2 * OTHERS):
                stack.enter_context(visitor.socket())
                taken += 1
        assert taken <= OTHERS
    wait_until(lambda: visitor.ask("/login")[0] == 200, web.log)
