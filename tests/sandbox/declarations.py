# SPDX-License-Identifier: Apache-2.0
"""Hosts that tell jobs and addresses, as their scripts do, and the answers that they read."""

from __future__ import annotations

import hashlib
import json
import tempfile
from typing import Any

from ri2n_lab.cluster.sandbox import Sandbox

__all__ = [
    "answers",
    "class_mac",
    "declare",
    "fail",
    "job",
    "nudge",
    "orders",
    "replace_all",
    "tell_addresses",
    "withdraw",
    "withdraw_all",
]

_NUDGE = "03000052494a" + "020000000001" + "88b5" + b"JOBS".hex() + "00" * 42


def class_mac(number: int) -> str:
    """The source address by which the host's firewall hands a class to the bridge."""
    return f"02:52:4a:00:00:{number:02x}"


def job(name: str, number: int, hosts: str, policy: str = "shared", **more: Any) -> dict[str, Any]:
    """A declaration as a mapping; each letter of `hosts` is a host's name."""
    document = {"v": 1, "id": name, "class": number, "user": "alice", "uid": 20001}
    document |= {"hosts": list(hosts), "policy": policy, "begin_s": 1_790_000_000, "source": "host"}
    return document | more


def declare(sandbox: Sandbox, host: str, document: dict[str, Any] | bytes, number: int = 0) -> None:
    """Put a declaration into a host's bridge, and tell the controller to look."""
    sandbox.ovs.run(
        "ovs-ofctl", "-O", "OpenFlow15", "add-flow", host, _declaration(document, number)
    )
    nudge(sandbox, host)


def replace_all(
    sandbox: Sandbox, host: str, *documents: dict[str, Any], new: int = 0, nudges: int = 1
) -> None:
    """Declare these jobs and no others, in one bundle, as `job-begin` and `job-end` do.

    The job with the class `new` has just begun: the answer to an earlier job of it is deleted.
    """
    lines = ["flow delete cookie=0x524a000000000000/0xffff000000000000,table=248"]
    lines += [f"flow delete table=247,in_port=LOCAL,reg6={new}"] if new else []
    lines += [f"flow add {_declaration(document)}" for document in documents]
    lines += [f"packet-out in_port=LOCAL,packet={_NUDGE},actions=CONTROLLER"] * nudges
    with tempfile.NamedTemporaryFile("w", dir=sandbox.folder) as bundle:
        bundle.write("\n".join(lines) + "\n")
        bundle.flush()
        sandbox.ovs.ofctl("bundle", host, bundle.name)


def tell_addresses(sandbox: Sandbox, host: str, *addresses: str) -> None:
    """Let a host tell that its traffic has these addresses and no others, as `host-up` does."""
    cookie = "cookie=0x524c000000000000"
    sandbox.ovs.ofctl("del-flows", host, f"{cookie}/-1,table=248")
    for address in addresses:
        match = f"ipv6,ipv6_src={address}" if ":" in address else f"ip,nw_src={address}"
        row = f"{cookie},table=248,priority=1,{match},actions=drop"
        sandbox.ovs.ofctl("add-flow", host, row)
    nudge(sandbox, host)


def _declaration(document: dict[str, Any] | bytes, number: int = 0) -> str:
    """The row of a declaration, as ovs-ofctl takes it."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    place = number or (document["class"] if isinstance(document, dict) else 1)
    cookie = 0x524A << 48 | int.from_bytes(hashlib.sha256(text).digest()[:6], "big")
    return (
        f"table=248,cookie={cookie:#x},priority={place},in_port=LOCAL,reg6={place},"
        f"actions=note:{'.'.join(f'{byte:02x}' for byte in text)}"
    )


def fail(sandbox: Sandbox, host: str, document: dict[str, Any] | bytes, number: int = 0) -> None:
    """Say that a host cannot carry out an order, as `host-watch` does, in its row of a number."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    sandbox.ovs.run(
        "ovs-ofctl",
        *("-O", "OpenFlow15", "add-flow", host),
        f"table=248,cookie={0x524B << 48:#x},priority={1000 + number},in_port=LOCAL,reg6=0,"
        f"reg7={number},actions=note:{text.hex('.')}",
    )
    nudge(sandbox, host)


def withdraw(sandbox: Sandbox, host: str, number: int) -> None:
    """Take a declaration out of a host's bridge, and tell the controller to look."""
    sandbox.ovs.run(
        "ovs-ofctl",
        *("-O", "OpenFlow15", "--strict", "del-flows", host),
        f"table=248,priority={number},in_port=LOCAL,reg6={number}",
    )
    nudge(sandbox, host)


def withdraw_all(sandbox: Sandbox, host: str) -> None:
    """Take all declarations out of a host's bridge, and tell the controller to look."""
    sandbox.ovs.run("ovs-ofctl", "-O", "OpenFlow15", "del-flows", host, "table=248")
    nudge(sandbox, host)


def nudge(sandbox: Sandbox, host: str) -> None:
    """Tell the controller that a host's jobs have changed."""
    sandbox.ovs.run(
        "ovs-ofctl",
        *("-O", "OpenFlow15", "packet-out", host),
        f"in_port=LOCAL,packet={_NUDGE},actions=controller",
    )


def _notes(sandbox: Sandbox, host: str) -> dict[int, dict[str, Any]]:
    rows = sandbox.ovs.run(
        "ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", host, "table=247"
    )
    notes = {}
    for line in rows.splitlines():
        if "note:" in line:
            text = bytes.fromhex(line.partition("note:")[2].replace(".", " ")).rstrip(b"\0")
            notes[int(line.partition("priority=")[2].partition(",")[0])] = json.loads(text)
    return notes


def answers(sandbox: Sandbox, host: str) -> dict[int, dict[str, Any]]:
    """The controller's answers in a host's bridge, by class."""
    return {number: text for number, text in _notes(sandbox, host).items() if number < 1000}


def orders(sandbox: Sandbox, host: str) -> dict[str, dict[str, Any]]:
    """The controller's orders in a host's bridge, by the job's id."""
    return {text["id"]: text for number, text in _notes(sandbox, host).items() if number >= 1000}
