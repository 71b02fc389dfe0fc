# SPDX-License-Identifier: Apache-2.0
"""`ri2n lab up|down|exec|ls|fault|restore|run`: clusters on this machine, from topology files."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ri2n_lab.cli.forward import find_guest, forward, guest_labs_of_mine, run_inside
from ri2n_lab.cli.guest_run import run
from ri2n_lab.cli.unowned import remove_unowned
from ri2n_sdn.cli.common import (
    JsonOption,
    console,
    note,
    print_json,
    split_list,
    terminate_as_interrupt,
)
from ri2n_sdn.cli.tables import Column, table
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.shipped import find_topology

if TYPE_CHECKING:
    from ri2n_lab.cluster import Lab
    from ri2n_lab.guests.labs import GuestLab
    from ri2n_sdn.fabric.topology import Topology

__all__ = ["app", "choose_lab"]

app = typer.Typer(
    no_args_is_help=True, help="A cluster on this machine: namespaces, Open vSwitch, shaped links."
)
app.command(context_settings={"ignore_unknown_options": True})(run)


@app.callback()
def _first(context: typer.Context) -> None:
    """Remove labs that nobody owns, before every command but `down`, which removes labs itself."""
    if context.invoked_subcommand != "down":
        remove_unowned()


LabOption = Annotated[
    str | None,
    typer.Option(
        "--lab", envvar="RI2N_LAB", help="Name of the lab; needed when there are several."
    ),
]
HostOption = Annotated[str | None, typer.Option(help="Host with the fault.")]
NicOption = Annotated[str | None, typer.Option(help="NIC of that host.")]
SwitchOption = Annotated[str | None, typer.Option(help="Switch, for switch_down and cable.")]
PortOption = Annotated[int | None, typer.Option(help="Port of the switch, for cable.")]


_LABS = (
    Column("lab", "name"),
    Column("topology", wide=True),
    Column("phase"),
    Column("owner"),
    Column("age", lambda row: f"{(time.time() - row['created_s']) / 60:.0f} min"),
    Column("kernel", wide=True),
    Column("datapath", wide=True),
    Column("hosts", written=", ".join),
    Column("controller", written=lambda runs: "yes" if runs else "no"),
    Column("faults", written=lambda faults: "; ".join(map(_words, faults))),
)


def _words(fault: dict[str, Any]) -> str:
    """A fault, as the words by which it was made."""
    return " ".join(str(value) for value in fault.values() if value)


@app.command()
def up(
    topology: Annotated[
        str, typer.Argument(help="A topology file, or a shipped one: fig4/d, mixed, one-switch.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the lab; default: the topology's and a few digits.")
    ] = None,
    strategy: Annotated[str, typer.Option(help=f"One of {', '.join(STRATEGIES)}.")] = "max_min",
    controller: Annotated[
        bool, typer.Option(help="Start a controller and wait until everything has settled.")
    ] = True,
    kernel: Annotated[
        str,
        typer.Option(
            help="host, or in a guest: uml (user-mode Linux) or virtual (the same with virtual "
            "time)."
        ),
    ] = "host",
    datapath: Annotated[
        str,
        typer.Option(
            help="netdev, system (the kernel's), or auto: system where the kernel has Open vSwitch."
        ),
    ] = "auto",
    helpers: Annotated[
        bool, typer.Option("--helpers", help="Run ri2n-reorder on the hosts: striped packets.")
    ] = False,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Run ri2n-fast on the hosts: flows pass beside Open vSwitch."),
    ] = False,
    hours: Annotated[
        float, typer.Option(help="With a guest: the guest is ended after so many hours.")
    ] = 12.0,
    as_json: JsonOption = False,
) -> None:
    """Build a lab and leave it running; `ri2n lab down` removes it."""
    split_list(strategy, STRATEGIES, "--strategy")
    parsed = find_topology(topology)
    for warning in parsed.warnings():
        note(f"warning: {warning}")
    if kernel != "host":
        options = [*(["--helpers"] if helpers else []), *(["--fast"] if fast else [])]
        _up_in_guest(parsed, name, strategy, controller, kernel, datapath, options, hours, as_json)
    from ri2n_lab.bench.ready import start_and_wait
    from ri2n_lab.cluster import Lab

    started_s = time.monotonic()
    if name is not None and find_guest(name) is not None:
        raise NotAvailable(f"lab {name!r} exists already: `ri2n lab down {name}` removes it")
    terminate_as_interrupt()
    lab = Lab.create(parsed, name, datapath=datapath, helpers=helpers, fast=fast)
    lab.up(lambda text: note(f"{time.monotonic() - started_s:5.1f} s  {text}"))
    try:
        if controller:
            start_and_wait(lab, strategy)
            note(f"{time.monotonic() - started_s:5.1f} s  controller is ready")
        lab.keep()
    except BaseException:
        lab.down()
        raise
    if as_json:
        print_json(_described(lab))
        return
    hosts = lab.topology.managed_hosts()
    print(f"lab {lab.name} is up: hosts {', '.join(lab.hosts)}")
    print(f"  ri2n lab exec {hosts[-1]} -- ping -c 3 {hosts[0]}")
    print(f"  ri2n status\n  ri2n lab down {lab.name}")


@app.command()
def down(
    name: Annotated[
        str | None, typer.Argument(help="Name of the lab; not needed when there is only one.")
    ] = None,
    all_mine: Annotated[
        bool, typer.Option("--all-mine", help="Every lab that you made, also those that crashed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a lab: its processes, namespaces and files, and nothing else."""
    from ri2n_lab.cluster import Lab
    from ri2n_lab.guests import labs as guest_labs

    if all_mine and name is not None:
        raise BadInput("give a name or --all-mine, not both")
    guest = None if all_mine else find_guest(name)
    labs = Lab.all_mine() if all_mine else [choose_lab(name)] if guest is None else []
    guests = guest_labs_of_mine() if all_mine else [guest] if guest is not None else []
    if guests and os.geteuid() != 0:
        raise NotAvailable("a lab needs root: use sudo")
    for lab in labs:
        lab.down()
    for guest in guests:
        guest_labs.end(guest)
    remove_unowned()
    names = [*(lab.name for lab in labs), *(guest.name for guest in guests)]
    if as_json:
        print_json({"removed": names})
    else:
        print(f"removed: {', '.join(names) or 'there was none'}")


