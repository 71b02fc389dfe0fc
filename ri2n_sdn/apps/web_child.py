# SPDX-License-Identifier: Apache-2.0
"""The web process as a child of the controller: started, started again, and ended with it."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["WEB_USER", "WebChild", "WebUser", "web_user"]

WEB_USER = "ri2n-web"
"""The web process of a controller that root has started runs as this user, where it exists."""

_LOG = logging.getLogger("ri2n.web")
# A child that ends is started again after a pause, which grows while children end soon.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.5, 30.0
_LONG_S = 60.0
_END_S = 5.0


@dataclass(frozen=True)
class WebUser:
    """The user and the group that the web process has."""

    uid: int
    gid: int
    group: str


def web_user() -> WebUser | None:
    """Whose process the child will be; None: that of the controller's own user."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(WEB_USER)
        return WebUser(entry.pw_uid, entry.pw_gid, grp.getgrgid(entry.pw_gid).gr_name)
    except KeyError:
        return None


class WebChild:
    """Keeps one web process running as long as this process does.

    The child has one end of a pipe. When this process ends, however that comes about, the kernel
    closes the other end, and the child ends as well. Nothing here is waited for by the controller:
    all is done in a thread of its own.
    """

    def __init__(
        self, socket_path: Path, listen: str, user: WebUser | None, log_format: str = "text"
    ) -> None:
        """`log_format` is that of the controller, because both write to one place."""
        self._socket_path, self._listen, self._user = socket_path, listen, user
        self._log_format = log_format
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._mine: int | None = None
        self.starts = 0
        """How many children there have been."""
        self._thread = threading.Thread(target=self._loop, name="web", daemon=True)

    def start(self) -> None:
        """Begin to keep the child running."""
        if self._user is None and os.geteuid() == 0:
            _LOG.warning(
                "the web process runs as root; make a user for it: "
                "useradd --system --no-create-home %s",
                WEB_USER,
            )
        self._thread.start()

    def stop(self, at_once: bool = False) -> None:
        """End the child, and wait for that. To do it twice is no error.

        Browsers are told that it ends, which takes 2 s, unless it ends `at_once`: a controller that
        starts anew has no time for that, and its next child is there soon.
        """
        self._stopping.set()
        with self._lock:
            process = self._process
            self._let_go()
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _loop(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                process = self._spawn()
            except OSError as error:
                _LOG.error("the web process cannot be started: %s", error)
            else:
                if process is None:
                    return
                code = process.wait()
                with self._lock:
                    self._let_go()
                if self._stopping.is_set():
                    return
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                _LOG.warning("the web process has ended (%s); it is started again", how)
            if time.monotonic() - began_s > _LONG_S:
                pause_s = _FIRST_PAUSE_S
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        """Start a child; None when all is about to end."""
        with self._lock:
            if self._stopping.is_set():
                return None
            its, self._mine = os.pipe()
            try:
                self._process = subprocess.Popen(
                    self._command(its),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(its,),
                    cwd="/",
                    umask=0o077,
                    # Else it would speak to systemd for the controller.
                    env={
                        name: value
                        for name, value in os.environ.items()
                        if not name.startswith(("NOTIFY_SOCKET", "WATCHDOG_"))
                    },
                    start_new_session=True,  # a terminal's Ctrl-C is for the controller alone
                    **self._as_user(),
                )
            except BaseException:
                self._let_go()
                raise
            finally:
                os.close(its)
            self.starts += 1
            return self._process

    def _command(self, descriptor: int) -> list[str]:
        return [
            *(sys.executable, "-m", "ri2n_sdn.cli.main", "web"),
            *("--socket", str(self._socket_path.absolute()), "--listen", self._listen),
            *("--ends-with", str(descriptor), "--log-format", self._log_format),
        ]

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.uid, "group": self._user.gid, "extra_groups": []}

    def _let_go(self) -> None:
        """Close this end of the pipe (the lock is held)."""
        if self._mine is not None:
            os.close(self._mine)
            self._mine = None
