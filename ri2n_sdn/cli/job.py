# SPDX-License-Identifier: Apache-2.0
"""`ri2n job`: begin and end jobs by the controller's order, and see what became of all jobs."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import (
    JsonOption,
    LabOption,
    SocketOption,
    console,
    number_option,
    print_answer,
    print_json,
)
from ri2n_sdn.cli.labs import jobs_socket
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
    "MaxRateOption",
    "MinRateOption",
    "NamedOption",
    "PathsOption",
    "PolicyOption",
    "ServiceOption",
    "TableOption",
    "app",
    "policy_of",
    "policy_text",
    "rates_text",
    "user_and_uid",
]

app = typer.Typer(no_args_is_help=True, help="Users' jobs and the paths that they have.")

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

PolicyOption = Annotated[
    str, typer.Option("--policy", help=f"What the job may use: {', '.join(KINDS)}.")
]
OptionalPolicyOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="KIND", help=f"What it may use: {', '.join(KINDS)}."),
]
NamedOption = Annotated[
    str | None,
    typer.Option("--named", metavar="NAME", help="The policy of this name (`ri2n policy ls`)."),
]
PathsOption = Annotated[
    str | None,
    typer.Option(
        "--paths", metavar="NAME,...", help="NETWORK, NETWORK/VLAN, vlan:VLAN, HOST:NIC or NIC."
    ),
]
TableOption = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="DSCP=NAME,...", help="Paths of packets with this DSCP."),
]
ServiceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--service", metavar="ADDR/PROTO/PORT", help="What an isolated job may reach; repeat it."
    ),
]
MinRateOption = Annotated[
    str | None, typer.Option("--min-rate", metavar="RATE", help="As 400M: what each host gets.")
]
MaxRateOption = Annotated[
    str | None, typer.Option("--max-rate", metavar="RATE", help="As 800M: the most of each host.")
]
NameArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]


@app.command()
def begin(
    name: NameArgument,
    hosts: Annotated[str, typer.Option(metavar="A,B,...", help="The hosts of the job.")],
    user: Annotated[
        str | None, typer.Option(help="Whose job it is: a name or a uid. Default: you.")
    ] = None,
    named: NamedOption = None,
    policy: OptionalPolicyOption = None,
    paths: PathsOption = None,
    table: TableOption = None,
    service: ServiceOption = None,
    min_rate: MinRateOption = None,
    max_rate: MaxRateOption = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends: +2h, or 2026-11-27T10:00.")
    ] = None,
    wait: Annotated[float, number_option("Wait until its paths are installed.", 0)] = 0.0,
    socket: SocketOption = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Order a job: its hosts mark the user's packets from now on, until `ri2n job end`.

    Its policy is `shared` unless --policy or --named says otherwise. On hosts with a job manager of
    their own, `job-begin` does the same (docs/jobs.md).
    """
    owner, uid = user_and_uid(user)
    job: dict[str, object] = {
        **{"id": name, "user": owner, "uid": uid, "hosts": list(parse_hosts(hosts))},
        **policy_of(policy, paths, table, service, min_rate, max_rate, named=named),
    }
    if until is not None:
        job["end_s"] = parse_time(until, time.time(), "--until")
    path = jobs_socket(socket, lab)
    answer = call(path, ops.JOB_BEGIN, job=job)["job"]
    if wait:
        answer = _await(path, name, wait)
    print_answer(answer, f"{name}: {_state(answer)}", as_json)


@app.command()
def end(name: NameArgument, socket: SocketOption = None, lab: LabOption = None) -> None:
    """End a job that the controller has ordered."""
    call(jobs_socket(socket, lab), ops.JOB_END, id=name)
    print(f"{name}: ended")


