# SPDX-License-Identifier: Apache-2.0
"""The keeper: the process on the host that boots one guest, serves it and removes it at its end.

`labs.start_keeper` starts it as `python -m ri2n_lab.guests.keeper FD`; FD is the connection of its
first client. The keeper passes the commands of its clients into the guest. The guest dies with the
keeper, however the keeper ends.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ri2n_lab.cluster import state
from ri2n_lab.cluster.unix_path import socket_path
from ri2n_lab.guests.guest import Guest
from ri2n_lab.guests.kernels import find_kernel
from ri2n_lab.guests.labs import SOCKET, GuestLab, check_free, process_start, write_record
from ri2n_lab.guests.link import Frame, Kind, Parser, encode
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError

__all__ = ["Keeper", "main"]

BOOT_LIMIT_S = 180.0
TICK_S = 0.25
PING_S = 2.0
# Seconds without an answer after which a guest is ended. A long computation stops virtual time, and
# with it everything else in the guest.
HANG_S = {"uml": 30.0, "virtual": 120.0}
# A user-mode Linux 6.1 whose terminal is full (4 KB) never reads its line again. So at most half of
# that is on its way.
LINE_WINDOW_BYTES = 2048
LINE_BUFFER_BYTES = 1 << 20
FILE_ABOVE_BYTES = 512
PRELOAD = ("ri2n_sdn.cli.every", "ri2n_lab.cluster")
FROM_CLIENTS = (Kind.STDIN, Kind.CREDIT, Kind.SIGNAL, Kind.WINDOW)


class _Client:
    """The connection of a client: at most one command at a time, on the channel `number`."""

    def __init__(self, number: int, connection: socket.socket) -> None:
        self.number, self.socket = number, connection
        self.parser = Parser()
        self.todo = bytearray()
        self.running = False


class Keeper:
    """Keeps one guest; `run` returns when nothing of the guest is left."""

    def __init__(self, first: socket.socket) -> None:
        """Take the connection of the first client; its frame START makes the guest."""
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, _Client] = {}
        # Clients that asked for the end; they get their answer when everything is removed.
        self._ending: list[_Client] = []
        # Channels of commands whose client went away, until the commands have ended.
        self._lost: set[int] = set()
        self._next_number = 1
        self._lab: GuestLab | None = None
        self._guest: Guest | None = None
        self._kernel_pid: int | None = None
        self._listener: socket.socket | None = None
        self._line: list[socket.socket] = []
        self._to_line: deque[bytes] = deque()
        self._unacked = 0
        self._files = 0
        self._parser = Parser()
        self._ready = self._stopped = False
        self._hang_s = 0.0
        self._pinged_s = self._heard_s = time.monotonic()
        self._awaits_pong = False
        self._reason: str | None = None
        # The client that started the keeper; None once the guest stays without it.
        self._starter: _Client | None = self._add_client(first)

    def run(self) -> None:
        """Serve until the guest has ended, and remove it."""
        try:
            while self._reason is None:
                for key, events in self._selector.select(TICK_S):
                    key.data(events)
                self._tick()
        except Ri2nError as error:
            self._reason = str(error)
        except BaseException as error:
            self._reason = f"the keeper of the guest failed: {error!r}"
            traceback.print_exc()
        finally:
            self._finish()

    def stop(self, reason: str) -> None:
        """End the guest at the next turn of `run`; the first reason given counts."""
        self._reason = self._reason or reason

    # ---- the guest

    def _start(self, request: dict[str, Any]) -> None:
        if self._lab is not None:
            raise BadInput("this keeper has its guest already")
        kernel = find_kernel(request["kernel"])
        self._hang_s = float(request["hang_s"] or HANG_S[kernel.name])
        lab = GuestLab(
            name=state.check_name(request["name"]),
            kernel=kernel.name,
            owner=request["owner"],
            phase="making",
            pid=os.getpid(),
            pid_start=process_start(os.getpid()) or 0,
            created_s=time.time(),
            limit_s=float(request["limit_s"]),
            topology=request["topology"],
        )
        check_free(lab.name)
        with state.locked(lab.name):
            if lab.folder.exists():
                raise NotAvailable(
                    f"lab {lab.name!r} exists already: `ri2n lab down {lab.name}` removes it"
                )
            lab.folder.mkdir(parents=True, mode=0o700)
            write_record(lab)
            self._lab = lab
        log = os.open(lab.folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self._boot(lab, request["seed"])
        self._listen(lab)

    def _boot(self, lab: GuestLab, seed: int) -> None:
        kernel = find_kernel(lab.kernel)
        theirs = []
        for _ in range(2):  # one for each direction
            ours, other = socket.socketpair()
            for end in (ours, other):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LINE_BUFFER_BYTES)
                end.setblocking(False)
            self._line.append(ours)
            theirs.append(other)
        argv = [sys.executable, "-m", "ri2n_lab.guests.agent"]
        argv += ["--virtual"] if kernel.virtual else []
        argv += [word for module in PRELOAD for word in ("--preload", module)]
        inside = {"RI2N_LAB_ROOT": "/run/ri2n-lab", "RI2N_SOCKET": "", "OPENBLAS_NUM_THREADS": "1"}
        self._guest = Guest(
            kernel,
            ["env", "-u", "RI2N_SOCKET", *argv],
            limit_s=lab.limit_s,
            seed=seed,
            env=inside,
            folder=lab.folder,
            options=["ssl0=" + ",".join(f"fd:{end.fileno()}" for end in theirs)],
            pass_fds=[end.fileno() for end in theirs],
        )
        for end in theirs:
            end.close()
        (self._guest.share / "topology.json").write_text(json.dumps(lab.topology))
        self._heard_s = time.monotonic()
        self._selector.register(self._line[1], selectors.EVENT_READ, lambda _: self._read_line())

    def _listen(self, lab: GuestLab) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with socket_path(lab.folder / SOCKET) as path:
            self._listener.bind(path)
        (lab.folder / SOCKET).chmod(0o600)
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, lambda _: self._accept())

    def _tick(self) -> None:
        """Look whether the guest lives and answers; NotAvailable when it does not."""
        now_s = time.monotonic()
        if self._guest is None or self._reason is not None:
            return
        if self._guest.poll() is not None:
            raise NotAvailable(
                f"the guest has ended: {self._guest.stderr.strip()[-300:] or 'its agent is gone'}"
            )
        wanted = not self._ready or bool(
            self._to_line or self._unacked or self._awaits_pong or self._busy
        )
        if self._guest.kernel.virtual and self._ready:
            self._let_run(wanted)
        if self._stopped:
            return
        limit_s = self._hang_s if self._ready else BOOT_LIMIT_S
        if now_s - self._heard_s > limit_s:
            raise NotAvailable(f"the guest did not answer for {limit_s:g} s and was ended")
        if self._ready and not self._awaits_pong and now_s - self._pinged_s > PING_S:
            self._awaits_pong, self._pinged_s = True, now_s
            self._to_guest(encode(Kind.PING))

    @property
    def _busy(self) -> bool:
        """Whether a command runs in the guest."""
        return bool(self._lost) or any(client.running for client in self._clients.values())

    def _let_run(self, wanted: bool) -> None:
        """Continue the guest when it is `wanted`, else stop it.

        Without this, virtual time would run far ahead between commands.
        """
        if wanted == (not self._stopped):
            return
        if self._kernel_pid is None:
            assert self._guest is not None
            children = (
                Path(f"/proc/{self._guest.pid}/task/{self._guest.pid}/children").read_text().split()
            )
            self._kernel_pid = int(children[0])
        with suppress(ProcessLookupError):
            os.kill(self._kernel_pid, signal.SIGCONT if wanted else signal.SIGSTOP)
        self._stopped = not wanted
        self._heard_s = self._pinged_s = time.monotonic()

    # ---- the line

    def _to_guest(self, data: bytes) -> None:
        """Queue a frame for the guest; a long frame goes as a file, whose number is sent."""
        if len(data) > FILE_ABOVE_BYTES:
            assert self._guest is not None
            self._files += 1
            (self._guest.share / f"in-{self._files}").write_bytes(data)
            data = encode(Kind.FILE, 0, str(self._files).encode())
        self._to_line.append(data)
        if self._stopped:
            self._let_run(True)
        self._pump()

    def _pump(self) -> None:
        """Write queued frames to the line, at most LINE_WINDOW_BYTES without acknowledgement."""
        while (
            self._ready
            and self._to_line
            and self._unacked + len(self._to_line[0]) <= LINE_WINDOW_BYTES
        ):
            data = self._to_line.popleft()
            self._unacked += len(data)
            with suppress(OSError):  # the guest is dying: the next `_tick` finds that out
                self._line[0].sendall(data)

    def _read_line(self) -> None:
        try:
            data = self._line[1].recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(self._line[1])
            return
        self._heard_s = time.monotonic()
        for frame in self._parser.feed(data):
            self._from_guest(frame)
        self._pump()

    def _from_guest(self, frame: Frame) -> None:
        if frame.kind is Kind.HELLO and not self._ready:
            self._ready = True
            if self._starter is not None:
                self._send(self._starter, encode(Kind.READY))
        elif frame.kind is Kind.ACK:
            self._unacked -= min(self._unacked, frame.number())
        elif frame.kind is Kind.PONG:
            self._awaits_pong = False
        elif frame.kind in (Kind.STDOUT, Kind.STDERR, Kind.CREDIT, Kind.EXIT, Kind.ERROR):
            self._from_command(frame)

    def _from_command(self, frame: Frame) -> None:
        """Pass a command's frame on to its client, and note the command's end."""
        over = frame.kind in (Kind.EXIT, Kind.ERROR)
        if frame.kind is Kind.EXIT and self._lab is not None:
            inside = frame.json().get("labs", [])
            if inside != self._lab.inside:
                self._lab = replace(self._lab, inside=inside)
                write_record(self._lab)
        client = self._clients.get(frame.channel)
        if client is not None:
            client.running &= not over
            self._send(client, encode(frame.kind, 0, frame.payload))
        elif over:
            self._lost.discard(frame.channel)

    # ---- clients

    def _add_client(self, connection: socket.socket) -> _Client:
        connection.setblocking(False)
        client = _Client(self._next_number, connection)
        self._next_number += 1
        self._clients[client.number] = client
        self._selector.register(
            connection, selectors.EVENT_READ, lambda events: self._serve(client, events)
        )
        return client

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(BlockingIOError):
            self._add_client(self._listener.accept()[0])

    def _serve(self, client: _Client, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(client)
        if not events & selectors.EVENT_READ or client.number not in self._clients:
            return
        try:
            data = client.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(client)
            return
        try:
            for frame in client.parser.feed(data):
                self._from_client(client, frame)
            if client.parser.skipped:
                raise BadInput("these bytes are no frames that a guest's keeper understands")
        except (Ri2nError, OSError, KeyError, TypeError, ValueError) as error:
            if client is self._starter and not self._ready:
                raise NotAvailable(str(error)) from None
            self._send(client, encode(Kind.ERROR, 0, str(error).encode()))
            self._lose(client)

    def _from_client(self, client: _Client, frame: Frame) -> None:
        if frame.kind is Kind.START and client is self._starter:
            self._start(frame.json())
        elif frame.kind is Kind.END:
            self._ending.append(client)
            self.stop("the lab was removed")
        elif not self._ready:
            raise NotAvailable("the guest is not up yet")
        elif frame.kind is Kind.KEEP and client is self._starter and self._lab is not None:
            self._starter = None
            self._lab = replace(self._lab, phase="up")
            write_record(self._lab)
            self._send(client, encode(Kind.KEEP))
        elif frame.kind is Kind.RUN and not client.running:
            client.running = True
            self._to_guest(encode(frame.kind, client.number, frame.payload))
        elif frame.kind in FROM_CLIENTS and client.running:
            self._to_guest(encode(frame.kind, client.number, frame.payload))

    def _send(self, client: _Client, data: bytes) -> None:
        client.todo += data
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        if client.number not in self._clients:
            return
        try:
            while client.todo:
                del client.todo[: client.socket.send(client.todo)]
        except BlockingIOError:
            pass
        except OSError:
            self._lose(client)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.todo else 0)
        self._selector.modify(client.socket, events, lambda events: self._serve(client, events))

    def _lose(self, client: _Client) -> None:
        """Forget a client that went away, and end its command.

        If the guest was for this client alone, the guest ends, too.
        """
        if self._clients.pop(client.number, None) is None:
            return
        self._selector.unregister(client.socket)
        client.socket.close()
        if client.running:
            self._lost.add(client.number)
            self._to_guest(encode(Kind.KILL, client.number))
        if client is self._starter:
            self.stop("the process that started the guest went away")

    # ---- the end

    def _finish(self) -> None:
        """End the guest, remove its folder, and tell all clients."""
        if self._guest is not None:
            self._guest.end()
        if self._listener is not None:
            self._listener.close()
        for end in self._line:
            end.close()
        if self._lab is not None:
            with state.locked(self._lab.name):
                state.remove_folder(self._lab.name)
        for client in self._clients.values():
            last = (
                encode(Kind.END)
                if client in self._ending
                else encode(Kind.ERROR, 0, (self._reason or "").encode())
            )
            client.socket.setblocking(True)
            client.socket.settimeout(1.0)
            with suppress(OSError):
                client.socket.sendall(bytes(client.todo) + last)
            client.socket.close()


def main() -> None:
    """Keep one guest for the client whose descriptor is the first argument."""
    keeper = Keeper(socket.socket(fileno=int(sys.argv[1])))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: keeper.stop("the keeper of the guest was asked to end"))
    keeper.run()


if __name__ == "__main__":
    main()
