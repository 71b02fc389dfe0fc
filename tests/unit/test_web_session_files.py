# SPDX-License-Identifier: Apache-2.0
"""The folder of the GUI's sessions: whose it is, and when it goes."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import tempfile
from pathlib import Path

import pytest
from nicegui import background_tasks, core
from nicegui.persistence import FilePersistentDict

from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.web.session_files import session_files


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("NICEGUI_STORAGE_PATH", "")
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_folder_of_ones_own_is_private_and_goes_at_the_end(temporary: Path) -> None:
    with session_files(None):
        (own,) = temporary.iterdir()
        assert os.environ["NICEGUI_STORAGE_PATH"] == str(own)
        assert own.stat().st_mode & 0o077 == 0
        (own / "a session").touch()
    assert not names(temporary)


def test_what_a_killed_process_has_left_goes_and_what_others_use_stays(temporary: Path) -> None:
    dead, live = (temporary / f"ri2n-web-sessions-{name}" for name in ("dead", "live"))
    for folder in (dead, live, temporary / "ri2n-web-other"):
        folder.mkdir()
        (folder / "a file").touch()
    (temporary / "ri2n-web-sessions-link").symlink_to(temporary / "ri2n-web-other")
    handle = os.open(live, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with session_files(None):
            assert not dead.exists() and (live / "a file").exists()
            with session_files(None):
                assert len(list(temporary.glob("ri2n-web-sessions-*"))) == 4
    finally:
        os.close(handle)
    assert names(temporary) == {live.name, "ri2n-web-other", "ri2n-web-sessions-link"}
    assert names(temporary / "ri2n-web-other") == {"a file"}


def test_a_named_folder_is_made_and_is_for_nobody_else(temporary: Path) -> None:
    folder, before = temporary / "sessions", os.umask(0o022)
    try:
        with session_files(folder):
            (folder / "a session").touch()
            assert [path.stat().st_mode & 0o777 for path in (folder, folder / "a session")] == [
                *(0o700, 0o600)
            ]
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_folder_that_cannot_be_used_is_named_at_the_start(temporary: Path) -> None:
    """Not when the first one logs in."""
    (temporary / "file").touch()
    for folder in (temporary / "no" / "sessions", temporary / "file", Path("/proc/1")):
        with pytest.raises(NotAvailable, match=f"^{folder}: "), session_files(folder):
            pass


def test_a_named_folder_stays(temporary: Path) -> None:
    folder = temporary / "sessions"
    folder.mkdir()
    with session_files(folder):
        assert os.environ["NICEGUI_STORAGE_PATH"] == str(folder)
    assert folder.is_dir() and names(temporary) == {"sessions"}


def keep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NiceGUI keep a session in this folder, as it does when somebody logs in."""

    async def run() -> None:
        monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
        FilePersistentDict(folder / "storage-user-x.json")["login"] = {"number": "secret"}
        await asyncio.gather(*background_tasks.running_tasks, return_exceptions=True)
        await asyncio.sleep(0)  # what is done when a task has ended

    asyncio.run(run())


def test_a_full_disk_is_one_line_and_no_trace(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write_text(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = temporary / "sessions"
    with session_files(folder):
        keep(folder, monkeypatch)
        assert "secret" in (folder / "storage-user-x.json").read_text()
        assert "not kept" not in caplog.text
        caplog.clear()
        monkeypatch.setattr(Path, "write_text", write_text)
        keep(folder, monkeypatch)
        (record,) = caplog.records
        said = "No space left on device: logins are not kept, and end when this process does"
        assert record.getMessage() == f"{folder}: {said}"
        assert (record.name, record.levelno, record.exc_info) == ("ri2n.web", logging.ERROR, None)
        # What else NiceGUI has to say stays as it is.
        try:
            raise OSError(errno.ENOSPC, "elsewhere")
        except OSError:
            logging.getLogger("nicegui").exception("a page has failed")
        assert caplog.records[1].exc_info and caplog.messages[1] == "a page has failed"
    assert logging.getLogger("nicegui").filters == []
