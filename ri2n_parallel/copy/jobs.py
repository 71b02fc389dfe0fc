# SPDX-License-Identifier: Apache-2.0
"""What `ri2n cp` does over one session: it copies files and directories one after another.

Here is decided which of them are copied to which names. What fails for one file alone is noted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ri2n_parallel.copy.client import Session
from ri2n_parallel.copy.folder import Folder, current_umask, open_source, refusal
from ri2n_parallel.copy.messages import Refused
from ri2n_parallel.copy.names import check_name, is_part_name, join, printable
from ri2n_parallel.copy.transfer import Transferred
from ri2n_parallel.errors import BadInput

__all__ = ["Summary", "Watch", "download", "upload"]

FATAL = ("read_only", "version", "protocol")
"""Codes of refusals after which every other file would be refused too."""
MAX_ITEMS = 10_000_000


@dataclass
class Summary:
    """The result of a copy; `failures` are (name, why).

    `planned` is the number of files and directories that were to be copied. Of the files'
    `size_bytes`, `moved_bytes` came over the network and `kept_bytes` were there already. `skipped`
    are links and special files, which -r leaves out. `digests` are by the name of the source.
    """

    files: int = 0
    directories: int = 0
    size_bytes: int = 0
    moved_bytes: int = 0
    kept_bytes: int = 0
    repeated_blocks: int = 0
    planned: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, name: str, done: Transferred) -> None:
        """Count one more file."""
        self.files += 1
        self.size_bytes += done.size_bytes
        self.moved_bytes += done.moved_bytes
        self.kept_bytes += done.kept_bytes
        self.repeated_blocks += done.repeated_blocks
        self.digests[name] = done.digest


@dataclass(frozen=True)
class Watch:
    """Functions that are called with the progress of a copy.

    `total` gets the bytes of all files once they are known, `begin` the name of each file before it
    is copied, `arrived` the bytes that the receiver has got since the last call.
    """

    total: Callable[[int], None] = lambda size_bytes: None
    begin: Callable[[str], None] = lambda name: None
    arrived: Callable[[int], None] = lambda size_bytes: None


@dataclass(frozen=True)
class _Item:
    """A file or a directory to copy; a directory has `size_bytes` -1.

    `here` is a local path, or in a download a name below the local folder; `there` is the name on
    the server. With `follow` the path may be a symbolic link, since the user has named it.
    """

    here: str
    there: str
    size_bytes: int
    mode: int = 0
    mtime_ns: int = 0
    follow: bool = False


def upload(
    session: Session,
    sources: Sequence[Path],
    name: str,
    *,
    recursive: bool = False,
    preserve: bool = False,
    watch: Watch = Watch(),
) -> Summary:
    """Copy files, with `recursive` also directories, to the server.

    They get the name `name`, or go into it when it is a directory. With `preserve` they keep mode
    and mtime. BadInput or Refused when nothing can be copied; what fails for one file alone is in
    the summary.
    """
    summary = Summary()
    for source in sources:
        _check_local(source, recursive)
    into = _is_directory(session.status(name).kind, name, len(sources))
    items: list[_Item] = []
    places = _places([_base(source) for source in sources], name, into)
    for source, place in zip(sources, places, strict=True):
        items += _walk_local(source, place, summary)
    _plan(items, summary, watch)
    for item in items:
        with _failures_noted(summary, item.here):
            watch.begin(item.here)
            if item.size_bytes < 0:
                session.make_directory(item.there)
                summary.directories += 1
            else:
                file = open_source(item.here, item.here, follow=item.follow)
                with contextlib.closing(file):
                    summary.add(item.here, session.put(file, item.there, watch.arrived, preserve))
    for item in reversed(items):
        if preserve and item.size_bytes < 0:
            with _failures_noted(summary, item.here):
                session.touch_directory(item.there, item.mode, item.mtime_ns)
    return summary


def download(
    session: Session,
    names: Sequence[str],
    local: str,
    *,
    recursive: bool = False,
    preserve: bool = False,
    watch: Watch = Watch(),
) -> Summary:
    """Copy files of the server, with `recursive` also directories, to this host.

    They get the path `local`, or go into it when it is a directory. The rest is as with `upload`.
    """
    summary = Summary()
    sources: list[tuple[str, str, int]] = []
    for name in names:
        status = session.status(name)
        if status.kind == "none":
            raise Refused("missing", f"{printable(name)}: is not on the server")
        if status.kind == "other":
            raise Refused("kind", f"{printable(name)}: is a link or a special file on the server")
        if status.kind == "directory" and not recursive:
            raise BadInput(f"{printable(name or '.')}: is a directory (-r copies it)")
        sources.append((name, status.kind, status.size))
    target = Path(local)
    into = target.is_dir()
    if not into and (len(names) > 1 or local.endswith("/")):
        raise BadInput(f"{printable(local)}: is no directory")
    folder = Folder(target if into else target.parent, current_umask())
    try:
        items: list[_Item] = []
        bases = [(check_name(name) or ("",))[-1] for name in names]
        places = _places(bases, "" if into else target.name, into)
        for (name, kind, size), place in zip(sources, places, strict=True):
            items += _walk_remote(session, name, kind, size, place, summary)
        _plan(items, summary, watch)
        for item in items:
            with _failures_noted(summary, item.there):
                watch.begin(item.there)
                if item.size_bytes < 0:
                    folder.make_directory(item.here)
                    summary.directories += 1
                else:
                    summary.add(
                        item.there,
                        session.get(item.there, folder, item.here, watch.arrived, preserve),
                    )
        for item in reversed(items):
            if preserve and item.size_bytes < 0:
                with _failures_noted(summary, item.there):
                    status = session.status(item.there)
                    folder.touch_directory(item.here, status.mode, status.mtime_ns)
    finally:
        folder.close()
    return summary


def _base(source: Path) -> str:
    name = source.name if source.name not in ("", "..") else source.resolve().name
    if not name:
        raise BadInput(f"{source}: has no name")
    return name


def _check_local(source: Path, recursive: bool) -> None:
    """BadInput or Refused when a local source cannot be copied."""
    try:
        kind = source.stat().st_mode
    except OSError as error:
        raise refusal(str(source), error) from None
    if stat.S_ISDIR(kind):
        if not recursive:
            raise BadInput(f"{printable(str(source))}: is a directory (-r copies it)")
    elif not stat.S_ISREG(kind):
        raise BadInput(f"{printable(str(source))}: is a special file")


def _is_directory(kind: str, name: str, sources: int) -> bool:
    if kind == "directory":
        return True
    if sources > 1 or name.endswith("/"):
        raise BadInput(f"{printable(name)}: is no directory on the server")
    return False


def _places(bases: list[str], name: str, into: bool) -> list[str]:
    """The name that each source gets; BadInput when two would get the same."""
    places = [join(name, base) if into else name for base in bases]
    for place in places:
        if places.count(place) > 1:
            raise BadInput(f"{printable(place)}: two of the sources would get this name")
    return places


def _plan(items: list[_Item], summary: Summary, watch: Watch) -> None:
    summary.planned = len(items)
    watch.total(sum(item.size_bytes for item in items if item.size_bytes > 0))


def _walk_local(source: Path, place: str, summary: Summary) -> Iterator[_Item]:
    """All that is to be copied of a local source, each directory before what is in it."""
    info = source.stat()
    if not stat.S_ISDIR(info.st_mode):
        yield _Item(str(source), place, info.st_size, follow=True)
        return
    directories = [(str(source), place, info)]
    while directories:
        path, there, info = directories.pop()
        yield _Item(path, there, -1, stat.S_IMODE(info.st_mode) & 0o777, info.st_mtime_ns)
        with _failures_noted(summary, path):
            try:
                entries = sorted(os.scandir(path), key=lambda entry: entry.name)
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    inner = join(there, entry.name)
                    if stat.S_ISDIR(status.st_mode):
                        directories.append((entry.path, inner, status))
                    elif not stat.S_ISREG(status.st_mode) or is_part_name(entry.name):
                        summary.skipped.append(entry.path)
                    else:
                        yield _Item(entry.path, inner, status.st_size)
            except OSError as error:
                raise refusal(path, error) from None


def _walk_remote(
    session: Session, name: str, kind: str, size_bytes: int, place: str, summary: Summary
) -> Iterator[_Item]:
    """All that is to be copied of a source on the server, each directory before what is in it."""
    if kind != "directory":
        yield _Item(place, name, size_bytes)
        return
    directories, count = [(name, place)], 0
    while directories:
        there, here = directories.pop()
        yield _Item(here, there, -1)
        with _failures_noted(summary, there):
            for entry, inner_kind, inner_bytes in session.entries(there):
                inner, below = join(there, entry), join(here, entry)
                check_name(inner)  # a server must not lead the client deeper and deeper
                count += 1
                if inner_kind == "directory":
                    directories.append((inner, below))
                elif inner_kind == "file":
                    yield _Item(below, inner, inner_bytes)
                else:
                    summary.skipped.append(inner)
        if count > MAX_ITEMS:
            raise Refused("io", f"{printable(name)}: has more than {MAX_ITEMS} files")


@contextlib.contextmanager
def _failures_noted(summary: Summary, name: str) -> Iterator[None]:
    """Note a refusal of one file in the summary; raise one that all other files would get too."""
    try:
        yield
    except Refused as error:
        if error.code in FATAL:
            raise
        summary.failures.append((printable(name), str(error)))