@app.command()
def move(
    name: NameArgument,
    named: NamedOption = None,
    policy: OptionalPolicyOption = None,
    paths: PathsOption = None,
    table: TableOption = None,
    service: ServiceOption = None,
    min_rate: MinRateOption = None,
    max_rate: MaxRateOption = None,
    back: Annotated[
        bool, typer.Option("--back", help="To the policy that the job's hosts declare.")
    ] = False,
    socket: SocketOption = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a job other paths, or another policy, while it runs.

    Without --policy and --named, its policy is `paths`.
    """
    if back:
        options = (named, policy, paths, table, service, min_rate, max_rate)
        if any(value not in (None, []) for value in options):
            raise BadInput("--back: says which policy it is: omit the other options")
        answer = call(jobs_socket(socket, lab), ops.JOB_MOVE, id=name, back=True)["job"]
    else:
        wanted = policy_of(
            policy, paths, table, service, min_rate, max_rate, named=named, default="paths"
        )
        answer = call(jobs_socket(socket, lab), ops.JOB_MOVE, id=name, job=wanted)["job"]
    print_answer(answer, f"{name}: {_state(answer)}", as_json)


@app.command("ls")
def list_jobs(
    socket: SocketOption = None, lab: LabOption = None, as_json: JsonOption = False
) -> None:
    """Show all jobs, those with a problem first."""
    jobs = call(jobs_socket(socket, lab), ops.JOB_LIST)["jobs"]
    columns = (
        *(*_JOB, POLICY, RATES),
        Column("lanes", written=comma_list),
        Column("since", "begin_s", time_text),
        Column("state", _state),
    )
    worst = {"refused": 0, "waiting": 1}

    def order(job: Job) -> tuple[int, float]:
        return worst.get(job["state"], 2), job["begin_s"]

    print_list(jobs, columns, as_json, "no jobs", order)


@app.command()
def show(
    name: NameArgument,
    socket: SocketOption = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one job: its state, its class on each host, and its paths."""
    job = call(jobs_socket(socket, lab), ops.JOB_SHOW, id=name)["job"]
    if as_json:
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
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    socket: SocketOption = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show jobs that have ended, the newest first, and why they ended."""
    jobs = call(jobs_socket(socket, lab), ops.JOB_HISTORY, user=user, limit=limit)["jobs"]
    columns = (
        *(*_JOB, POLICY),
        Column("from", "begin_s", time_text),
        Column("to", "end_s", time_text),
        Column("why it ended", "why"),
    )
    print_list(jobs, columns, as_json, "no job has ended yet")


def policy_of(
    kind: str | None,
    paths: str | None,
    tables: list[str] | None = None,
    services: list[str] | None = None,
    min_rate: str | None = None,
    max_rate: str | None = None,
    *,
    named: str | None = None,
    default: str = "shared",
) -> dict[str, object]:
    """The keys of a request that say which policy: its name, or all of it with `default` as kind.

    Raises BadInput.
    """
    if named is None:
        by_dscp = (parse_dscp_table(text, "--table") for text in tables or ())
        result = {
            "policy": one_of(default if kind is None else kind, KINDS, "--policy"),
            "paths": list(parse_paths(paths, "--paths")) if paths is not None else None,
            "tables": [{"dscp": table.dscp, "paths": list(table.paths)} for table in by_dscp],
            "services": [service_text(parse_service(each, "--service")) for each in services or ()],
            "min_rate_bps": parse_rate(min_rate, "--min-rate") if min_rate is not None else None,
            "max_rate_bps": parse_rate(max_rate, "--max-rate") if max_rate is not None else None,
        }
        return {key: value for key, value in result.items() if value not in (None, [])}
    options = {"--policy": kind, "--paths": paths, "--table": tables, "--service": services}
    options |= {"--min-rate": min_rate, "--max-rate": max_rate}
    both = [option for option, value in options.items() if value not in (None, [])]
    if both:
        raise BadInput(f"--named: the named policy says what {', '.join(both)} would: omit one")
    return {"named": policy_name(named, "--named")}


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
    deadline_s = time.monotonic() + wait_s
    while True:
        job = call(path, ops.JOB_SHOW, id=name)["job"]
        if job["state"] == "installed":
            return job
        if job["state"] == "refused":
            raise BadInput(f"{name}: refused: {job['why']}")
        if time.monotonic() > deadline_s:
            raise NotAvailable(f"{name}: not installed after {wait_s:g} s: {job['why']}")
        time.sleep(_POLL_S)


def _state(job: Job) -> str:
    return f"{job['state']}: {job['why']}" if job["why"] else job["state"]


POLICY, RATES = Column("policy", policy_text), Column("rates", rates_text)
"""The columns of a policy, in tables of jobs and of policies."""
