# SPDX-License-Identifier: Apache-2.0
"""Files below one directory, opened step by step: no name and no symbolic link leads out of it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ri2n_parallel.copy.blocks import BLOCK_BYTES, DIGEST_BYTES, block_bytes, block_count
from ri2n_parallel.copy.messages import Refused, Status
from ri2n_parallel.copy.names import check_name, is_part_name, part_name, printable

__all__ = ["Folder", "Source", "Target", "current_umask", "open_source", "refusal"]

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""Without O_NONBLOCK, `open` would wait for ever if a pipe takes the place of the file."""
LOCK_TRIES = 5
COPY_BYTES = 1 << 18
"""The memory with which blocks of the old file are copied."""
CODES = {
    **dict.fromkeys((errno.ENOENT, errno.ESTALE), "missing"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "permission"),
    errno.EROFS: "read_only",
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "space"),
    **dict.fromkeys(
        (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EEXIST, errno.ENOTEMPTY),
        "kind",
    ),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.EILSEQ), "name"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM), "busy"),
}
"""By error number: the code of the refusal; every other one is `io`."""
NOTHING = Status("none", 0, 0, 0)


def refusal(name: str, error: OSError) -> Refused:
    """The refusal for an error of the operating system about `name`."""
    return Refused(
        CODES.get(error.errno or 0, "io"),
        f"{printable(name)}: {os.strerror(error.errno or errno.EIO)}",
    )


