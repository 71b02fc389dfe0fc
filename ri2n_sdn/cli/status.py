# SPDX-License-Identifier: Apache-2.0
"""`ri2n status` and `explain`: what the controller knows, and where a flow goes."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ri2n_sdn.cli.common import console, print_json
from ri2n_sdn.cli.labs import Asked
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.choices import DATAPATHS, HASH_BUILDS, one_of
from ri2n_sdn.contract.limits import MAX_DSCP
from ri2n_sdn.contract.said import Line, exit_code
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.pipeline.dphash import PROTOCOLS

__all__ = ["explain", "status"]


def status(at: Asked) -> int:
    """Show what is wrong, then hosts, NICs, networks and the active pairs with their shares.

    Exit code, for monitoring: 0 when nothing is wrong, 1 for warnings, 2 when something is bad or
    no controller answers.
    """
    answer = call(at.path, ops.STATUS)
    if at.as_json:
        print_json(answer)
    else:
        from ri2n_sdn.cli.views import status_view

        try:
            shown = status_view(answer, time.time())
        except (KeyError, TypeError, ValueError) as error:
            raise NotAvailable(
                f"the controller's answer is of another version (key {error}); use --json"
            ) from None
        console().print(shown)
    # An old controller's answer has no state, and perhaps no problems.
    problems = answer["state"]["problems"].values() if "state" in answer else answer.get("problems")
    return exit_code(map(Line.of, problems or ()))


def explain(
    src: Annotated[str, typer.Argument(help="Sending host, by name.")],
    dst: Annotated[str, typer.Argument(help="Receiving host, by name.")],
    *,
    proto: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(PROTOCOLS)} or a number: then the flow's NIC is named too."),
    ] = None,
    sport: Annotated[int, typer.Option(min=0, max=65535, help="Source port (ICMP: type).")] = 0,
    dport: Annotated[
        int, typer.Option(min=0, max=65535, help="Destination port (ICMP: code).")
    ] = 0,
    src_ip: Annotated[
        str | None,
        typer.Option(help="Source address. Default: the sender's, where it has only one."),
    ] = None,
    dst_ip: Annotated[
        str | None,
        typer.Option(help="Destination address. Default: the receiver's, where it has only one."),
    ] = None,
    hash_build: Annotated[
        str,
        typer.Option(
            "--hash", help="How the sender's OVS was compiled: portable (Debian) or sse42."
        ),
    ] = "portable",
    datapath: Annotated[
        str | None,
        typer.Option(
            help="The sender's datapath, if the controller does not know: netdev or system."
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="For packets of this job; see `ri2n job ls`.")
    ] = None,
    dscp: Annotated[
        int | None, typer.Option(min=0, max=MAX_DSCP, help="With --job: the packets' DSCP.")
    ] = None,
    at: Asked,
) -> None:
    """Say which paths a pair of hosts has and, for a flow, which NIC it takes and why."""
    one_of(hash_build, HASH_BUILDS, "--hash")
    if datapath is not None:
        one_of(datapath, DATAPATHS, "--datapath")
    protocol = _protocol(proto)
    if protocol is None and (sport or dport or src_ip or dst_ip):
        raise BadInput("--proto is missing: a flow is a protocol, two addresses and two ports")
    flow: dict[str, object] | None = None
    if protocol is not None:
        ends = {"src_ip": src_ip, "dst_ip": dst_ip}
        flow = {"protocol": protocol, "sport": sport, "dport": dport, **ends, "hash": hash_build}
        flow["datapath"] = datapath
    if dscp is not None and job is None:
        raise BadInput("--dscp: only with --job, whose path tables it chooses among")
    answer = call(at.path, ops.EXPLAIN, src=src, dst=dst, flow=flow, job=job, dscp=dscp)
    if at.as_json:
        print_json(answer)
        return
    from ri2n_sdn.cli.views import helper_table, path_table

    out = console()
    for line in answer["why"]:
        out.print(line, highlight=False)
    if answer["kind"] == "managed":
        for shown in (path_table(answer["paths"]), *helper_table([answer])):
            out.print(shown)


def _protocol(text: str | None) -> int | None:
    if text is None:
        return None
    if text.lower() in PROTOCOLS:
        return PROTOCOLS[text.lower()]
    if text.isascii() and text.isdigit() and int(text) <= 255:
        return int(text)
    raise BadInput(
        f"--proto: unknown {text!r}; choose from {', '.join(PROTOCOLS)} or give a number up to 255"
    )
