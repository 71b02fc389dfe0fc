# SPDX-License-Identifier: Apache-2.0
"""Let a device lose a share of the frames that it receives.

`python -m ri2n_lab.traffic.lossy DEVICE PERCENT`; 0 ends the loss. The loss is an XDP program of
six instructions, because that runs before everything else. Open vSwitch's netdev datapath reads its
own copy of a frame, which neither nftables nor tc ingress can drop. A drop on the sending side
would be reported to the sender, and not every kernel has netem.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import sys

from ri2n_sdn.errors import NotAvailable, Ri2nError

__all__ = ["loss_program", "main", "set_loss"]

BPF_PROG_LOAD = 5
BPF_PROG_TYPE_XDP = 6
BPF_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
RTM_SETLINK, NLM_F_REQUEST, NLM_F_ACK = 19, 1, 4
IFLA_XDP, IFLA_XDP_FD, IFLA_XDP_FLAGS = 43, 1, 3
XDP_FLAGS_SKB_MODE = 1 << 1  # the same for every driver
NLA_F_NESTED = 1 << 15
XDP_DROP, XDP_PASS = 1, 2


def loss_program(percent: float) -> bytes:
    """The eBPF code that drops `percent` in 100 of the frames that it gets, at random."""
    threshold = min(round(percent / 100 * 2**32), 2**32 - 1)
    instructions = [
        _instruction(0x85, immediate=7),  # r0 = a random 32-bit number (bpf_get_prandom_u32)
        # The threshold into r1: a 64-bit load, which takes two slots.
        _instruction(0x18, destination=1, immediate=threshold),
        _instruction(0x00),
        _instruction(0xBD, destination=1, source=0, offset=2),  # if r1 <= r0: pass
        _instruction(0xB7, destination=0, immediate=XDP_DROP),
        _instruction(0x95),
        _instruction(0xB7, destination=0, immediate=XDP_PASS),
        _instruction(0x95),
    ]
    return b"".join(instructions)


def set_loss(device: str, percent: float) -> None:
    """Let `device`, in this process's namespace, lose `percent` of the frames that it receives.

    0 ends the loss. Raises OSError when there is no such device, NotAvailable when the kernel
    refuses (no root, no XDP).
    """
    index = socket.if_nametoindex(device)
    if percent <= 0:
        _attach(index, -1)
        return
    program = _load(loss_program(percent))
    try:
        _attach(index, program)  # the device keeps the program alive
    finally:
        os.close(program)


def main(argv: list[str]) -> int:
    """The command line; returns 0 when done, else 2 after one line on standard error."""
    try:
        device, percent = argv
        set_loss(device, float(percent))
    except (ValueError, OSError, Ri2nError) as error:
        print(f"lossy: {error}", file=sys.stderr)
        return 2
    return 0


def _instruction(
    code: int, destination: int = 0, source: int = 0, offset: int = 0, immediate: int = 0
) -> bytes:
    return struct.pack("=BBhI", code, destination | source << 4, offset, immediate)


def _load(code: bytes) -> int:
    """Hand the program to the kernel and return its file descriptor."""
    number = BPF_SYSCALL.get(platform.machine())
    if number is None:
        raise NotAvailable(f"loss is not supported on {platform.machine()}")
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    addresses = ctypes.addressof(instructions), ctypes.addressof(licence)
    attributes = struct.pack("=IIQQ", BPF_PROG_TYPE_XDP, len(code) // 8, *addresses).ljust(
        128, b"\0"
    )
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.syscall(number, BPF_PROG_LOAD, buffer, len(attributes))
    if descriptor < 0:
        raise NotAvailable(
            f"the kernel refuses the loss program: {os.strerror(ctypes.get_errno())}"
        )
    return descriptor


def _attach(index: int, program: int) -> None:
    """Attach the program (-1: none) to a device, by one netlink message."""
    inner = _attribute(IFLA_XDP_FD, struct.pack("=i", program))
    inner += _attribute(IFLA_XDP_FLAGS, struct.pack("=I", XDP_FLAGS_SKB_MODE))
    body = struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, 0, 0) + _attribute(
        IFLA_XDP | NLA_F_NESTED, inner
    )
    message = (
        struct.pack("=IHHII", 16 + len(body), RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.bind((0, 0))
        netlink.send(message)
        answer = netlink.recv(4096)
    error: int = struct.unpack_from("=i", answer, 16)[0]
    if error:
        raise NotAvailable(f"the kernel refuses to attach the loss program: {os.strerror(-error)}")


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value.ljust(-(-len(value) // 4) * 4, b"\0")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
