# SPDX-License-Identifier: Apache-2.0
"""The web process itself: one socket, one event loop, until SIGTERM or until its parent ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.imports import imports_that_stay
from ri2n_sdn.service import notify, watchdog_s
from ri2n_sdn.web.listening import listen
from ri2n_sdn.web.session_files import session_files
from ri2n_sdn.web.settings import WebSettings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

__all__ = ["serve"]

_LOG = logging.getLogger("ri2n.web")
# Streams and pages stay open for hours. At the end they get so long.
_END_S = 2
# When the parent has ended, this process does so after this time at the latest.
_LAST_S = 10.0
MAX_MESSAGE_BYTES = 1 << 20
"""A WebSocket's message, from a page of the GUI, has at most so many bytes."""

MAX_HEAD_BYTES = 32 << 10
_FILES = 4096


def serve(
    settings: WebSettings,
    *,
    ends_with: int | None = None,
    begins: Callable[[], None] = lambda: None,
    ready: Callable[[WebSettings], None] = lambda settings: None,
) -> None:
    """Serve until SIGTERM, SIGINT or the end of `ends_with`.

    `ends_with` is a file descriptor, which ends when the process does that has the other end.
    `begins` is called when the settings and the port are good, before this process is changed;
    `ready` is called with the settings, which have the port then, when browsers can connect. Raises
    BadInput when the settings are wrong, NotAvailable when a file or the port cannot be used, or
    when a package is missing.
    """
    settings.check()
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(settings))
        settings = replace(settings, port=listening.getsockname()[1])
        begins()
        _allow_files()
        stack.enter_context(session_files(settings.storage_dir))
        asyncio.run(_run(settings, listening, ends_with, ready))


async def _run(
    settings: WebSettings,
    listening: socket.socket,
    ends_with: int | None,
    ready: Callable[[WebSettings], None],
) -> None:
    try:
        with imports_that_stay():
            import uvicorn

            from ri2n_sdn.web.app import build
            from ri2n_sdn.web.feed import Feed
    except ImportError as error:
        raise NotAvailable(
            f"{error.name or error} is not installed: apt install ri2n-web, or "
            "pip install 'ri2n-sdn[web]'"
        ) from None

    class Server(uvicorn.Server):
        """Handles signals in the event loop, so that it ends without an error."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                ready(settings)
                notify("READY=1")

    server = Server(_config(build(Feed(settings.controller_socket), settings), settings))
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    if ends_with is not None:
        _end_with(ends_with, lambda: loop.call_soon_threadsafe(end))
    watchdog = asyncio.create_task(_tell_watchdog())
    try:
        await server.serve(sockets=[listening])
    finally:
        watchdog.cancel()


async def _tell_watchdog() -> None:
    """Tell systemd that the event loop goes on, as often as it wants to hear that."""
    limit_s = watchdog_s()
    while limit_s is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(limit_s / 3)


def _end_with(descriptor: int, end: Callable[[], object]) -> None:
    """Call `end` as soon as nobody has the other end of a pipe any more.

    A thread waits for that, and ends this process if the event loop does not do so in time.
    """

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(descriptor, 4096):
                pass
        with contextlib.suppress(RuntimeError):
            end()
        time.sleep(_LAST_S)
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _config(app: FastAPI, settings: WebSettings) -> uvicorn.Config:
    import uvicorn

    from ri2n_sdn.web.protocol import LimitedProtocol, LimitedWebSocket

    made = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws=LimitedWebSocket,
        ws_max_size=MAX_MESSAGE_BYTES,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_graceful_shutdown=_END_S,
        server_header=False,
        # Nobody may say in a header which address they have.
        proxy_headers=False,
        access_log=False,
        log_config=None,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    try:
        made.load()
    except (ssl.SSLError, OSError) as error:
        raise NotAvailable(
            f"--tls-cert {settings.tls_cert}, --tls-key {settings.tls_key}: "
            f"{error.strerror or error}"
        ) from None
    return made


def _allow_files() -> None:
    """Let this process have as many connections open as it takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
