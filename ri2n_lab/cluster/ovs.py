# SPDX-License-Identifier: Apache-2.0
"""Start private Open vSwitches in namespaces, each with its own folder, database and sockets."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from ri2n_lab.cluster.run import CommandFailed, in_namespace, run
from ri2n_sdn.errors import NotAvailable

__all__ = [
    "check_ovs",
    "database",
    "environment",
    "has_kernel_datapath",
    "kill_switch",
    "make_template",
    "port_mod",
    "start",
]

OLDEST = (2, 17)
START_S = 120.0  # a limit against hanging: a server takes some milliseconds
RESTART_S = 0.1
"""Seconds after which systemd starts a dead ovs-vswitchd again (RestartSec, its default)."""

SCHEMA = Path(os.environ.get("OVS_PKGDATADIR", "/usr/share/openvswitch")) / "vswitch.ovsschema"

# Numbers of OpenFlow 1.0, which every bridge of the lab's switches speaks; it has the shortest
# port_mod.
OFPT_HELLO, OFPT_ERROR, OFPT_ECHO_REQUEST, OFPT_ECHO_REPLY = 0, 1, 2, 3
OFPT_PORT_MOD, OFPT_BARRIER_REQUEST, OFPT_BARRIER_REPLY = 15, 18, 19
OFPPC_NO_RECV, OFPPC_NO_FWD = 1 << 2, 1 << 5


def check_ovs() -> None:
    """Raise NotAvailable, with what to install, unless Open vSwitch is there and new enough."""
    for program in ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl"):
        if shutil.which(program) is None:
            raise NotAvailable(f"{program} is missing: apt install openvswitch-switch")
    if not SCHEMA.exists():
        raise NotAvailable(f"{SCHEMA} is missing: apt install openvswitch-switch")
    text = run(["ovs-vswitchd", "--version"]).stdout
    match = re.search(r"(\d+)\.(\d+)", text)
    if match and tuple(map(int, match.groups())) < OLDEST:
        raise NotAvailable(f"Open vSwitch {match.group()} is too old: 2.17 or newer is needed")


def has_kernel_datapath() -> bool:
    """Whether this kernel has Open vSwitch's datapath, built in or as a module.

    The question makes the kernel load the module.
    """
    # The import takes longer than most commands, and only who makes a lab asks.
    from pyroute2.netlink import genlmsg
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    with GenericNetlinkSocket() as netlink:
        try:
            netlink.bind("ovs_datapath", genlmsg)
        except NetlinkError:
            return False
    return True


def make_template(path: Path, *, userspace_tso: bool = False) -> None:
    """Make an empty database with its one mandatory row.

    A copy of it starts faster than a new database. `userspace_tso`: netdev bridges take
    super-packets, which Open vSwitch calls experimental.
    """
    run(["ovsdb-tool", "create", str(path), str(SCHEMA)])
    row = {"other_config": ["map", [["userspace-tso-enable", "true"]]]} if userspace_tso else {}
    insert = {"op": "insert", "table": "Open_vSwitch", "row": row}
    run(["ovsdb-tool", "transact", str(path), json.dumps(["Open_vSwitch", insert])])


def environment(folder: Path) -> dict[str, str]:
    """The environment in which every OVS tool talks to the OVS in `folder`."""
    return {
        **os.environ,
        "OVS_RUNDIR": str(folder),
        "OVS_DBDIR": str(folder),
        "OVS_LOGDIR": str(folder),
    }


def database(folder: Path) -> str:
    """The address of the database of the OVS in `folder`."""
    return f"unix:{folder}/db.sock"


def start(folder: Path, namespace: str, template: Path) -> None:
    """Start ovsdb-server and ovs-vswitchd in `namespace`; both detach once they serve.

    Raises NotAvailable, with the end of the log, when one does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(template, folder / "conf.db")
    _serve(
        folder,
        namespace,
        ["ovsdb-server", str(folder / "conf.db"), f"--remote=punix:{folder}/db.sock"],
    )
    _serve(folder, namespace, ["ovs-vswitchd", database(folder)])


def kill_switch(folder: Path, namespace: str) -> None:
    """End ovs-vswitchd by SIGKILL, and start it again as systemd would."""
    os.kill(int((folder / "ovs-vswitchd.pid").read_text()), signal.SIGKILL)
    time.sleep(RESTART_S)
    _serve(folder, namespace, ["ovs-vswitchd", database(folder)])


def _serve(folder: Path, namespace: str, argv: Sequence[str]) -> None:
    """Start a server, which detaches once it serves."""
    try:
        detached = [*argv, "--pidfile", "--detach", "--log-file", "-vconsole:off"]
        run(in_namespace(namespace, detached), env=environment(folder), timeout_s=START_S)
    except CommandFailed as error:
        log = folder / f"{argv[0]}.log"
        tail = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
        raise NotAvailable(
            f"{argv[0]} did not start in {namespace}: {error} {' | '.join(tail)}"
        ) from None


def port_mod(folder: Path, bridge: str, ports: Sequence[tuple[int, str]], *, dead: bool) -> None:
    """Make switch ports drop everything in both directions, or (`dead` False) stop that.

    Carrier and learned MACs stay. `ports` are (port number, the port's MAC). ovs-ofctl would need
    two commands per port. This sends one message per port, all in one write, so both directions of
    all ports change together. Raises NotAvailable when the bridge refuses.
    """
    mask = OFPPC_NO_RECV | OFPPC_NO_FWD
    config = mask if dead else 0
    messages = [struct.pack("!BBHI", 1, OFPT_HELLO, 8, 1)]
    for number, mac in ports:
        body = struct.pack(
            "!H6sIII4x", number, bytes.fromhex(mac.replace(":", "")), config, mask, 0
        )
        messages.append(struct.pack("!BBHI", 1, OFPT_PORT_MOD, 8 + len(body), 2) + body)
    messages.append(struct.pack("!BBHI", 1, OFPT_BARRIER_REQUEST, 8, 3))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        try:
            connection.connect(str(folder / f"{bridge}.mgmt"))
            connection.sendall(b"".join(messages))
            _await_barrier(connection)
        except OSError as error:
            raise NotAvailable(f"switch {bridge}: {error}") from None


def _await_barrier(connection: socket.socket) -> None:
    """Read until the barrier's reply; NotAvailable when the switch refuses a port_mod."""
    while True:
        _, kind, length, xid = struct.unpack("!BBHI", _exactly(connection, 8))
        body = _exactly(connection, length - 8)
        if kind == OFPT_ERROR and xid == 2:
            raise NotAvailable(f"the switch refuses port_mod: error {body[:4].hex()}")
        if kind == OFPT_BARRIER_REPLY:
            return


def _exactly(connection: socket.socket, count: int) -> bytes:
    """Read `count` bytes; ConnectionResetError when the switch closes the connection first."""
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the switch closed the connection")
        data += part
    return data
