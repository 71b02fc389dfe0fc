# SPDX-License-Identifier: Apache-2.0
"""`ri2n store`: take the controller's memory out of its folder, and put it into another one."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ri2n_sdn.cli.common import JsonOption, os_errors_of, print_answer
from ri2n_sdn.cli.examined import STATE_DIR
from ri2n_sdn.cli.host import DryRun, Yes, confirm
from ri2n_sdn.cli.options import Group
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.store.files import check_file, prepare_file, sync

__all__ = ["app", "contents", "take_name"]

app = Group("The controller's memory: take it with you, and look into it.")

StateDir = Annotated[
    Path,
    typer.Option(metavar="DIR", envvar="RI2N_STATE_DIR", help="The controller's folder."),
]

NAME = "ri2n.db"
_TOOL_S = 60.0
# AT_FDCWD and RENAME_NOREPLACE of Linux.
_HERE, _NO_REPLACE = -100, 1
# What people ask for, by table, and the column that names a row.
_SHOWN = {
    **{"Host": "name", "Network": "name", "Job": "id", "Reservation": "id", "Policy": "name"},
    **{"Right": "user", "Token": "name", "History": "id"},
}


@app.command("show")
def show(
    file: Annotated[
        Path | None, typer.Argument(help="An exported file. Default: the controller's own.")
    ] = None,
    state_dir: StateDir = STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Say what is remembered: how many hosts, jobs, reservations, rights and tokens."""
    found = contents(file or state_dir / NAME)
    print_answer(found, _summary(found), as_json)


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(help="The file to write. It must not be there yet.")],
    state_dir: StateDir = STATE_DIR,
    dry_run: DryRun = False,
) -> None:
    """Write what the controller remembers into one file, which its owner alone can read.

    The controller may run; what it learns later is not in the file. There are hashes of tokens in
    it, but no token.
    """
    source = state_dir / NAME
    if os.path.lexists(file):
        raise BadInput(f"{file}: is there already")
    with _copy(source, file.parent) as copy:
        found = contents(copy)
        print(f"{file}: {_summary(found)}")
        if not dry_run:
            _into_place(copy, file, replace=False)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A file of `ri2n store export`.")],
    state_dir: StateDir = STATE_DIR,
    force: Annotated[
        bool, typer.Option("--force", help="Also in place of a memory that is there.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Let the controller of this machine begin with what another one remembers.

    It is refused while a controller uses the folder and, without `--force`, when there is another
    memory; that is kept beside the new one. To import one file twice is no error.
    """
    target = state_dir / NAME
    if not dry_run:
        with os_errors_of(state_dir, NotAvailable):
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _folder(state_dir), _copy(file, state_dir if state_dir.is_dir() else None) as copy:
        try:
            prepare_file(copy)  # so that a file that cannot be used is refused here
            found = contents(copy)
        except BadInput as error:
            raise BadInput(str(error).replace(str(copy), str(file))) from None
        former = contents(target) if target.exists() else None
        if former == found and _rows(target) == _rows(copy):
            print(f"{target}: has all of this already; there is nothing to do")
            return
        kept = None
        if former is not None:
            if not force and any(former[table] for table in _SHOWN):
                raise BadInput(
                    f"{target}: has a memory of its own ({_summary(former)}); give --force to "
                    "replace it, and it is kept beside the new one"
                )
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            kept = target.with_name(f"{NAME}.before-{stamp}-{secrets.token_hex(2)}")
        print(f"{target}: {_summary(found)}" + (f"; the former one is {kept}" if kept else ""))
        if dry_run:
            return
        confirm("Put it there?", yes)
        owner = state_dir.stat()
        if os.geteuid() == 0:
            os.chown(copy, owner.st_uid, owner.st_gid)
        with os_errors_of(target, NotAvailable):
            if kept is not None:
                os.link(target, kept)
            _into_place(copy, target, replace=True)


def contents(file: Path) -> dict[str, list[str]]:
    """The names of what a store's file has, by table.

    Raises BadInput when it is damaged or no such file, NotAvailable when it cannot be read.
    """
    return {
        table: sorted(str(row[column]) for row in rows)
        for (table, column), rows in zip(_SHOWN.items(), _rows(file), strict=True)
    }


def _rows(file: Path) -> list[list[Any]]:
    """The rows of each table of _SHOWN, without what differs from file to file."""
    check_file(file)
    asked = ["ri2n", *({"op": "select", "table": table, "where": []} for table in _SHOWN)]
    try:
        done = subprocess.run(
            ["ovsdb-tool", "query", str(file), json.dumps(asked)],
            capture_output=True,
            text=True,
            timeout=_TOOL_S,
            check=False,
        )
    except FileNotFoundError:
        raise NotAvailable("ovsdb-tool is missing: apt install openvswitch-common") from None
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"{file}: ovsdb-tool does not end") from None
    try:
        answers: list[Any] = json.loads(done.stdout)
        found: list[list[Any]] = [
            sorted(
                (
                    {key: value for key, value in row.items() if not key.startswith("_")}
                    for row in answer["rows"]
                ),
                key=json.dumps,
            )
            for answer in answers[: len(_SHOWN)]
            if answer is not None and "rows" in answer
        ]
    except (ValueError, KeyError, AttributeError, TypeError):
        why = " ".join(done.stderr.split())[-200:] or "its rows cannot be read"
        raise BadInput(f"{file}: is no store of this program: {why}") from None
    # An older file has no rows of tables that were added at the end of the list.
    return found + [[] for _ in range(len(_SHOWN) - len(found))]


def _summary(found: dict[str, list[str]]) -> str:
    words = {"History": "ended jobs", "Policy": "policies"}
    return ", ".join(
        f"{len(names)} {words.get(table, table.lower() + 's')}" for table, names in found.items()
    )


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """Have the controller's folder, as a controller has it. Raises NotAvailable while one does."""
    lock = folder / "lock"
    if not folder.is_dir() or not lock.exists():
        yield
        return
    with lock.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotAvailable(
                f"{folder}: a controller uses it; stop it first: systemctl stop ri2n-controller"
            ) from None
        yield


@contextlib.contextmanager
def _copy(source: Path, folder: Path | None) -> Iterator[Path]:
    """A copy of a store's file in `folder` (None: anywhere), without an incomplete last record."""
    check_file(source)
    with os_errors_of(folder, NotAvailable):
        # ovsdb-tool makes files beside it, which go with the folder.
        made = tempfile.TemporaryDirectory(prefix=".ri2n-store-", dir=folder)
    with made:
        copy = Path(made.name) / NAME
        with os_errors_of(folder, NotAvailable):
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            shutil.copyfile(source, copy)
        yield copy


def _into_place(copy: Path, target: Path, *, replace: bool) -> None:
    """Give a copy its name, whole and on the disk. Without `replace` no file is replaced.

    A name is taken in one step: who is killed leaves the whole file there, or nothing.
    """
    sync(copy)
    if replace:
        copy.replace(target)
    else:
        with os_errors_of(target, NotAvailable):
            try:
                take_name(copy, target)
            except FileExistsError:
                raise BadInput(f"{target}: is there already") from None
    sync(target)


def take_name(copy: Path, target: Path) -> None:
    """Give a copy a name that nothing has. Raises OSError; FileExistsError where something has it.

    File systems without links, such as those of USB sticks, can rename without replacing; those of
    the network that cannot do that have links.
    """
    try:
        os.link(copy, target)
    except FileExistsError:
        raise
    except OSError:
        # Python's own functions replace what has the name.
        libc = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(copy), os.fsencode(target)
        if libc.renameat2(_HERE, names[0], _HERE, names[1], _NO_REPLACE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(target)) from None
