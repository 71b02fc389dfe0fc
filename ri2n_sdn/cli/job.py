# SPDX-License-Identifier: Apache-2.0
"""`ri2n job`: begin and end jobs by the controller's order, and see what became of all jobs."""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import console, number_option, print_answer, print_json, tries
from ri2n_sdn.cli.labs import Asked, Where
from ri2n_sdn.cli.options import Group
from ri2n_sdn.cli.tables import Column, comma_list, or_dash, print_list, table
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.choices import KINDS, one_of
from ri2n_sdn.contract.names import policy_name
from ri2n_sdn.contract.units import parse_rate, parse_time, table_rate, time_text
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.jobs.text import (
    parse_dscp_table,
    parse_hosts,
    parse_paths,
    parse_service,
    service_text,
)

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import Job, PolicyOf

__all__ = [
    "POLICY",
    "RATES",
    "NamedOption",
    "PathsOption",
    "PolicyOptions",
    "app",
    "policy_of",
    "policy_text",
    "rates_text",
    "user_and_uid",
]

app = Group("Users' jobs and the paths that they have.")

_POLL_S = 0.05

_JOB = (Column("job", "id"), Column("user"), Column("hosts", written=", ".join))
_ROUTES = (
    Column("from", "src"),
    Column("to", "dst"),
    Column("DSCP", "dscp", lambda dscp: "any" if dscp is None else str(dscp)),
    Column("own NIC", "own"),
    Column("peer's NIC", "peer"),
    Column("network"),
    Column("VLAN", "vlan", or_dash),
    Column("alive", written=lambda alive: "yes" if alive else "no"),
)

KindOption = Annotated[
    str | None, typer.Option(metavar="KIND", help=f"What it may use: {', '.join(KINDS)}.")
]
NamedOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The policy of this name (`ri2n policy ls`).")
]
PathsOption = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="NETWORK, NETWORK/VLAN, vlan:VLAN, HOST:NIC or NIC."),
]
NameArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]


@dataclass(frozen=True)
class PolicyOptions:
    """What a policy gives, besides its kind."""

    paths: PathsOption = None
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="DSCP=NAME,...", help="Paths of packets with this DSCP."),
    ] = None
    service: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDR/PROTO/PORT", help="What an isolated job may reach; repeat it."),
    ] = None
    min_rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="As 400M: what each host gets.")
    ] = None
    max_rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="As 800M: the most of each host.")
    ] = None


@app.command()
def begin(
    name: NameArgument,
    hosts: Annotated[str, typer.Option(metavar="A,B,...", help="The hosts of the job.")],
    *,
    user: Annotated[
        str | None, typer.Option(help="Whose job it is: a name or a uid. Default: you.")
    ] = None,
    named: NamedOption = None,
    policy: KindOption = None,
    given: PolicyOptions,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends: +2h, or 2026-11-27T10:00.")
    ] = None,
    wait: Annotated[float, number_option("Wait until its paths are installed.", 0)] = 0.0,
    at: Asked,
) -> None:
    """Order a job: its hosts mark the user's packets from now on, until `ri2n job end`.

    Its policy is `shared` unless --policy or --named says otherwise. On hosts with a job manager of
    their own, `job-begin` does the same (docs/jobs.md).
    """
    owner, uid = user_and_uid(user)
    job: dict[str, object] = {
        **{"id": name, "user": owner, "uid": uid, "hosts": list(parse_hosts(hosts))},
        **policy_of(policy, given, named),
    }
    if until is not None:
        job["end_s"] = parse_time(until, time.time(), "--until")
    answer = call(at.jobs, ops.JOB_BEGIN, job=job)["job"]
    if wait:
        answer = _await(at.jobs, name, wait)
    print_answer(answer, f"{name}: {_state(answer)}", at.as_json)


@app.command()
def end(name: NameArgument, at: Where) -> None:
    """End a job that the controller has ordered."""
    call(at.jobs, ops.JOB_END, id=name)
    print(f"{name}: ended")


@app.command()
def move(
    name: NameArgument,
    *,
    named: NamedOption = None,
    policy: KindOption = None,
    given: PolicyOptions,
    back: Annotated[
        bool, typer.Option("--back", help="To the policy that the job's hosts declare.")
    ] = False,
    at: Asked,
) -> None:
    """Give a job other paths, or another policy, while it runs.

    Without --policy and --named, its policy is `paths`.
    """
    if back:
        if any(value not in (None, []) for value in (named, policy, *astuple(given))):
            raise BadInput("--back: says which policy it is: omit the other options")
        answer = call(at.jobs, ops.JOB_MOVE, id=name, back=True)["job"]
    else:
        wanted = policy_of(policy, given, named, "paths")
        answer = call(at.jobs, ops.JOB_MOVE, id=name, job=wanted)["job"]
    print_answer(answer, f"{name}: {_state(answer)}", at.as_json)


@app.command("ls")
def list_jobs(at: Asked) -> None:
    """Show all jobs, those with a problem first."""
    jobs = call(at.jobs, ops.JOB_LIST)["jobs"]
    columns = (
        *(*_JOB, POLICY, RATES),
        Column("lanes", written=comma_list),
        Column("since", "begin_s", time_text),
        Column("state", _state),
    )
    worst = {"refused": 0, "waiting": 1}

    def order(job: Job) -> tuple[int, float]:
        return worst.get(job["state"], 2), job["begin_s"]

    print_list(jobs, columns, at.as_json, "no jobs", order)


