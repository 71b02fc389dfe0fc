"""What `ri2n cp` does over one session:

which files and directories go where, one after another, and what failed.
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

FATAL = ("read_only", "token", "version", "protocol")
"""After these no other file can do better."""
MAX_ITEMS = 10_000_000


@dataclass
class Summary:
    """What came of a copy. `failures` are (name, why).

    `skipped` are links and special files, which -r leaves out.
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
        """One file more."""
        self.files += 1
        self.size_bytes += done.size_bytes
        self.moved_bytes += done.moved_bytes
        self.kept_bytes += done.kept_bytes
        self.repeated_blocks += done.repeated_blocks
        self.digests[name] = done.digest


@dataclass(frozen=True)
class Watch:
    """Who wants to know how far it is:

    the total in bytes once known, a file that begins, bytes that have arrived.
    """

    total: Callable[[int], None] = lambda size_bytes: None
    begin: Callable[[str], None] = lambda name: None
    told: Callable[[int], None] = lambda size_bytes: None


@dataclass(frozen=True)
class _Item:
    """One thing to copy: `here` is a local path, or a name below the local folder for a
    download.
    """

    here: str
    there: str
    size_bytes: int  # -1: a directory
    mode: int = 0
    mtime_ns: int = 0
    follow: bool = False  # named by the user, who may name a symbolic link


def upload(
    session: Session,
    sources: Sequence[Path],
    name: str,
    *,
    recursive: bool = False,
    preserve: bool = False,
    watch: Watch = Watch(),
) -> Summary:
    """Copy files, with `recursive` directories, to the name on the server, or into it when it is a
    directory.

    BadInput or Refused when nothing can be done; what fails for one file alone is in the summary.
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
        with _one(summary, item.here):
            watch.begin(item.here)
            if item.size_bytes < 0:
                session.make_directory(item.there)
                summary.directories += 1
            else:
                file = open_source(item.here, item.here, follow=item.follow)
                with contextlib.closing(file):
                    summary.add(item.here, session.put(file, item.there, watch.told, preserve))
    for item in reversed(items):
        if preserve and item.size_bytes < 0:
            with _one(summary, item.here):
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
    """Copy files of the server, with `recursive` directories, to the local path, or into it.

    Raises like `upload`.
    """
    summary = Summary()
    found: list[tuple[str, str, int]] = []
    for name in names:
        status = session.status(name)
        if status.kind == "none":
            raise Refused("missing", f"{printable(name)}: is not on the server")
        if status.kind == "other":
            raise Refused("kind", f"{printable(name)}: is a link or a special file on the server")
        if status.kind == "directory" and not recursive:
            raise BadInput(f"{printable(name or '.')}: is a directory (-r copies it)")
        found.append((name, status.kind, status.size))
    target = Path(local)
    into = target.is_dir()
    if not into and (len(names) > 1 or local.endswith("/")):
        raise BadInput(f"{printable(local)}: is no directory")
    folder = Folder(target if into else target.parent, current_umask())
    try:
        items: list[_Item] = []
        bases = [(check_name(name) or ("",))[-1] for name in names]
        places = _places(bases, "" if into else target.name, into)
        for (name, kind, size), place in zip(found, places, strict=True):
            items += _walk_remote(session, name, kind, size, place, summary)
        _plan(items, summary, watch)
        for item in items:
            with _one(summary, item.there):
                watch.begin(item.there)
                if item.size_bytes < 0:
                    folder.make_directory(item.here)
                    summary.directories += 1
                else:
                    summary.add(
                        item.there, session.get(item.there, folder, item.here, watch.told, preserve)
                    )
        for item in reversed(items):
            if preserve and item.size_bytes < 0:
                with _one(summary, item.there):
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
    """Where each source goes; BadInput when two would go to the same place."""
    places = [join(name, base) if into else name for base in bases]
    for place in places:
        if places.count(place) > 1:
            raise BadInput(f"{printable(place)}: two of the sources would get this name")
    return places


def _plan(items: list[_Item], summary: Summary, watch: Watch) -> None:
    summary.planned = len(items)
    watch.total(sum(item.size_bytes for item in items if item.size_bytes > 0))


def _walk_local(source: Path, place: str, summary: Summary) -> Iterator[_Item]:
    found = source.stat()
    if not stat.S_ISDIR(found.st_mode):
        yield _Item(str(source), place, found.st_size, follow=True)
        return
    open_ends = [(str(source), place, found)]
    while open_ends:
        path, there, found = open_ends.pop()
        yield _Item(path, there, -1, stat.S_IMODE(found.st_mode) & 0o777, found.st_mtime_ns)
        with _one(summary, path):
            try:
                entries = sorted(os.scandir(path), key=lambda entry: entry.name)
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    inner = join(there, entry.name)
                    if stat.S_ISDIR(status.st_mode):
                        open_ends.append((entry.path, inner, status))
                    elif not stat.S_ISREG(status.st_mode) or is_part_name(entry.name):
                        summary.skipped.append(entry.path)
                    else:
                        yield _Item(entry.path, inner, status.st_size)
            except OSError as error:
                raise refusal(path, error) from None


def _walk_remote(
    session: Session, name: str, kind: str, size_bytes: int, place: str, summary: Summary
) -> Iterator[_Item]:
    if kind != "directory":
        yield _Item(place, name, size_bytes)
        return
    open_ends, count = [(name, place)], 0
    while open_ends:
        there, here = open_ends.pop()
        yield _Item(here, there, -1)
        with _one(summary, there):
            for entry, inner_kind, inner_bytes in session.entries(there):
                inner, below = join(there, entry), join(here, entry)
                check_name(inner)  # not for ever deeper
                count += 1
                if inner_kind == "directory":
                    open_ends.append((inner, below))
                elif inner_kind == "file":
                    yield _Item(below, inner, inner_bytes)
                else:
                    summary.skipped.append(inner)
        if count > MAX_ITEMS:
            raise Refused("io", f"{printable(name)}: has more than {MAX_ITEMS} files")


@contextlib.contextmanager
def _one(summary: Summary, name: str) -> Iterator[None]:
    """What is refused for one file alone does not end the others."""
    try:
        yield
    except Refused as error:
        if error.code in FATAL:
            raise
        summary.failures.append((printable(name), str(error)))
