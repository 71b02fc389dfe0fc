"""Talk to a running controller over its unix socket, with one JSON object per line."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["DEFAULT_SOCKET", "call", "jobs_socket_of"]

DEFAULT_SOCKET = Path("/run/ri2n-controller/controller.sock")
MAX_REPLY_BYTES = 64 << 20


def jobs_socket_of(path: Path) -> Path:
    """The socket for questions about jobs, for all users, beside the controller's own one."""
    return path.with_name(f"{path.stem}-jobs{path.suffix}")


def call(path: Path, op: str, *, timeout_s: float = 10.0, **arguments: object) -> dict[str, Any]:
    """Send one request to the controller that listens at `path`, and return its answer.

    Raises NotAvailable when nobody listens, when no answer comes within `timeout_s`, or when the
    answer is not that of a controller. Raises BadInput with the controller's own words when the
    controller refuses the request (an unknown host, an unknown strategy).
    """
    request = json.dumps({"op": op, **arguments}).encode() + b"\n"
    deadline = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(request)
            line = _read_line(connection, deadline)
    except TimeoutError:
        raise NotAvailable(f"{path}: the controller did not answer in {timeout_s:g} s") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotAvailable(
            f"{path}: no controller listens there; start one with `ri2n controller`"
        ) from None
    except PermissionError:
        raise NotAvailable(
            f"{path}: permission denied; the controller's socket is for root: use sudo"
        ) from None
    except OSError as error:
        raise NotAvailable(f"{path}: {error.strerror or error}") from None
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):  # json raises ValueError also for bytes that are not UTF-8
        raise NotAvailable(f"{path}: what listens there is not a RI2N controller") from None
    if not isinstance(reply, dict) or not isinstance(reply.get("ok"), bool):
        raise NotAvailable(f"{path}: what listens there is not a RI2N controller")
    if not reply["ok"]:
        raise BadInput(str(reply.get("error", "the controller refused without a reason")))
    return reply


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    """Read one line before `deadline`, however slowly the bytes come; TimeoutError after it."""
    data = bytearray()
    while b"\n" not in data:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or len(data) > MAX_REPLY_BYTES:
            raise TimeoutError
        connection.settimeout(left_s)
        chunk = connection.recv(1 << 16)
        if not chunk:
            break
        data += chunk
    return bytes(data.partition(b"\n")[0])
