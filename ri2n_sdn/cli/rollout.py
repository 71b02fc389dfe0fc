# SPDX-License-Identifier: Apache-2.0
"""`ri2n host rollout`: run a command for host after host, and stop when one is worse off."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import number_option, state_of, tries
from ri2n_sdn.cli.host import Change, app, confirm, host_named
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.contract.answers import KnownHost

__all__ = ["app", "batches", "rollout"]

_LOOK_S = 0.25
_MAX_OUTPUT_LINES, _MAX_OUTPUT_BYTES = 20, 1 << 16


@app.command()
def rollout(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...",
            help="What to run here for each host; {host} and {address} stand for it.",
        ),
    ],
    *,
    only: Annotated[str, typer.Option(metavar="HOST,...", help="These hosts alone.")] = "",
    skip: Annotated[str, typer.Option(metavar="HOST,...", help="Not these hosts.")] = "",
    batch: Annotated[
        str, typer.Option(metavar="N|N%", help="So many hosts at once: 1, 8, 25%, ...")
    ] = "1",
    settle: Annotated[float, number_option("A host must be well again after this.", 1)] = 300.0,
    calm: Annotated[float, number_option("And must stay well for this.", 0)] = 5.0,
    limit: Annotated[float, number_option("The command may take so long.", 1)] = 600.0,
    at: Change,
) -> None:
    """Run a command for each host, a few at a time, and wait until these are well again.

    It stops at the first host whose command fails, or that is worse off than before, and says how
    to go on. Hosts that run jobs are refused, unless --force or --skip is given. Example:

    ri2n host rollout -- ssh root@{address} 'apt-get install -y ri2n-host'
    """
    path = at.path
    hosts = call(path, ops.HOST_LIST)["hosts"]
    chosen = _chosen(hosts, only, skip)
    groups = batches([host["name"] for host in chosen], batch)
    busy = [host for host in chosen if host["jobs"]]
    for number, group in enumerate(groups, 1):
        print(f"batch {number} of {len(groups)}: {', '.join(group)}")
    print(f"each: {shlex.join(command)}")
    if busy and not at.force:
        host = busy[0]
        raise BadInput(
            f"{host['name']}: {', '.join(host['jobs'])} use it; wait for them, or give "
            f"--skip {','.join(each['name'] for each in busy)} or --force"
        )
    if at.dry_run:
        return
    confirm(f"Run it for {len(chosen)} hosts?", at.yes)
    before, _ = _well(path)
    done: list[str] = []
    for group in groups:
        try:
            _run_for(path, group, command, limit, at.force)
            _await_well(path, group, before, settle, calm)
        except (BadInput, NotAvailable) as error:
            skipped = [*done, *(name for name in skip.split(",") if name)]
            again = f"; go on with --skip {','.join(skipped)}" if skipped else ""
            raise NotAvailable(f"{error}; {len(done)} hosts are done{again}") from None
        done += group
        print(f"done: {', '.join(group)} ({len(done)} of {len(chosen)})", flush=True)


def batches(names: Sequence[str], size: str) -> list[list[str]]:
    """The hosts in groups of `size`, a number or a share of all of them. Raises BadInput."""
    number = size.removesuffix("%")
    if not (number.isascii() and number.isdecimal() and int(number) > 0):
        raise BadInput(f"--batch {size}: must be a number of hosts, or a share as 25%")
    count = int(number)
    if size.endswith("%"):
        if count > 100:
            raise BadInput(f"--batch {size}: is more than all hosts")
        count = max(1, len(names) * count // 100)
    return [list(names[at : at + count]) for at in range(0, len(names), count)]


def _chosen(hosts: list[KnownHost], only: str, skip: str) -> list[KnownHost]:
    """The hosts of the options, in order of names. Raises BadInput when one cannot be reached."""
    wanted = [name for name in only.split(",") if name]
    left_out = {name for name in skip.split(",") if name}
    for name in (*wanted, *left_out):
        host_named(hosts, name)
    chosen = [
        host
        for host in sorted(hosts, key=lambda each: each["name"])
        if (not wanted or host["name"] in wanted) and host["name"] not in left_out
    ]
    if not chosen:
        raise BadInput("--only, --skip: no host is left")
    away = [host["name"] for host in chosen if not host["connected"]]
    if away:
        raise BadInput(f"{', '.join(away)}: away; bring them back, or give --skip {','.join(away)}")
    return chosen


def _run_for(
    path: Path, group: Sequence[str], command: Sequence[str], limit_s: float, force: bool
) -> None:
    """Run the command for the hosts of a group at once. Raises NotAvailable when it fails."""
    hosts = call(path, ops.HOST_LIST)["hosts"]
    for name in group:
        host = host_named(hosts, name)
        if host["jobs"] and not force:  # they have begun meanwhile
            raise BadInput(f"{name}: {', '.join(host['jobs'])} use it now")

    def run(name: str) -> str | None:
        address = host_named(hosts, name)["address"] or name
        words = [each.replace("{host}", name).replace("{address}", address) for each in command]
        try:
            code, said = _run_command(words, limit_s)
        except OSError as error:
            return f"{words[0]}: {error.strerror}"
        for line in said.splitlines()[-_MAX_OUTPUT_LINES:]:
            print(f"{name}: {''.join(c if c.isprintable() else '?' for c in line)}", flush=True)
        if code is None:
            return f"{name}: {words[0]} has not ended within {limit_s:g} s"
        return None if code == 0 else f"{name}: {words[0]} exits with {code}"

    with ThreadPoolExecutor(max_workers=len(group)) as pool:
        failures = [failure for failure in pool.map(run, group) if failure is not None]
    if failures:
        raise NotAvailable("; ".join(failures))


def _run_command(words: Sequence[str], limit_s: float) -> tuple[int | None, str]:
    """(exit code, the end of what it printed) of a command. The code is None if it was ended.

    What a host says may have no end, so only the last part is kept. Programs that the command has
    left behind are not waited for. Raises OSError when the command cannot be started.
    """
    until_s = time.monotonic() + limit_s
    tail = b""
    with (
        subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdout is not None
        code: int | None = None
        selector.register(process.stdout, selectors.EVENT_READ)
        try:
            while (left_s := until_s - time.monotonic()) > 0:
                ended = process.poll() is not None  # what it has said before can be read by now
                if selector.select(min(_LOOK_S, left_s)):
                    part = os.read(process.stdout.fileno(), 1 << 16)
                    if not part:
                        break
                    tail = (tail + part)[-_MAX_OUTPUT_BYTES:]
                elif ended:
                    break
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(max(0.0, until_s - time.monotonic()))
        finally:
            process.kill()
    return code, tail.decode(errors="replace")


def _well(path: Path) -> tuple[set[tuple[str, str]], bool]:
    """(what works now, whether all has settled): hosts, as (name, ""), and their NICs."""
    state = state_of(path)
    works = set()
    for name, host in state["hosts"].items():
        if host["connected"]:
            works.add((name, ""))
            works |= {
                (name, own) for own, nic in host["nics"].items() if nic["up"] and nic["alive"]
            }
    return works, bool(state["controller"]["settled"])


def _await_well(
    path: Path, group: Sequence[str], before: set[tuple[str, str]], settle_s: float, calm_s: float
) -> None:
    """Wait until all that worked `before` works again on these hosts, for `calm_s` on end."""
    well_since_s = math.inf
    new: list[str] = []
    for _ in tries(settle_s, _LOOK_S):
        try:
            works, settled = _well(path)
            lost = sorted(each for each in before - works if each[0] in group)
            new = [
                f"{name}: {nic} does not work any more" if nic else f"{name} is away"
                for name, nic in lost
            ] + ([] if settled else ["it has not settled"])
        except NotAvailable as error:  # the controller may be what is rolled out
            new = [str(error)]
        now_s = time.monotonic()
        well_since_s = math.inf if new else min(well_since_s, now_s)
        if now_s - well_since_s >= calm_s:
            return
    raise NotAvailable(
        f"{', '.join(group)}: not well within {settle_s:g} s: "
        f"{'; '.join(new[:5]) or 'it changes again and again'}"
    )