@app.command()
def show(name: NameArgument, at: Asked) -> None:
    """Show one job: its state, its class on each host, and its paths."""
    job = call(at.jobs, ops.JOB_SHOW, id=name)["job"]
    if at.as_json:
        print_json(job)
        return
    by = "ordered" if job["source"] == "order" else "begun by its hosts"
    lines = [
        f"{job['id']}: {_state(job)}",
        f"of {job['user']} (uid {job['uid']}), {policy_text(job)}, {by} at "
        f"{time_text(job['begin_s'])}, ends at {time_text(job['end_s'])}",
    ]
    if moved := job["moved"]:
        declared = policy_text(moved["declared"]) if moved["declared"] else "nothing"
        lines.append(
            f"moved by {moved['by']} at {time_text(moved['at_s'])}; its hosts declare {declared} "
            f"(`ri2n job move {job['id']} --back`)"
        )
    for host in sorted({*job["hosts"], *job["failed"]}):
        number = job["classes"].get(host)
        text = f"{host}: class {number}" if number is not None else f"{host}: has not begun it"
        if host in job["failed"]:
            text += f", and cannot carry out the order: {job['failed'][host]}"
        lines.append(text)
    if not job["routes"]:
        lines.append("its packets go as everybody's")
    out = console()
    for line in lines:
        out.print(line, highlight=False)
    if job["routes"]:
        out.print(table(_ROUTES, job["routes"]))


@app.command()
def history(
    *,
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    at: Asked,
) -> None:
    """Show jobs that have ended, the newest first, and why they ended."""
    jobs = call(at.jobs, ops.JOB_HISTORY, user=user, limit=limit)["jobs"]
    columns = (
        *(*_JOB, POLICY),
        Column("from", "begin_s", time_text),
        Column("to", "end_s", time_text),
        Column("why it ended", "why"),
    )
    print_list(jobs, columns, at.as_json, "no job has ended yet")


def policy_of(
    kind: str | None, given: PolicyOptions, named: str | None = None, default: str = "shared"
) -> dict[str, object]:
    """The keys of a request that say which policy: its name, or all of it with `default` as kind.

    Raises BadInput.
    """
    if named is not None:
        options = {"policy": kind, **asdict(given)}
        both = [
            f"--{option.replace('_', '-')}"
            for option, value in options.items()
            if value not in (None, [])
        ]
        if both:
            raise BadInput(f"--named: the named policy says what {', '.join(both)} would: omit one")
        return {"named": policy_name(named, "--named")}
    paths, least, most = given.paths, given.min_rate, given.max_rate
    by_dscp = (parse_dscp_table(text, "--table") for text in given.table or ())
    services = (parse_service(text, "--service") for text in given.service or ())
    result = {
        "policy": one_of(default if kind is None else kind, KINDS, "--policy"),
        "paths": list(parse_paths(paths, "--paths")) if paths is not None else None,
        "tables": [{"dscp": table.dscp, "paths": list(table.paths)} for table in by_dscp],
        "services": [service_text(service) for service in services],
        "min_rate_bps": parse_rate(least, "--min-rate") if least is not None else None,
        "max_rate_bps": parse_rate(most, "--max-rate") if most is not None else None,
    }
    return {key: value for key, value in result.items() if value not in (None, [])}


def user_and_uid(user: str | None) -> tuple[str, int]:
    """The name and the uid of a user, by default of the one who runs this. Raises BadInput."""
    if user is None or user.isdecimal():
        uid = os.getuid() if user is None else int(user)
        try:
            return pwd.getpwuid(uid).pw_name, uid
        except (KeyError, OverflowError):
            return str(uid), uid
    try:
        return user, pwd.getpwnam(user).pw_uid
    except KeyError:
        raise BadInput(f"--user {user}: there is no such user here") from None


def policy_text(job: PolicyOf) -> str:
    """A policy's kind and its tables of paths, for people."""
    parts: list[str] = [job["policy"]]
    if job["paths"]:
        parts.append(",".join(job["paths"]))
    parts += [f"DSCP {table['dscp']}: {','.join(table['paths'])}" for table in job["tables"]]
    return "; ".join(parts)


def rates_text(job: PolicyOf) -> str:
    """A policy's rates for people; `-` when it has none."""
    least, most = job["min_rate_bps"], job["max_rate_bps"]
    parts = [f"at least {table_rate(least)}"] if least is not None else []
    parts += [f"at most {table_rate(most)}"] if most is not None else []
    return ", ".join(parts) or "-"


def _await(path: Path, name: str, wait_s: float) -> Job:
    """The job once it is installed or refused. Raises NotAvailable when that takes too long."""
    for _ in tries(wait_s, _POLL_S):
        job = call(path, ops.JOB_SHOW, id=name)["job"]
        if job["state"] == "installed":
            return job
        if job["state"] == "refused":
            raise BadInput(f"{name}: refused: {job['why']}")
    raise NotAvailable(f"{name}: not installed after {wait_s:g} s: {job['why']}")


def _state(job: Job) -> str:
    return f"{job['state']}: {job['why']}" if job["why"] else job["state"]


POLICY, RATES = Column("policy", policy_text), Column("rates", rates_text)
"""The columns of a policy, in tables of jobs and of policies."""
