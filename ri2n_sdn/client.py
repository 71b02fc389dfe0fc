# SPDX-License-Identifier: Apache-2.0
"""Talk to a running controller over its unix sockets, with one JSON object per line."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ri2n_sdn.contract.operations import WATCH, Answer, Operation
from ri2n_sdn.contract.protocol import MAX_LINE_BYTES, SILENT_S, answer_in, object_in, request_line
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.state import merge
from ri2n_sdn.errors import NotAvailable, Ri2nError

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import Documents

__all__ = [
    "DEFAULT_SOCKET",
    "Watch",
    "answered",
    "call",
    "jobs_socket_of",
    "refusal_of",
    "web_socket_of",
]

DEFAULT_SOCKET = Path("/run/ri2n-controller/controller.sock")


def jobs_socket_of(path: Path) -> Path:
    """The socket for questions about jobs, for all users, beside the controller's own one."""
    return path.with_name(f"{path.stem}-jobs{path.suffix}")


def web_socket_of(path: Path) -> Path:
    """The socket for the web process, beside the controller's own one.

    Each request on it says under `as` for whom it is: `{"user", "uid", "role"}`.
    """
    return path.with_name(f"{path.stem}-web{path.suffix}")


def call(
    path: Path,
    op: Operation[Answer] | str,
    *,
    timeout_s: float = 10.0,
    who: Mapping[str, object] | None = None,
    **arguments: object,
) -> Answer:
    """Send one request to the controller that listens at `path`, and return its answer.

    `op` is of `contract.operations`. By its name alone, the answer is any JSON object.
    `who` is for whom it is, and needed on the socket of `web_socket_of` alone.

    Raises NotAvailable when nobody listens, when no answer comes within `timeout_s`, or when the
    answer is not that of a controller. Raises the controller's own error when the controller
    refuses the request: BadInput for what is wrong with it, NotAvailable where waiting helps.
    """
    with answered(path, op, timeout_s=timeout_s, who=who, **arguments) as answer:
        return answer


@contextmanager
def answered(
    path: Path,
    op: Operation[Answer] | str,
    *,
    timeout_s: float = 10.0,
    who: Mapping[str, object] | None = None,
    **arguments: object,
) -> Iterator[Answer]:
    """As `call`, with a connection that stays open within this: what is leased ends with it."""
    name = op if isinstance(op, str) else op.name
    deadline = time.monotonic() + timeout_s
    with ExitStack() as stack:
        with _asking(path, timeout_s):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            _send(connection, path, timeout_s, request_line(name, arguments, who))
            line = _read_line(connection, deadline)
        yield cast(Answer, _answer(path, line))


def refusal_of(path: Path, error: OSError, denied: str = "controller_for_group") -> Ri2nError:
    """Why a socket of the controller cannot be used, and what to do.

    `denied` is the code for one who may not connect.
    """
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return refusal("controller_absent", path=str(path))
    if isinstance(error, PermissionError):
        return refusal(denied, path=str(path))
    return refusal("controller_unreachable", path=str(path), why=error.strerror or str(error))


class Watch:
    """The state of a controller, and each change of it, as they come: an iterator.

    Each item is the whole state, the first one as it is now. The iterator ends when the controller
    ends the stream, because it starts anew or stops. A context manager, which ends the stream.

        with Watch(path) as watch:
            for state in watch:
                print(state["controller"]["strategy"])
    """

    def __init__(
        self, path: Path, *, who: Mapping[str, Any] | None = None, silent_s: float = SILENT_S
    ) -> None:
        """Watch the controller that listens at `path`.

        `who` is for whom this is, and needed on the socket of `web_socket_of`. A controller that
        says nothing for `silent_s` has ended. Raises NotAvailable when nobody listens, and the
        controller's own error when it refuses.
        """
        self._path, self._silent_s = path, silent_s
        self._connection = socket.socket(socket.AF_UNIX)
        self._lines = self._connection.makefile("rb", 1 << 16)
        try:
            with _asking(path, silent_s):
                _send(self._connection, path, silent_s, request_line(WATCH.name, {}, who))
                first = _answer(path, self._line() or b"")
        except BaseException:
            self.close()
            raise
        self.seq = int(first["seq"])
        """The number of the newest change. Numbers grow, and some may be left out."""
        self.state: Documents = first["state"]
        """The newest state."""
        self._begins = True

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream. To do it twice is no error."""
        self._lines.close()
        self._connection.close()

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Documents:
        """The state after the next change. Raises NotAvailable when the stream breaks off."""
        if self._begins:
            self._begins = False
            return self.state
        while True:
            with _asking(self._path, self._silent_s):
                line = self._line()
            if line is None:
                raise StopIteration
            change = object_in(line) or {}
            try:
                self.seq, changed = int(change["seq"]), dict(change["changed"])
            except (KeyError, TypeError, ValueError):
                raise _stranger(self._path) from None
            if changed:
                self.state = cast("Documents", merge(self.state, changed))
                return self.state

    def _line(self) -> bytes | None:
        """The next line; None at the end of the stream. A part of a line is a broken stream."""
        line = self._lines.readline(MAX_LINE_BYTES)
        if len(line) == MAX_LINE_BYTES:
            raise _stranger(self._path)
        if line and not line.endswith(b"\n"):
            raise refusal("controller_broke_off", path=str(self._path))
        return line or None


@contextmanager
def _asking(path: Path, timeout_s: float) -> Iterator[None]:
    """Raise NotAvailable, which says what to do, when a socket fails."""
    try:
        yield
    except TimeoutError:
        raise refusal("controller_late", path=str(path), after_s=timeout_s) from None
    except OSError as error:
        raise refusal_of(path, error, "controller_for_root") from None


def _send(connection: socket.socket, path: Path, timeout_s: float, request: bytes) -> None:
    connection.settimeout(timeout_s)
    connection.connect(str(path))
    connection.sendall(request)


def _answer(path: Path, line: bytes) -> dict[str, Any]:
    """The controller's answer. Raises the controller's own error when it refuses."""
    try:
        return answer_in(line)
    except NotAvailable as error:
        raise (_stranger(path) if error.code == "answer_wrong" else error) from None


def _stranger(path: Path) -> Ri2nError:
    return refusal("controller_stranger", path=str(path))


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    """Read one line before `deadline`, however slowly the bytes come; TimeoutError after it."""
    data = bytearray()
    while b"\n" not in data:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or len(data) > MAX_LINE_BYTES:
            raise TimeoutError
        connection.settimeout(left_s)
        chunk = connection.recv(1 << 16)
        if not chunk:
            break
        data += chunk
    return bytes(data[: data.find(b"\n") + 1])