def current_umask() -> int:
    """The umask of this process.

    It is changed for a moment, so no other thread may make files meanwhile.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


class Folder:
    """One directory: all names are relative to it and may come from peers. Errors are Refused."""

    def __init__(self, path: Path, umask: int) -> None:
        self.path, self.umask = path, umask
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise refusal(str(path), error) from None

    def close(self) -> None:
        """Close the directory."""
        os.close(self.fd)

    def status(self, name: str) -> Status:
        """What `name` is; kind `none` when nothing has that name."""
        parts = check_name(name)
        if not parts:
            return _status(os.fstat(self.fd))
        try:
            with self._parent(name, parts) as parent:
                return _status(_lstat(parts[-1], parent))
        except Refused as error:
            if error.code == "missing":
                return NOTHING
            raise
        except OSError as error:
            if error.errno == errno.ENOENT:
                return NOTHING
            raise refusal(name, error) from None

    def entries(self, name: str) -> Iterator[tuple[str, str, int]]:
        """(name, kind, size in bytes) of what is in a directory, without unfinished copies."""
        with self._directory(name) as fd:
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        if not is_part_name(entry.name):
                            with contextlib.suppress(FileNotFoundError):
                                status = _status(entry.stat(follow_symlinks=False))
                                yield entry.name, status.kind, status.size
            except OSError as error:
                raise refusal(name, error) from None

    def open_source(self, name: str) -> Source:
        """Open a file for reading."""
        parts = self._file_name(name)
        with self._parent(name, parts) as parent:
            return open_source(parts[-1], name, parent)

    def make_directory(self, name: str) -> None:
        """Make a directory, unless it is there already; its parent has to be there."""
        parts = check_name(name)
        if not parts:
            return
        with self._parent(name, parts) as parent:
            try:
                os.mkdir(parts[-1], 0o777, dir_fd=parent)
                os.fsync(parent)
            except FileExistsError:
                if not stat.S_ISDIR(_lstat(parts[-1], parent).st_mode):
                    raise Refused(
                        "kind", f"{printable(name)}: exists and is no directory"
                    ) from None
            except OSError as error:
                raise refusal(name, error) from None

    def touch_directory(self, name: str, mode: int, mtime_ns: int) -> None:
        """Give a directory its mode and mtime."""
        with self._directory(name) as fd:
            try:
                os.fchmod(fd, mode)
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            except OSError as error:
                raise refusal(name, error) from None

    def open_target(self, name: str, size_bytes: int, mode: int, mtime_ns: int | None) -> Target:
        """Open a target that will be the file `name` of `size_bytes`.

        Its `commit` replaces what has that name now. With `mtime_ns` the file gets this mode and
        mtime. Without, it gets the mode of the file that it replaces; if there is none, it gets
        `mode` without the bits of the umask.
        """
        parts = self._file_name(name)
        with self._parent(name, parts) as parent:
            try:
                there = _lstat(parts[-1], parent)
            except FileNotFoundError:
                there = None
            if (
                there is not None
                and not stat.S_ISREG(there.st_mode)
                and not stat.S_ISLNK(there.st_mode)
            ):
                kind = "a directory" if stat.S_ISDIR(there.st_mode) else "a special file"
                raise Refused("kind", f"{printable(name)}: is {kind}")
            if mtime_ns is None:
                if there is not None and stat.S_ISREG(there.st_mode):
                    mode = stat.S_IMODE(there.st_mode) & 0o777
                else:
                    mode &= ~self.umask
            return Target(name, parts[-1], parent, size_bytes, mode, mtime_ns)

    def _file_name(self, name: str) -> tuple[str, ...]:
        parts = check_name(name)
        if not parts:
            raise Refused("kind", f"{printable(name or '.')}: is a directory")
        return parts

    @contextlib.contextmanager
    def _directory(self, name: str) -> Iterator[int]:
        parts = check_name(name)
        with self._walk(name, parts) as fd:
            yield fd

    @contextlib.contextmanager
    def _parent(self, name: str, parts: tuple[str, ...]) -> Iterator[int]:
        with self._walk(name, parts[:-1]) as fd:
            yield fd

    @contextlib.contextmanager
    def _walk(self, name: str, parts: tuple[str, ...]) -> Iterator[int]:
        """A descriptor of a directory, opened part by part; no part may be a symbolic link."""
        try:
            fd = os.open(".", DIRECTORY, dir_fd=self.fd)
        except OSError as error:
            raise refusal(name, error) from None
        try:
            for part in parts:
                try:
                    inner = os.open(part, DIRECTORY, dir_fd=fd)
                except OSError as error:
                    raise _not_followed(name, part, fd, error) from None
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)


class Source:
    """A file that is read; it must not change meanwhile.

    `mode` are the permission bits, `mtime_ns` is in ns since 1970.
    """

    def __init__(self, fd: int, name: str) -> None:
        self.fd, self.name = fd, name
        self._before = os.fstat(fd)
        self.size_bytes = self._before.st_size
        self.mode = stat.S_IMODE(self._before.st_mode) & 0o777
        self.mtime_ns = self._before.st_mtime_ns

    def pieces(self, index: int, buffer: memoryview) -> Iterator[memoryview]:
        """Block `index` in pieces, each of them in `buffer`.

        Refused `changed` when the file has become shorter.
        """
        at = index * BLOCK_BYTES
        end = at + block_bytes(index, self.size_bytes)
        while at < end:
            view = buffer[: min(len(buffer), end - at)]
            try:
                count = os.preadv(self.fd, [view], at)
            except OSError as error:
                raise refusal(self.name, error) from None
            if not count:
                raise self.changed()
            yield view[:count]
            at += count

    def check_unchanged(self) -> None:
        """Refused `changed` when somebody has written to the file since it was opened.

        A change of mode, owner or links also changes the ctime, but is no reason to give up.
        """
        now = os.fstat(self.fd)
        was = self._before
        if (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (
            was.st_size,
            was.st_mtime_ns,
            was.st_ctime_ns,
        ):
            if (now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns) and _only_inode(
                was, now
            ):
                return
            raise self.changed()

    def changed(self) -> Refused:
        """The error for a file that changes while it is read."""
        return Refused(
            "changed", f"{printable(self.name)}: changed while it was read; copy it again"
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


def _only_inode(was: os.stat_result, now: os.stat_result) -> bool:
    """Whether mode, owner or number of links differ, which explains that the ctime differs."""
    return (was.st_mode, was.st_uid, was.st_gid, was.st_nlink) != (
        now.st_mode,
        now.st_uid,
        now.st_gid,
        now.st_nlink,
    )


def open_source(path: str, name: str, directory: int | None = None, follow: bool = False) -> Source:
    """Open `path` for reading; Refused when it is no regular file or cannot be opened.

    Errors call it `name`. `path` is relative to the descriptor `directory`, if there is one. With
    `follow` it may be a symbolic link.
    """
    try:
        kind = os.stat(path, dir_fd=directory, follow_symlinks=follow).st_mode
        if not stat.S_ISREG(kind):
            raise Refused("kind", f"{printable(name)}: {_kind_text(kind)}")
        fd = os.open(
            path, os.O_RDONLY | (FILE & ~os.O_NOFOLLOW if follow else FILE), dir_fd=directory
        )
    except OSError as error:
        raise refusal(name, error) from None
    source = Source(fd, name)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        source.close()
        raise Refused("kind", f"{printable(name)}: is no regular file")
    return source


class Target:
    """A file that is received: `.NAME.ri2n-part` beside its place, locked, until `commit`.

    `there_bytes` is how much is there to be compared with the source: what an interrupted copy has
    left, or else the old file if it has the size of the new one, for then it may be the same file.
    """

    def __init__(
        self,
        name: str,
        component: str,
        parent: int,
        size_bytes: int,
        mode: int,
        mtime_ns: int | None,
    ) -> None:
        self.name, self.mode, self.mtime_ns = name, mode, mtime_ns
        self._component, self._part = component, part_name(component)
        self._parent = os.dup(parent)
        # Whether the part has got its name or was removed.
        self._settled = False
        try:
            self.fd = self._open_part()
        except OSError as error:
            os.close(self._parent)
            raise refusal(name, error) from None
        except Refused:
            os.close(self._parent)
            raise
        part = os.fstat(self.fd)
        # The file that will be replaced, when its blocks are compared in place of a part's.
        self._old = None if part.st_size else self._open_old(size_bytes)
        self.there_bytes = part.st_size if self._old is None else size_bytes
        file_system = os.fstatvfs(self.fd)
        free_bytes = part.st_blocks * 512 + file_system.f_bavail * file_system.f_frsize
        if self._old is None and size_bytes > free_bytes:
            self.close()
            raise Refused("space", f"{printable(name)}: {size_bytes} bytes do not fit on the disk")

    def _open_part(self) -> int:
        """Open the part and lock it; Refused `busy` when another copy has it."""
        for _ in range(LOCK_TRIES):
            fd = os.open(self._part, os.O_RDWR | os.O_CREAT | FILE, 0o600, dir_fd=self._parent)
            try:
                part = os.fstat(fd)
                if not stat.S_ISREG(part.st_mode) or part.st_nlink > 1:
                    raise Refused(
                        "kind",
                        f"{printable(self.name)}: its unfinished copy is no regular file, or has "
                        "another name too",
                    )
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The copy that had the lock before may have renamed or removed the opened file.
                # Then it has to be opened again.
                if os.path.samestat(os.fstat(fd), _lstat(self._part, self._parent)):
                    return fd
            except BlockingIOError:
                os.close(fd)
                raise Refused(
                    "busy", f"{printable(self.name)}: another copy writes it now"
                ) from None
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise Refused("busy", f"{printable(self.name)}: other copies write it now")

    def _open_old(self, size_bytes: int) -> int | None:
        """A descriptor of the file that will be replaced, if it has this size."""
        with contextlib.suppress(OSError):
            there = _lstat(self._component, self._parent)
            if size_bytes and stat.S_ISREG(there.st_mode) and there.st_size == size_bytes:
                return os.open(self._component, os.O_RDONLY | FILE, dir_fd=self._parent)
        return None

    def pieces(self, index: int, size_bytes: int, buffer: memoryview) -> Iterator[memoryview]:
        """What is there of block `index`, in pieces; what is missing at its end is left out."""
        at, end = index * BLOCK_BYTES, index * BLOCK_BYTES + size_bytes
        while at < end:
            view = buffer[: min(len(buffer), end - at)]
            try:
                count = os.preadv(self.fd if self._old is None else self._old, [view], at)
            except OSError as error:
                raise refusal(self.name, error) from None
            if not count:
                return
            yield view[:count]
            at += count

    def write(self, data: memoryview, at_bytes: int) -> None:
        """Write some bytes; Refused when that fails.

        When the disk is full, the part is removed, so that the disk does not stay full.
        """
        try:
            while data:
                count = os.pwrite(self.fd, data, at_bytes)
                data, at_bytes = data[count:], at_bytes + count
        except OSError as error:
            refused = refusal(self.name, error)
            if refused.code == "space":
                self._remove_part()
            raise refused from None

    def commit(self, size_bytes: int, kept: Sequence[int], digests: bytes | bytearray) -> None:
        """Write the whole file to the disk and give it its name; it replaces what has that name.

        `kept` are the blocks that were not received, since what was there is right; `digests` has
        the digests of all blocks in order. Refused when the disk fails, or `changed` when the old
        file is not the same any more.
        """
        try:
            if self._old is not None and len(kept) == block_count(size_bytes):
                self._remove_part()  # nothing was received: the old file is the new one
                self._set_mode_and_time(self._old)
                return
            if self._old is not None:
                self._copy_old(size_bytes, kept, digests)
            os.ftruncate(self.fd, size_bytes)
            self._set_mode_and_time(self.fd)
            os.fsync(self.fd)
            os.rename(self._part, self._component, src_dir_fd=self._parent, dst_dir_fd=self._parent)
            self._settled = True
            os.fsync(self._parent)
        except OSError as error:
            raise refusal(self.name, error) from None

    def _set_mode_and_time(self, fd: int) -> None:
        if stat.S_IMODE(os.fstat(fd).st_mode) != self.mode:
            os.fchmod(fd, self.mode)
        if self.mtime_ns is not None:
            os.utime(fd, ns=(self.mtime_ns, self.mtime_ns))

    def _copy_old(self, size_bytes: int, kept: Sequence[int], digests: bytes | bytearray) -> None:
        """Copy the blocks that are right from the old file.

        Refused `changed` when the old file has changed since it was compared.
        """
        buffer = memoryview(bytearray(COPY_BYTES))
        for index in kept:
            block_hash, at = hashlib.blake2b(digest_size=DIGEST_BYTES), index * BLOCK_BYTES
            for view in self.pieces(index, block_bytes(index, size_bytes), buffer):
                block_hash.update(view)
                self.write(view, at)
                at += len(view)
            if block_hash.digest() != digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]:
                raise Refused(
                    "changed",
                    f"{printable(self.name)}: was changed by somebody else; copy it again",
                )

    def close(self) -> None:
        """Close the target.

        A part that was not committed stays for the next copy, unless not even one block is whole.
        """
        try:
            if not self._settled and os.fstat(self.fd).st_size < BLOCK_BYTES:
                self._remove_part()
        finally:
            for fd in (self.fd, self._parent, *(() if self._old is None else (self._old,))):
                os.close(fd)

    def _remove_part(self) -> None:
        self._settled = True  # from now on another copy may make a part of the same name
        with contextlib.suppress(OSError):
            os.unlink(self._part, dir_fd=self._parent)
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, 0)


def _lstat(name: str, directory: int) -> os.stat_result:
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def _status(info: os.stat_result) -> Status:
    kind = "other"
    if stat.S_ISDIR(info.st_mode):
        kind = "directory"
    elif stat.S_ISREG(info.st_mode):
        kind = "file"
    return Status(kind, info.st_size, stat.S_IMODE(info.st_mode) & 0o777, info.st_mtime_ns)


def _kind_text(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "is a symbolic link, which is not followed"
    return "is a directory (-r copies it)" if stat.S_ISDIR(mode) else "is a special file"


def _not_followed(name: str, part: str, directory: int, error: OSError) -> Refused:
    """The refusal for a part of a name that could not be opened as a directory."""
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(_lstat(part, directory).st_mode):
                return Refused(
                    "kind",
                    f"{printable(name)}: goes through a symbolic link, which is not followed",
                )
    return refusal(name, error)
