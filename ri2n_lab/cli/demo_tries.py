# SPDX-License-Identifier: Apache-2.0
"""Things to try in a demo, each by a command and by a button.

The same again undoes what lasts: the cut, the job, the helpers, the fast path. All is done by the
demo's own process, which listens on a Unix socket in the lab's folder. Nobody but root can connect.
Only a demo has such a socket; the product's processes know nothing of it.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ri2n_lab.cli.demo_traffic import JOB_USER, Traffic
from ri2n_lab.cli.demo_web import SOCKET
from ri2n_lab.cluster.fast_paths import find_fast_program
from ri2n_lab.cluster.helpers import find_program
from ri2n_lab.cluster.run import CommandFailed
from ri2n_lab.cluster.unix_path import socket_path
from ri2n_sdn.client import call
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.contract.protocol import MAX_LINE_BYTES, object_in
from ri2n_sdn.contract.refusals import answer_of
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError
from ri2n_sdn.shipped import host_script

if TYPE_CHECKING:
    from ri2n_lab.cluster import Lab

__all__ = ["KEYS", "ROOM", "Tries"]

KEYS = ("cut", "controller", "job", "strategy", "helpers", "fast")
"""The names of the tries."""

ROOM = "room"
"""What the web process asks first: which tries there are, and how they stand."""

JOB = "demo"
RESTART_S = 10.0
"""So long nobody controls the cluster. A service manager would start the controller at once."""

ANSWER_S = 5
SCRIPT_S = 120.0
SETUP_S = 3600.0
READY_S = 120.0
BESIDE_S = 10.0
"""So long an answer waits until all pairs of hosts have the new way, which follows from rows."""
POLL_S = 0.1


class _Try(NamedTuple):
    title: str
    about: str
    do: Callable[[], str]
    is_on: Callable[[], bool]


class Tries:
    """The tries of one demo; a context manager, in which its socket listens."""

    def __init__(
        self,
        lab: Lab,
        server: str,
        clients: list[str],
        streams: int,
        traffic: Traffic,
        program: str = "ri2n",
    ) -> None:
        """The client with the most NICs is the one with which something happens.

        `program` is what calls `ri2n` in another terminal.
        """
        self._lab, self._server, self._clients = lab, server, clients
        self._streams, self._traffic = streams, traffic
        self._program = program
        nics = {client: lab.topology.hosts[client].nics for client in clients}
        self._client = max(clients, key=lambda client: len(nics[client]))
        self._nic = nics[self._client][-1].name
        self._path = lab.run_dir / SOCKET
        self._one_at_a_time = threading.Lock()
        self._ends = threading.Event()
        self._job = self._helping = False
        self._server_thread: _Server | None = None

    def __enter__(self) -> Tries:
        with socket_path(self._path) as path:
            self._server_thread = _Server(path, self)
        self._path.chmod(0o600)
        threading.Thread(target=self._server_thread.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        if self._server_thread is not None:
            self._server_thread.shutdown()
            self._server_thread.server_close()
        # What is under way ends before the lab is removed, unless it hangs.
        if self._one_at_a_time.acquire(timeout=RESTART_S):
            self._one_at_a_time.release()

    def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to a request, which is one line."""
        request = object_in(line) or {}
        try:
            if request.get("op") == ROOM:
                return {"ok": True, "lab": self._lab.name, "tries": self.described()}
            if request.get("op") == "try":
                return {"ok": True, "text": self.do(str(request.get("name")))}
            raise BadInput(f"op: must be {ROOM} or try")
        except Ri2nError as error:
            return answer_of(error)
        except Exception:
            # The demo goes on; its terminal shows what is wrong with it.
            traceback.print_exc()
            return answer_of(NotAvailable("the demo failed at this; its terminal says more"))

    def described(self) -> list[dict[str, Any]]:
        """All tries, in the order in which they are best tried."""
        return [
            {
                "name": name,
                "title": each.title,
                "about": each.about,
                "command": f"{self._program} demo --lab {self._lab.name} --try {name}",
                "on": each.is_on(),
            }
            for name, each in self._all().items()
        ]

    def do(self, name: str) -> str:
        """Do what is to be tried, or undo it if it lasts and is done, and say what becomes of it.

        Raises BadInput for another name, and NotAvailable when it cannot be done now.
        """
        each = self._all().get(name)
        if each is None:
            raise BadInput(f"--try: unknown {name!r}; choose from {', '.join(KEYS)}")
        if not self._one_at_a_time.acquire(blocking=False):
            raise NotAvailable("something else is being tried: wait until it is done")
        try:
            if self._ends.is_set():
                raise NotAvailable("the demo ends")
            return each.do()
        except CommandFailed as error:
            raise NotAvailable(str(error)) from None
        finally:
            self._one_at_a_time.release()

    def _all(self) -> dict[str, _Try]:
        client, server, nic = self._client, self._server, self._nic
        return {
            "cut": _Try(
                f"Cut a link of {client}",
                f"The cable of {client}:{nic} is pulled; {client} goes on by its other links.",
                self._cut,
                lambda: bool(self._lab.faults()),
            ),
            "controller": _Try(
                "Kill the controller",
                f"The controller is killed, and started again after {RESTART_S:.0f} s. Traffic"
                " goes on, and hosts keep away from dead links by themselves.",
                self._kill_controller,
                lambda: False,
            ),
            "job": _Try(
                f"Begin a job of user {JOB_USER}",
                f"One stream of user {JOB_USER} from {client} to {server}, with a path that"
                " nobody else uses at these hosts: policy exclusive. See Jobs and Traffic.",
                self._toggle_job,
                lambda: self._job,
            ),
            "strategy": _Try(
                "Change the strategy",
                f"The next one of {', '.join(STRATEGIES)} is in force. See Traffic.",
                self._change_strategy,
                lambda: False,
            ),
            "helpers": _Try(
                "Turn on helpers, and see one stream",
                f"All hosts run ri2n-reorder, and {client} alone sends one TCP stream: it uses"
                f" all links of {client}, packet by packet.{_installs('ri2n-reorder')}",
                self._toggle_helpers,
                lambda: self._helping,
            ),
            "fast": _Try(
                "Turn on the fast path",
                "All hosts run ri2n-fast beside Open vSwitch: programs in the kernel carry what"
                " hosts send each other, and the bridges see none of it. Traffic stays as it is."
                f" See Network.{_installs('ri2n-fast')}",
                self._toggle_fast,
                lambda: self._lab.has_fast,
            ),
        }

    # ---- what they do

    def _cut(self) -> str:
        if self._lab.faults():
            self._lab.restore_all()
            return "all links are whole again"
        self._lab.fault("nic_down", host=self._client, nic=self._nic)
        return f"{self._client}:{self._nic} is cut; the same again repairs it"

    def _kill_controller(self) -> str:
        status = self._status()
        os.kill(int(status["pid"]), signal.SIGKILL)
        strategy = str(status["strategy"])

        def restart() -> None:
            self._ends.wait(RESTART_S)
            with self._one_at_a_time:
                if not self._ends.is_set():
                    self._lab.start_controller(strategy=strategy)

        threading.Thread(target=restart, daemon=True).start()
        return f"the controller is dead; it is started again in {RESTART_S:.0f} s"

    def _toggle_job(self) -> str:
        hosts = [self._client, self._server]
        if self._job:
            self._traffic.end_job()
            for host in hosts:
                self._job_script(host, "job-end", "--id", JOB, "--if-known")
            self._job = False
            return f"the job of user {JOB_USER} has ended; everybody uses all paths again"
        self._status()
        self._job = True
        # The job is whole when both hosts have declared it, so only the second round waits.
        for wait in ((), ("--wait", str(ANSWER_S))):
            for host in hosts:
                who = ("--user", str(JOB_USER), "--hosts", ",".join(hosts))
                self._job_script(
                    host, "job-begin", "--id", JOB, *who, "--policy", "exclusive", *wait
                )
        self._traffic.begin_job(self._client)
        return (
            f"job {JOB} of user {JOB_USER} has begun on {' and '.join(hosts)}, and sends one "
            "stream by a path of its own; the same again ends it"
        )

    def _change_strategy(self) -> str:
        now = str(self._status()["strategy"])
        following = STRATEGIES[(STRATEGIES.index(now) + 1) % len(STRATEGIES)]
        call(self._lab.controller_socket, "strategy", name=following)
        return f"{following} is in force; before it was {now}"

    def _toggle_helpers(self) -> str:
        if self._helping:
            for host in self._lab.helpers.hosts:
                self._lab.helpers.stop(host)
            self._traffic.change(self._clients, self._streams)
            self._helping = False
            return f"helpers are off, and all clients send again{self._beside()}"
        self._status()
        if _is_missing("ri2n-reorder"):
            _install("ri2n-reorder")
        self._lab.add_helpers()
        self._lab.wait_ready(READY_S)
        self._traffic.change([self._client], 1)
        self._helping = True
        return (
            f"helpers run; {self._client} sends one stream by all its links{self._beside()}; the "
            "same again turns them off"
        )

    def _toggle_fast(self) -> str:
        if self._lab.has_fast:
            self._lab.remove_fast_paths()
            way = "the bridges and the helpers" if self._helping else "the bridges"
            return f"the fast path is off, its programs are removed: all packets go through {way}"
        self._status()
        if _is_missing("ri2n-fast"):
            _install("ri2n-fast")
        self._lab.add_fast_paths()
        self._lab.wait_ready(READY_S)
        explain = f"ri2n explain {self._client} {self._server} --proto tcp --dport 5201"
        return (
            f"the fast path is on{self._beside()}; see `ri2n status`, "
            f"`ri2n host show {self._client}` and `{explain}` with --lab {self._lab.name}, or the "
            "details of a host on the page Network; the same again turns it off"
        )

    def _beside(self) -> str:
        """What passes beside the bridges now, to go on a sentence; empty without a fast path.

        The programs follow the bridges' rows, which follow the controller: they get some seconds.
        """
        if not self._lab.has_fast:
            return ""
        paths = self._lab.fast_paths
        pairs = len(paths.hosts) * (len(paths.hosts) - 1)
        wanted = "striped_tcp" if self._helping else "carried"
        deadline_s = time.monotonic() + BESIDE_S
        while True:
            try:
                says = [paths.status(host)["peers"] for host in paths.hosts]
            except NotAvailable as error:
                return f"; {error}"  # what was to be done is done
            count = {way: sum(peers[way] for peers in says) for way in ("carried", "striped_tcp")}
            if count[wanted] == pairs or time.monotonic() > deadline_s or self._ends.wait(POLL_S):
                break
        parts = []
        if count["carried"]:
            parts.append(f"packets of {count['carried']} of {pairs} pairs pass beside the bridges")
        if count["striped_tcp"]:
            parts.append(
                f"TCP of {count['striped_tcp']} of {pairs} pairs is striped beside the bridges, "
                "and what else these send goes through their helpers, but for slow flows"
            )
        if left := pairs - sum(count.values()):
            way = "the bridges and the helpers" if self._helping else "the bridges"
            parts.append(f"packets of {left} pairs go through {way}")
        return f"; {'; '.join(parts)}"

    def _status(self) -> dict[str, Any]:
        """The controller's status; NotAvailable while it is dead, or starts."""
        try:
            return call(self._lab.controller_socket, "status", pairs=False)
        except NotAvailable:
            raise NotAvailable("the controller is dead: wait until it runs again") from None

    def _job_script(self, host: str, name: str, *arguments: str) -> None:
        from ri2n_lab.cluster import ovs

        database = ("--db", ovs.database(self._lab.run_dir / host))
        command = [str(host_script(name)), *arguments, *database]
        self._lab.exec(host, command, timeout_s=SCRIPT_S)