@app.command("exec", context_settings={"ignore_unknown_options": True})
def exec_(
    host: Annotated[
        str, typer.Argument(help="Host, or mgmt (where the controller is), or sw (the switches).")
    ],
    command: Annotated[
        list[str], typer.Argument(help="Command and arguments, after --; host names resolve.")
    ],
    lab: LabOption = None,
    time_it: Annotated[
        bool,
        typer.Option(
            "--time", help="Lab in a guest: print on stderr how long it took, by both clocks."
        ),
    ] = False,
) -> None:
    """Run a command on a host of the lab: `ri2n lab exec B -- ping A`."""
    forward(lab, time_it=time_it)
    chosen = choose_lab(lab)
    argv = ["ip", "netns", "exec", chosen.namespace(host), *command]
    program = shutil.which(argv[0])
    if program is None:
        raise NotAvailable("ip is missing: apt install iproute2")
    # The command replaces this process, so the terminal, signals and exit code are the command's.
    os.execve(program, argv, chosen.environment(host))


@app.command("ls")
def list_(as_json: JsonOption = False) -> None:
    """List the labs on this machine."""
    from ri2n_lab.cluster import Lab
    from ri2n_lab.guests import labs as guest_labs

    rows = [*map(_described, Lab.all()), *map(_described_guest, guest_labs.all_guest_labs())]
    if as_json:
        print_json(rows)
        return
    if rows:
        console().print(table(_LABS, rows))
    else:
        print("no labs; `ri2n lab up fig4/d` makes one")


