#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the place of ri2n-reorder in tests of what is around the helper.

It holds the TAPs and answers on the status socket.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import socket
import struct
import sys
from types import FrameType

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000


def hold(name: str) -> int:
    """Attach to a persistent TAP, which has carrier as long as this process lives."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(
        descriptor,
        TUNSETIFF,
        struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR),
    )
    return descriptor


def leave(number: int, frame: FrameType | None) -> None:
    """On SIGTERM, end with status 0."""
    sys.exit(0)


def main() -> None:
    """Serve until SIGTERM.

    `--fail` ends at once with one line, as a helper does when it lacks something.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("--plain", "--wire", "--gro", "--mtu-wire", "--overhead", "--status"):
        parser.add_argument(option)
    for option in ("--fast-maps", "--hold"):
        parser.add_argument(option)
    parser.add_argument("--autonomous", action="store_true")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    if options.fail:
        sys.exit("ri2n-reorder: asked to fail")
    signal.signal(signal.SIGTERM, leave)
    taps = [hold(options.plain), *([] if options.autonomous else [hold(options.wire)])]
    taps += [hold(options.hold)] if options.hold else []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(options.status)
        server.listen()
        while True:
            client, _ = server.accept()
            with client:
                client.sendall(
                    json.dumps({"taps": len(taps), "pid": os.getpid(), **vars(options)}).encode()
                    + b"\n"
                )


if __name__ == "__main__":
    main()