def _is_missing(program: str) -> bool:
    """Whether one of the two programs that `./dev setup` builds is not there."""
    find = {"ri2n-reorder": find_program, "ri2n-fast": find_fast_program}[program]
    try:
        find()
    except NotAvailable:
        return True
    return False


def _installs(program: str) -> str:
    """What a try says of that program where it is missing."""
    if not _is_missing(program):
        return ""
    return (
        f" The program {program} is not there: this first runs `./dev setup`, which installs a Rust"
        " compiler and compiles it, in some minutes."
    )


def _install(program: str) -> None:
    """Let the checkout build that program. Raises NotAvailable when it does not."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "dev").exists():
        raise NotAvailable(f"{program} is missing: install the package ri2n-host")
    try:
        done = subprocess.run(
            [str(root / "dev"), "setup"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SETUP_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailable(f"./dev setup: {error}") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise NotAvailable(f"./dev setup failed: {' '.join(last)}")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers requests, one line each, on a Unix socket."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, tries: Tries) -> None:
        self.tries = tries
        super().__init__(path, _Handler)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Answer each request of a connection."""
        assert isinstance(self.server, _Server)
        while line := self.rfile.readline(MAX_LINE_BYTES):
            self.wfile.write(json.dumps(self.server.tries.answer(line)).encode() + b"\n")
