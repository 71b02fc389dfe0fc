# SPDX-License-Identifier: Apache-2.0
"""The file of a store of one server: made, examined and brought to the present schema."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["SCHEMA", "check_file", "prepare_file", "schema_version", "sync"]

SCHEMA = Path(__file__).with_name("ri2n.ovsschema")

_HEADER = re.compile(rb"OVSDB JSON ([0-9]{1,9}) ([0-9a-f]{40})\n")
_MARK = b"\nOVSDB JSON "
_TOOL_S = 60.0


def prepare_file(path: Path) -> None:
    """Make the database file if it is missing; bring an older one to the present schema.

    The older one is kept beside it, with its version in its name. Raises BadInput when the file is
    damaged or of a later version, and NotAvailable when a tool or the disk fails. In both cases the
    file is as before. A process that is killed meanwhile leaves the old file or the new one.
    """
    if not path.exists():
        with _replacing(path) as new:
            _tool("create", str(new), str(SCHEMA))
            new.chmod(0o600)
        return
    check_file(path)
    if _tool("db-name", str(path)) != "ri2n":
        raise BadInput(f"{path}: is not a database of this program: move it away")
    found = _tool("db-version", str(path))
    if _tool("needs-conversion", str(path), str(SCHEMA)) == "no":
        return
    present = schema_version()
    if _numbers(found) > _numbers(present):
        raise BadInput(
            f"{path}: was written by a later version of this program (schema {found}, this one "
            f"knows {present}): install that version, or move the file away"
        )
    with _replacing(path, path.with_name(f"{path.name}.{found}")) as copy:
        shutil.copyfile(path, copy)
    with _replacing(path) as new:
        _tool("convert", str(path), str(SCHEMA), str(new))
        new.chmod(0o600)


def check_file(path: Path) -> None:
    """Raise BadInput when records of a database file are damaged, NotAvailable if it is unreadable.

    A last record that is incomplete is no damage: its writer was killed before it acknowledged
    anything. ovsdb-server would cut off all behind the first record that it cannot read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotAvailable(f"{path}: {error.strerror}") from None
    offset = 0
    while offset < len(data):
        match = _HEADER.match(data, offset)
        length = int(match[1]) if match is not None else 0
        body = data[match.end() : match.end() + length] if match is not None else b""
        digest = hashlib.sha1(body, usedforsecurity=False).hexdigest().encode()
        if match is None or len(body) != length or digest != match[2]:
            if offset and _is_unfinished(data[offset:]):
                return
            raise BadInput(
                f"{path}: is damaged at byte {offset}: put a backup in its place, or move it away "
                "to start without a memory"
            )
        offset = match.end() + len(body)


def _is_unfinished(tail: bytes) -> bool:
    """Whether the end of a file is a record that was not written to its end.

    It is the beginning of a record, perhaps with zeros where a file system had not written yet. A
    whole record with a wrong length in its header is damage.
    """
    if _MARK in tail:
        return False
    written = tail.rstrip(b"\0")
    match = _HEADER.match(written)
    if match is None:
        return len(written) < 64 and b"OVSDB JSON ".startswith(written[:11])
    return len(written) - match.end() < int(match[1]) and not _is_json(written[match.end() :])


def _is_json(text: bytes) -> bool:
    """Whether a text is a whole JSON object and its end of line. No beginning of that is one."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return text.endswith(b"\n")


def schema_version() -> str:
    """The version of the schema of this program."""
    return str(json.loads(SCHEMA.read_text(encoding="utf-8"))["version"])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@contextlib.contextmanager
def _replacing(path: Path, target: Path | None = None) -> Iterator[Path]:
    """A name beside `path` for a new file, which then gets the place of `target` in one step.

    `target` is `path` by default. What a killed process left under that name is removed.
    """
    target = target or path
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        yield new
        sync(new)
        new.rename(target)
    except OSError as error:
        raise NotAvailable(f"{target}: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)
        new.with_name(f".{new.name}.~lock~").unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Have a file and its name on the disk. Raises OSError."""
    for each in (path, path.parent):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _tool(*argv: str) -> str:
    """What `ovsdb-tool ARGV` prints. Raises NotAvailable with its message when it fails."""
    try:
        done = subprocess.run(
            ["ovsdb-tool", *argv], capture_output=True, text=True, timeout=_TOOL_S, check=False
        )
    except FileNotFoundError:
        raise NotAvailable("ovsdb-tool is missing: apt install openvswitch-common") from None
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"ovsdb-tool {argv[0]} does not end") from None
    if done.returncode != 0:
        raise NotAvailable(f"ovsdb-tool {argv[0]}: {' '.join(done.stderr.split())[-300:]}")
    return done.stdout.strip()
