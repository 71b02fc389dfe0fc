"""The folder of the GUI's sessions: whose it is, and when it goes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

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
