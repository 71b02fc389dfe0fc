# SPDX-License-Identifier: Apache-2.0
"""A real controller and a real web process: changes, tokens, kills, TLS, and who is served."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, reserve_port
from ri2n_sdn.client import call
from tests.unit.commands import ri2n
from tests.waiting import LONG_S, wait_until

from .forked import fork
from .test_tls import openssl
from .test_trunk import dead_port
from .web_process import WebProcess, get, gone, sandbox, web_process, written

__all__ = ["sandbox"]


@pytest.fixture(scope="module")
def web(sandbox: Sandbox) -> Iterator[WebProcess]:
    with web_process(sandbox.socket) as made:
        wait_until(lambda: connected(made), made.log)
        yield made


def value(web: WebProcess, series: str) -> float | None:
    """What Prometheus sees of a series; None when it is not there."""
    try:
        body = web.get("/metrics").body.decode()
    except OSError:
        return None
    found = re.search(rf"^{re.escape(series)} (\S+)$", body, re.M)
    return float(found[1]) if found else None


def connected(web: WebProcess) -> bool:
    return value(web, "ri2n_up") == 1


def status(sandbox: Sandbox) -> dict[str, Any]:
    return call(sandbox.socket, "status", pairs=False)


def token_of(sandbox: Sandbox, name: str, role: str, *more: str) -> str:
    done = ri2n("token", "add", name, "--role", role, *more, "--socket", str(sandbox.socket))
    assert done.returncode == 0, done.stderr
    token = done.stdout.strip()
    assert re.fullmatch(r"[\w-]{43}", token, re.ASCII) and token not in done.stderr
    return token


def test_changes_of_the_controller_are_seen_at_once(sandbox: Sandbox, web: WebProcess) -> None:
    def alive(nic: str) -> bool:
        return value(web, f'ri2n_nic_alive{{host="B",nic="{nic}"}}') == 1

    assert alive("B-e0") and alive("B-e1")
    with dead_port(sandbox, "B", 1):
        wait_until(lambda: not alive("B-e1"), "a dead NIC is not seen")
        assert alive("B-e0")
    wait_until(lambda: alive("B-e1"), "a NIC that has come back is not seen")


def test_what_browsers_send_is_in_no_log(sandbox: Sandbox) -> None:
    """Not even at the lowest level, whatever place a client sends its secrets to."""
    token = token_of(sandbox, "teller", "viewer")
    secrets = (token, "c00kie-of-a-login", "k3y-in-a-query", "n0-token", "t1cket")
    heads = [
        "GET /api/v1/hosts?token=k3y-in-a-query HTTP/1.1",
        "POST /api/v1/policies HTTP/1.1",
        "GET /n0-token/t1cket?k3y-in-a-query HTTP/1.1",
        "GET /api/v1/t1cket HTTP/9.9",
        "GET /_nicegui_ws/socket.io/?client_id=t1cket&EIO=4&transport=websocket HTTP/1.1",
    ]
    with web_process(sandbox.socket, "--log-level", "debug") as web:
        wait_until(lambda: connected(web), web.log)
        port = int(web.url.rstrip("/").rpartition(":")[2])
        for head in heads:
            lines = [head, "Host: 127.0.0.1", f"Authorization: Bearer {token}"]
            lines.append("Cookie: session=c00kie-of-a-login")
            if "websocket" in head:
                lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
                lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
            else:
                lines += ["Content-Length: 12", "Content-Type: application/json"]
                lines += ["", '["n0-token"]']
            with socket.create_connection(("127.0.0.1", port), LONG_S) as stream:
                stream.sendall("\r\n".join(lines).encode())
                assert stream.recv(12).startswith(b"HTTP/1.1 "), head
        assert web.get("/api/v1/hosts", token).status == 200
        log = web.log()
    assert ri2n("token", "rm", "teller", "--socket", str(sandbox.socket)).returncode == 0
    assert not [secret for secret in secrets if secret in log], log


def test_a_token_works_at_once_and_ends_at_once(sandbox: Sandbox, web: WebProcess) -> None:
    def code(token: str | None) -> int:
        return web.get("/metrics", token).status

    assert code(None) == 200 and code("no-such-token") == 401
    token = token_of(sandbox, "operator", "admin")
    wait_until(lambda: code(token) == 200, "a new token is not known")
    listed = ri2n("token", "ls", "--socket", str(sandbox.socket))
    assert "operator" in listed.stdout and token not in listed.stdout
    again = ri2n("token", "add", "operator", "--role", "viewer", "--socket", str(sandbox.socket))
    assert again.returncode == 2 and again.stderr.strip() == (
        "ri2n: name: there is a token operator already"
    )
    assert ri2n("token", "rm", "operator", "--socket", str(sandbox.socket)).returncode == 0
    wait_until(lambda: code(token) == 401, "a token that was removed works still")
    assert "no tokens" in ri2n("token", "ls", "--socket", str(sandbox.socket)).stdout


def test_the_web_process_may_be_killed_at_any_moment(sandbox: Sandbox, web: WebProcess) -> None:
    before = status(sandbox)
    for number in range(2):
        with web_process(sandbox.socket) as other:
            if number:
                wait_until(lambda other=other: connected(other), other.log)  # type: ignore[misc]
            other.process.kill()
            other.process.wait()
    after = status(sandbox)
    assert after["pid"] == before["pid"] and after["settled"]
    assert not after["counters"].get("watch_errors")
    assert connected(web)


def test_the_controller_may_be_killed_at_any_moment(sandbox: Sandbox, web: WebProcess) -> None:
    sandbox.kill_controllers()
    wait_until(lambda: not connected(web), "nobody notices that the controller has gone")
    sandbox.start_controller(strategy="ri2n_plus")
    sandbox.wait_settled()
    wait_until(lambda: connected(web) and value(web, "ri2n_hosts") == 2, web.log)


def test_slow_and_endless_clients_are_cut_off(tmp_path: Path) -> None:
    """Each by itself: no header, a header byte by byte, a header or body without end."""
    before = (
        "from ri2n_sdn.web import guard, listening, protocol\n"
        "protocol.HEAD_S = guard._BODY_S = 0.5\nlistening.MAX_CONNECTIONS = 20\n"
    )
    with web_process(tmp_path / "none.sock", before=before) as web:
        address = ("127.0.0.1", int(web.url.split(":")[2].rstrip("/")))

        def answer(*parts: bytes, again: bytes = b"") -> bytes:
            """What a client gets that sends `parts`, and then `again` until it is cut off."""
            got = b""
            with socket.create_connection(address, LONG_S) as connection:
                deadline_s = time.monotonic() + LONG_S
                with contextlib.suppress(ConnectionError):
                    # All at once, because the time for a body runs, and however long a busy server
                    # takes to read it.
                    connection.sendall(b"".join(parts))
                    connection.settimeout(0.05)
                    while time.monotonic() < deadline_s:
                        try:
                            chunk = connection.recv(65536)
                        except TimeoutError:
                            connection.sendall(again)
                            continue
                        if not chunk:
                            return got
                        got += chunk
                    raise AssertionError("it is not cut off")
            return got

        head = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n"
        assert answer() == b""
        assert answer(b"GET / HTTP/1.1\r\nX: ", again=b"x") == b""
        assert b" 400 " in answer(b"GET / HTTP/1.1\r\nX: " + 40_000 * b"x")
        assert b" 400 " in answer(b"nonsense\r\n\r\n")
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        upgrade += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        with_body = upgrade + b"Content-Length: 2\r\n\r\n{}"
        assert answer(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + with_body) == b""
        assert b" 408 " in answer(head + b"Content-Length: 1000\r\n\r\n", again=b"x")
        assert b" 413 " in answer(head + b"Content-Length: 1000000\r\n\r\n")
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        assert b" 413 " in answer(chunked, *(40 * [b"2000\r\n" + 0x2000 * b"x" + b"\r\n"]))
        # More connections than there may be: the others are closed, and later there is room again.
        many = [socket.create_connection(address, LONG_S) for _ in range(60)]
        for connection in many:
            connection.close()
        wait_until(lambda: value(web, "ri2n_up") == 0, web.log)


def test_a_web_process_waits_for_its_controller(tmp_path: Path) -> None:
    with web_process(tmp_path / "none.sock") as web:
        assert value(web, "ri2n_up") == 0
        assert web.get("/metrics", "some-token").status == 503


# ---- Who is served, and how


def test_tls_and_tokens_for_other_machines(sandbox: Sandbox, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", "/CN=ri2n", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(key), "-out", str(certificate))  # fmt: skip
    tls = ssl.create_default_context(cafile=str(certificate))
    options = ["--tls-cert", str(certificate), "--tls-key", str(key), "--require-tokens"]
    token = token_of(sandbox, "remote", "viewer", "--days", "1")
    with web_process(sandbox.socket, *options, listen="0.0.0.0:0") as web:
        assert web.url.startswith("https://")
        url = web.url.replace("0.0.0.0", "127.0.0.1") + "metrics"
        assert get(url, tls=tls).status == 401
        wait_until(lambda: get(url, token, tls=tls).status == 200, web.log)
        answer = get(url, token, tls=tls)
        assert answer.headers["Strict-Transport-Security"]
        with pytest.raises((urllib.error.URLError, OSError)):
            get(url.replace("https", "http"), token)
    key.write_text("nonsense")
    log, where = tmp_path / "log", ["--socket", str(sandbox.socket), "--listen", "127.0.0.1:0"]
    process = fork("", ["web", "--no-gui", *where, *options], log)
    assert process.wait(LONG_S) == 2
    assert written(log).startswith("ri2n: --tls-cert") and written(log).count("\n") == 1


@pytest.mark.long
def test_a_user_starts_it_with_the_gui(tmp_path: Path) -> None:
    """An interpreter of its own, as a user has it."""
    with web_process(tmp_path / "none.sock", gui=True) as web:
        page = web.get("/")
        assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        cookie = page.headers["Set-Cookie"].lower()
        assert "httponly" in cookie and "samesite=" in cookie


# ---- The web process as the controller's child


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """The parent has the other end of a pipe, and no chance to say anything."""
    its, other = os.pipe()
    log = tmp_path / "log"
    argv = ["web", "--socket", str(tmp_path / "none.sock"), "--listen", "127.0.0.1:0", "--no-gui"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ri2n_sdn.cli.main", *argv, "--ends-with", str(its)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(its,),
        )
    os.close(its)
    try:
        wait_until(lambda: "ri2n web: " in written(log), lambda: written(log))
        assert process.poll() is None
        os.close(other)
        assert process.wait(LONG_S) == 0, written(log)
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_the_child_is_started_again_and_ends_with_the_controller(tmp_path: Path) -> None:
    reserved, port = reserve_port()
    url = f"http://127.0.0.1:{port}/metrics"

    def child() -> int | None:
        """The pid of the web process that answers."""
        found = subprocess.run(
            ["ss", "-Hltnp", f"sport = :{port}"], capture_output=True, text=True, check=True
        ).stdout
        pids = re.findall(r"pid=(\d+)", found)
        try:
            answers = bool(pids) and get(url).status == 200
        except (urllib.error.URLError, OSError):
            return None
        return int(pids[0]) if answers else None

    with Sandbox({"A": ["n0"], "B": ["n0"]}) as sandbox:
        controller = sandbox.start_controller(extra=["--web", "--web-listen", f"127.0.0.1:{port}"])
        reserved.close()
        wait_until(child, sandbox.log)
        first = child()
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: child() not in (None, first), sandbox.log)
        second = child()
        assert second is not None and "it is started again" in sandbox.log()
        controller.kill()
        controller.wait()
        wait_until(lambda: gone(second), "the child has outlived its controller")
        controller = sandbox.start_controller(extra=["--web", "--web-listen", f"127.0.0.1:{port}"])
        wait_until(child, sandbox.log)
        third = child()
        assert third is not None
        controller.terminate()
        assert controller.wait(LONG_S) == 0 and gone(third)
        assert "Traceback" not in sandbox.log(), sandbox.log()