@app.command()
def fault(
    kind: Annotated[
        str,
        typer.Argument(
            help="nic_down, peer_nic_down, blackhole, switch_down, cable, loss or control."
        ),
    ],
    host: HostOption = None,
    nic: NicOption = None,
    switch: SwitchOption = None,
    port: PortOption = None,
    loss: Annotated[float | None, typer.Option(help="Percentage of frames that are lost.")] = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Break a NIC, a cable, a switch or a control link, or let a NIC lose some frames."""
    forward(lab)
    chosen = choose_lab(lab)
    chosen.fault(kind, host=host, nic=nic, switch=switch, port=port, loss=loss)
    _show_faults(chosen, as_json)


@app.command()
def restore(
    kind: Annotated[
        str | None, typer.Argument(help="Kind of the fault to end; without it all faults end.")
    ] = None,
    host: HostOption = None,
    nic: NicOption = None,
    switch: SwitchOption = None,
    port: PortOption = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """End one fault, or all faults."""
    forward(lab)
    chosen = choose_lab(lab)
    if kind is None:
        if host or nic or switch or port:
            raise BadInput("KIND is missing: say which fault to end, or give nothing to end all")
        chosen.restore_all()
    else:
        chosen.restore(kind, host=host, nic=nic, switch=switch, port=port)
    _show_faults(chosen, as_json)


def choose_lab(name: str | None) -> Lab:
    """The lab of that name, or the only lab of this user.

    Raises NotAvailable when there is none and without root, BadInput when the user has several and
    none is named.
    """
    from ri2n_lab.cluster.manage import find

    lab = find(name)
    if os.geteuid() != 0:
        raise NotAvailable("a lab needs root: use sudo")
    return lab


def _described(lab: Lab) -> dict[str, Any]:
    """What `--json` shows of a lab on the host."""
    from ri2n_lab.cli.labs import listens

    return {
        "name": lab.name,
        "topology": lab.topology.name,
        "phase": lab.phase,
        "owner": lab.owner,
        "created_s": lab.created_s,
        "datapath": lab.datapath,
        "kernel": "host",
        "hosts": {host: lab.address(host) for host in lab.hosts},
        "helpers": lab.helpers.hosts,
        "fast": lab.fast_paths.hosts,
        "socket": str(lab.controller_socket),
        "controller": listens(lab.controller_socket),
        "faults": [vars(entry) for entry in lab.faults()],
    }


def _described_guest(guest: GuestLab) -> dict[str, Any]:
    """What `--json` shows of a lab in a guest, from its record.

    A question to the guest would move its virtual clock, which only the user's commands may move.
    """
    from ri2n_sdn.fabric.topology import Topology

    topology = Topology.model_validate(guest.topology)
    inside = next((lab for lab in guest.inside if lab["name"] == guest.name), None)
    return {
        "name": guest.name,
        "topology": topology.name,
        "phase": guest.phase,
        "owner": guest.owner,
        "created_s": guest.created_s,
        "datapath": inside["datapath"] if inside else "system",
        "kernel": guest.kernel,
        "hosts": {host: topology.address(host) for host in topology.hosts},
        "helpers": topology.helper_hosts() if inside and inside["helpers"] else [],
        "fast": topology.managed_hosts() if inside and inside.get("fast") else [],
        "socket": None,
        "controller": bool(inside and inside["controller"]),
        "faults": inside["faults"] if inside else [],
        "limit_s": guest.limit_s,
    }


def _up_in_guest(
    topology: Topology,
    name: str | None,
    strategy: str,
    controller: bool,
    kernel: str,
    datapath: str,
    options: list[str],
    hours: float,
    as_json: bool,
) -> NoReturn:
    """`up` with another kernel: start a guest that stays, and run the same command in it."""
    if not 0 < hours < 1e6:
        raise BadInput(f"--hours {hours:g}: must be more than 0")
    if os.geteuid() != 0:
        raise NotAvailable("a lab needs root: use sudo")
    from ri2n_lab.cluster import state
    from ri2n_lab.guests import labs as guest_labs
    from ri2n_lab.guests.guest import SHARE
    from ri2n_lab.guests.kernels import find_kernel

    started_s = time.monotonic()
    find_kernel(kernel)
    name = state.check_name(name or state.fresh_name(topology.name))
    guest_labs.check_free(name)
    note(f"  0.0 s  booting a guest, kernel {kernel}")
    with guest_labs.start_keeper(topology, name, kernel, limit_s=hours * 3600) as connection:
        try:
            guest_labs.await_ready(connection)
            note(f"{time.monotonic() - started_s:5.1f} s  the guest is up")
            argv = ["lab", "up", str(SHARE / "topology.json"), "--name", name]
            argv += ["--strategy", strategy]
            # The guests' kernel has Open vSwitch built in, so there is no module to look for.
            argv += ["--datapath", "system" if datapath == "auto" else datapath]
            argv += ["--controller" if controller else "--no-controller"]
            argv += ["--json"] if as_json else []
            argv += options
            output: list[bytes] = []
            keep = output.append if as_json else None
            code = run_inside(connection, argv, kernel, stdin=False, stdout=keep).code
            if code == 0:
                guest_labs.keep(connection)
        except BaseException:
            guest_labs.give_up(connection)
            raise
        if code != 0:
            guest_labs.give_up(connection)
        elif as_json:
            described = json.loads(b"".join(output))
            print_json({**described, "kernel": kernel, "socket": None, "limit_s": hours * 3600})
        raise typer.Exit(code)


def _show_faults(lab: Lab, as_json: bool) -> None:
    faults = [vars(entry) for entry in lab.faults()]
    if as_json:
        print_json({"lab": lab.name, "faults": faults})
    elif not faults:
        print(f"lab {lab.name}: no faults")
    else:
        for entry in faults:
            print(
                f"lab {lab.name}: "
                + " ".join(str(value) for value in entry.values() if value is not None)
            )
