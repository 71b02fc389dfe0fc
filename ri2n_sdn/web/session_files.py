# SPDX-License-Identifier: Apache-2.0
"""Where the GUI's sessions are kept, in files: a folder that is named, or one for this process."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from ri2n_sdn.errors import NotAvailable

__all__ = ["session_files"]

_LOG = logging.getLogger("ri2n.web")
_PREFIX = "ri2n-web-sessions-"


@contextlib.contextmanager
def session_files(folder: Path | None) -> Iterator[None]:
    """Let NiceGUI keep the sessions in this folder. It asks for that when it is first imported.

    Without a folder there is one for this process. It is removed at the end, or by the next process
    when this one is killed: whoever lives has a lock of the own folder, and the dead have none.
    The files are for nobody else, whatever the umask was. A session that cannot be kept later,
    because the disk is full, is a line in the log. Raises NotAvailable when a folder cannot be
    used.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))
        if folder is None:
            _remove_those_of_the_dead()
            folder = stack.enter_context(_own_folder())
        else:
            _claim(folder)
        os.environ["NICEGUI_STORAGE_PATH"] = str(folder)
        stack.enter_context(_said_plainly(folder))
        if "nicegui" in sys.modules:
            _LOG.warning("NiceGUI was imported before; sessions may be kept elsewhere")
        yield


@contextlib.contextmanager
def _said_plainly(folder: Path) -> Iterator[None]:
    """Let the log say in one line, and not by a trace of NiceGUI, that a session is not kept.

    Nothing of the code has failed then. Whoever has logged in is in, as long as this process runs.
    """

    def plain(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, OSError) and any(
            frame.f_globals.get("__name__", "").startswith("nicegui.persistence")
            for frame, _ in traceback.walk_tb(error.__traceback__)
        ):
            record.name = _LOG.name
            record.msg = "%s: %s: logins are not kept, and end when this process does"
            record.args = (folder, error.strerror or error)
            record.exc_info = record.exc_text = None
        return True

    log = logging.getLogger("nicegui")
    log.addFilter(plain)
    try:
        yield
    finally:
        log.removeFilter(plain)


def _claim(folder: Path) -> None:
    """Make a folder, and find out before anybody logs in whether it can be written."""
    try:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise NotAvailable(f"{folder}: {error.strerror or error}") from None


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    # It gets its name when it is locked already, so nobody takes it for that of a dead process.
    draft = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    made = draft.with_name(draft.name[1:])
    try:
        with _locked(draft):
            draft.rename(made)
            yield made
    finally:
        for path in (draft, made):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Have the lock of a folder. Raises OSError when another process has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise PermissionError(f"{folder} is another user's")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _remove_those_of_the_dead() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(path):
            shutil.rmtree(path, ignore_errors=True)
