# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan check`, `use`, `release` and `record`: commands that need a running controller."""

from __future__ import annotations

import csv
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import note, number_option, os_errors_of, print_json
from ri2n_sdn.cli.labs import Asked, Where
from ri2n_sdn.client import answered, call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.contract.answers import Row


__all__ = ["check", "record", "release", "use"]

HEADER = ["sender", "receiver", "vlan"]
CHECK_S = 600.0
# Open vSwitch updates its counters every 0.25 to 0.5 s.
COUNTED_S = 1.0

Owner = Annotated[str, typer.Option(help="Whose table it is, for example a job's number.")]


def check(at: Asked) -> None:
    """Send probes through every VLAN and say which ports, cables and switches are not as declared.

    Exit code: 0 when all is as declared, else 1.
    """
    answer = call(at.path, ops.VLAN_CHECK, timeout_s=CHECK_S)
    if at.as_json:
        print_json(answer)
    else:
        for text in answer["findings"]:
            print(text)
        if not answer["findings"]:
            print(f"all is as declared ({answer['probes']} probes)")
    if answer["findings"]:
        raise typer.Exit(1)


def use(
    table: Annotated[
        Path,
        typer.Argument(help="A file of `sender,receiver,vlan`, as ri2n vlan assign -o writes it."),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A command; the table is in force while it runs, and no longer."),
    ] = None,
    *,
    owner: Owner = "operator",
    at: Where,
) -> None:
    """Give pairs of hosts the VLANs of a table, until `ri2n vlan release` or a command's end."""
    rows = _read(table)
    path = at.path
    if not command:
        call(path, ops.VLAN_TABLE, owner=owner, pairs=rows)
        note(
            f"{len(rows)} pairs have the VLANs of {table}; `ri2n vlan release --owner {owner}` "
            "ends this"
        )
        return
    # The controller ends the table with the connection.
    with answered(path, ops.VLAN_TABLE, owner=owner, pairs=rows, lease=True):
        code = _run(command)
    raise typer.Exit(code)


def release(*, owner: Owner = "operator", at: Where) -> None:
    """End a table: its pairs get back the VLANs that they had before."""
    call(at.path, ops.VLAN_TABLE, owner=owner, pairs=[])


def record(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file: `sender,receiver,bytes`.")
    ],
    command: Annotated[
        list[str] | None, typer.Argument(help="A command; what is sent while it runs is recorded.")
    ] = None,
    *,
    seconds: Annotated[float | None, number_option("How long, without a command.", 1, None)] = None,
    at: Where,
) -> None:
    """Record what every pair of hosts sends, for the table `profile` or for ri2n vlan assign."""
    if bool(command) == (seconds is not None):
        raise BadInput("--seconds: give either --seconds or a command to wait for")
    import numpy as np

    from ri2n_sdn.vlan.matrix import TrafficMatrix, write_matrix

    path = at.path
    before, began_s = call(path, ops.TRAFFIC), time.monotonic()
    code = 0
    if command:
        code = _run(command)
    else:
        time.sleep(seconds or 0.0)
    elapsed_s = time.monotonic() - began_s
    # Wait until the last packets have been counted.
    time.sleep(before["hbspan_s"] + COUNTED_S)
    start = {(sender, receiver): count for sender, receiver, count in before["pairs"]}
    rows = [
        (s, r, count - start.get((s, r), 0)) for s, r, count in call(path, ops.TRAFFIC)["pairs"]
    ]
    sent = [row for row in rows if row[2] > 0]
    if not sent:
        raise NotAvailable("no pair of hosts sent anything")
    counts = np.array([count for _, _, count in sent], dtype=np.int64)
    write_matrix(output, TrafficMatrix(tuple((s, r) for s, r, _ in sent), counts, elapsed_s))
    note(f"{output}: {len(sent)} pairs, {elapsed_s:.1f} s")
    raise typer.Exit(code)


def _run(command: list[str]) -> int:
    """Run a command and return its exit code, as a shell gives it. Raises BadInput."""
    with os_errors_of(command[0]):
        code = subprocess.run(command, check=False).returncode
    return code if code >= 0 else 128 - code


def _read(path: Path) -> list[Row]:
    """The rows of a table's file. Raises BadInput that names the file and the line."""
    with os_errors_of(path):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise BadInput(f"{path}: is not UTF-8 text") from None
    rows: list[Row] = []
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and line[0] != "#"
    ]
    if not lines or next(csv.reader([lines[0][1]])) != HEADER:
        raise BadInput(f"{path}: must begin with the line {','.join(HEADER)}")
    for number, line in lines[1:]:
        words = next(csv.reader([line]))
        if len(words) != 3 or not words[2].isascii() or not words[2].isdigit():
            raise BadInput(f"{path}:{number}: must be `sender,receiver,vlan`, is {line[:60]!r}")
        rows.append((words[0], words[1], int(words[2])))
    if not rows:
        raise BadInput(f"{path}: has no pairs")
    return rows
