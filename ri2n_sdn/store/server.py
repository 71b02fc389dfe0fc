# SPDX-License-Identifier: Apache-2.0
"""The controller's own ovsdb-server: a child on a file of the controller's folder."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.store.files import prepare_file

__all__ = ["FolderInUse", "OwnServer"]

_LOG = logging.getLogger("ri2n.store")
_START_S = 60.0
_END_S = 5.0
# A child that has ended is started again after this time, at first and at most.
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 0.5
# A child that ran for this long has started well.
_WELL_S = 5.0
_POLL_S = 0.01
# A server of a killed controller may still hold the file for a moment.
_MAX_FAILURES = 5
# The child asks for SIGKILL when the thread that started it ends (prctl, PR_SET_PDEATHSIG). If that
# was before, it has another parent by now, and ends by itself. It is a program of its own, since
# little may be done between fork and exec in a process of many threads. (setpriv could do this, but
# fails in a service without capabilities.)
_WITH_PARENT = """
import ctypes, os, sys
failed = ctypes.CDLL(None).prctl(1, 9)
os.umask(0o077)
if not failed and os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
sys.exit(127)
"""


class FolderInUse(NotAvailable):
    """Another process has the folder."""


class OwnServer:
    """An ovsdb-server that runs as long as this process, on `ri2n.db` in a folder.

    A child that ends is started again; `starts` counts that. The folder belongs to one process at a
    time.
    """

    def __init__(self, folder: Path) -> None:
        """Nothing is started yet; the folder is made by `start`."""
        self._folder = folder
        self._socket = folder / "db.sock"
        self._held: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._listens = threading.Event()
        self.starts = 0
        self._thread = threading.Thread(target=self._keep, name="store-server", daemon=True)

    @property
    def target(self) -> str:
        """Where the server listens."""
        return f"unix:{self._socket.absolute()}"

    @property
    def pid(self) -> int | None:
        """The process ID of the child; None while there is none."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def start(self) -> None:
        """Start the server, and return when it listens.

        Raises NotAvailable when a program is missing, when the folder cannot be used, and when the
        server does not start; FolderInUse when another process has the folder; BadInput when the
        file is damaged.
        """
        if shutil.which("ovsdb-server") is None:
            raise NotAvailable("ovsdb-server is missing: apt install openvswitch-switch")
        self._take_folder()
        try:
            prepare_file(self._folder / "ri2n.db")
            self._thread.start()
            until_s = time.monotonic() + _START_S
            while not self._listens.wait(_POLL_S):
                if self._stop.is_set() or time.monotonic() > until_s:
                    raise NotAvailable(
                        f"{self._folder}: ovsdb-server does not start; its message is above"
                    )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and give the folder free. To call it twice is no error."""
        self._stop.set()
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._child is not None and self._child.poll() is None:
                self._child.send_signal(signal.SIGTERM)
        if self._thread.is_alive():
            self._thread.join()
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _take_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NotAvailable(f"{self._folder}: {error.strerror}") from None
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with contextlib.suppress(OSError):
                other = os.pread(held, 32, 0).decode("ascii", "replace").strip()
            os.close(held)
            raise FolderInUse(
                f"{self._folder}: another controller uses it, process {other or 'unknown'}: choose "
                "another folder with --state-dir"
            ) from None
        os.ftruncate(held, 0)
        os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
        self._held = held

    def _keep(self) -> None:
        """Start the child again and again. It is this thread's end that would end the child."""
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            started_s = time.monotonic()
            try:
                child = self._spawn()
            except OSError as error:
                _LOG.error("ovsdb-server cannot be started: %s", error.strerror)
            else:
                self._await_socket(child)
                code = self._wait(child)
                if self._stop.is_set():
                    return
                _LOG.warning("ovsdb-server has ended (code %d); it is started again", code)
                if not self._listens.is_set() and self.starts >= _MAX_FAILURES:
                    # It has never run: the one who has called `start` hears of it.
                    self._stop.set()
                    return
            ran_well = time.monotonic() - started_s > _WELL_S
            pause_s = _FIRST_PAUSE_S if ran_well else min(2 * pause_s, _MAX_PAUSE_S)
            self._stop.wait(pause_s)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._lock:
            self._socket.unlink(missing_ok=True)
            folder = self._folder.absolute()
            server = ["ovsdb-server", f"{folder}/ri2n.db", f"--remote=p{self.target}"]
            server += [f"--unixctl={folder}/ctl.sock"]
            server += ["-vsyslog:off", "-vfile:off", "-vconsole:warn", "-vfatal_signal:off"]
            argv = [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid())]
            child = subprocess.Popen(
                [*argv, *server],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is for the controller alone
            )
            self._child = child
            self.starts += 1
        return child

    def _await_socket(self, child: subprocess.Popen[bytes]) -> None:
        while child.poll() is None and not self._stop.is_set():
            if self._socket.exists():
                self._listens.set()
                return
            time.sleep(_POLL_S)

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        while not self._stop.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(0.5)
        try:
            return child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()
