# SPDX-License-Identifier: Apache-2.0
"""The controller's local interface: JSON requests and answers, one per line, on a unix socket."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from ri2n_sdn.apps import local_explain, local_vlans
from ri2n_sdn.apps.asker import ROOT, Asker, Speaker, asker_of, give_to_group, speaker_of
from ri2n_sdn.apps.audit import Audit
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.local_hosts import list_hosts, retire_host
from ri2n_sdn.apps.local_jobs import job_operations
from ri2n_sdn.apps.pairs import pair_document, pairs_page
from ri2n_sdn.apps.parameters import list_parameters, set_parameter
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.apps.vlan_check import check_vlans
from ri2n_sdn.apps.watching import Collector, Watcher, Watching
from ri2n_sdn.client import jobs_socket_of, web_socket_of
from ri2n_sdn.contract import operations
from ri2n_sdn.contract.answers import Events, Nothing, Reloaded, Status
from ri2n_sdn.contract.earlier_status import earlier_status
from ri2n_sdn.contract.operations import OPERATIONS, Request
from ri2n_sdn.contract.refusals import answer_of, refusal
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError
from ri2n_sdn.weights.strategies import strategy

__all__ = ["LocalApi"]

_LOG = logging.getLogger("ri2n.api")
_MAX_REQUEST_BYTES = 1 << 22
_IDLE_S = 60.0
# Users other than root may ask about jobs: each with so many connections at once, and in requests
# of this length, which is more than the longest job needs.
_MAX_CONNECTIONS = 8
# All connections of the web process, and the place where they are counted.
_MAX_WEB_CONNECTIONS = 64
_WEB = -1
STATUS_VERSION = 2
_REFUSE_S = 1.0
_MAX_JOB_REQUEST_BYTES = 1 << 17


class LocalApi:
    """Serves a cluster on a unix socket that only its owner may use.

    A second socket beside it (`client.jobs_socket_of`) is for all users, and answers about jobs
    alone. The kernel says who is at its other end. A third one (`client.web_socket_of`) is for the
    web process, whose requests say for whom they are. With `web_group`, its members may use it.

    `check` and `start_anew` are for the operation `reload`. `check` raises BadInput or NotAvailable
    when a file that a new start reads is wrong. `start_anew` is called after the answer was sent.
    Raises NotAvailable when the socket cannot be made.
    """

    def __init__(
        self,
        cluster: Cluster,
        check: Callable[[], None] = lambda: None,
        start_anew: Callable[[], None] = lambda: None,
        web_group: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._check = check
        self._tokens = Tokens(cluster.memory.store)
        self._audit = Audit()
        collector = Collector(cluster, self._tokens)
        self._open: Counter[int] = Counter()
        self._open_lock = threading.Lock()
        api = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = _IDLE_S

            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    asker = asker_of(self.connection)
                    web = self.server is api._servers[2]
                    with api._place_of(_WEB if web else asker.uid) as there_is_one:
                        if there_is_one:
                            self._serve(asker)
                        else:
                            # A connection that ends unread shows its user no reason.
                            self.connection.settimeout(_REFUSE_S)
                            self.rfile.readline(_MAX_JOB_REQUEST_BYTES)
                            full = answer_of(refusal("connections_full"))
                            self.wfile.write(json.dumps(full).encode() + b"\n")

            def _serve(self, asker: Asker) -> None:
                leases = local_vlans.Leases()
                everything = self.server is not api._servers[1]
                web = self.server is api._servers[2]
                try:
                    with contextlib.suppress(OSError):
                        limit = _MAX_REQUEST_BYTES if everything else _MAX_JOB_REQUEST_BYTES
                        while line := self.rfile.readline(limit):
                            answer = api.answer(line, leases, asker, everything, web)
                            if isinstance(watcher := answer.get("watcher"), Watcher):
                                watcher.serve(self.connection)
                                return
                            self.wfile.write(json.dumps(answer).encode() + b"\n")
                            if answer.get("starts_anew"):
                                start_anew()
                            # A connection with a table stays open as long as the program that
                            # uses the table runs.
                            self.connection.settimeout(
                                None if leases.held(api._cluster) else _IDLE_S
                            )
                finally:
                    leases.end(api._cluster)

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            request_queue_size = 16

        self._servers: list[Server] = []
        path = cluster.socket_path
        self._sockets = (path, jobs_socket_of(path), web_socket_of(path))
        try:
            for path, mask in zip(self._sockets, (0o177, 0o111, 0o177), strict=True):
                _claim(path)
                old_mask = os.umask(mask)
                try:
                    self._servers.append(Server(str(path), Handler))
                except OSError as error:
                    raise NotAvailable(f"--socket {path}: {error.strerror}") from None
                finally:
                    os.umask(old_mask)
            if web_group is not None:
                give_to_group(self._sockets[2], web_group)
        except NotAvailable:
            self._remove_sockets()
            raise
        self._watching = Watching(collector, cluster)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, name="api", daemon=True).start()

    @contextlib.contextmanager
    def _place_of(self, uid: int) -> Iterator[bool]:
        """Whether a user, or _WEB, may have one more connection; root may have any number.

        Each connection is a thread, and the second socket is for everybody.
        """
        limit = _MAX_WEB_CONNECTIONS if uid == _WEB else _MAX_CONNECTIONS
        with self._open_lock:
            self._open[uid] += 1
            granted = uid == 0 or self._open[uid] <= limit
        try:
            yield granted
        finally:
            with self._open_lock:
                self._open[uid] -= 1
                if not self._open[uid]:
                    del self._open[uid]

    def close(self) -> None:
        """Stop serving and remove the sockets."""
        # A server takes half a second to end, so all of them end at once.
        with ThreadPoolExecutor(len(self._servers)) as pool:
            list(pool.map(lambda server: server.shutdown(), self._servers))
        self._remove_sockets()
        self._watching.close()

    def _remove_sockets(self) -> None:
        for server, path in zip(self._servers, self._sockets, strict=False):
            server.server_close()
            path.unlink(missing_ok=True)

    def answer(
        self,
        line: bytes,
        leases: local_vlans.Leases | None = None,
        asker: Asker = ROOT,
        everything: bool = True,
        web: bool = False,
    ) -> dict[str, Any]:
        """The answer to one request: `{"ok": true, ...}` or `{"ok": false, "error": one line}`.

        `leases` are the path tables that this connection holds. `asker` is who asks, and
        `everything` whether about more than jobs. A request of the `web` process says itself who
        asks. The answer to `watch` has a `watcher`, which must be served.
        """
        held = leases if leases is not None else local_vlans.Leases()
        request: Any = None
        speaker: Speaker | None = None

        def note(error: str | None = None) -> None:
            if speaker is not None:
                self._audit.note(speaker.user, speaker.role, "web", request, error)
            elif isinstance(request, dict):
                role = "admin" if asker.uid == 0 else "user"
                self._audit.note(asker.name, role, "cli" if everything else "jobs", request, error)

        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise refusal("request_not_object")
            speaker = speaker_of(request) if web else None
            if speaker is not None:
                asker = speaker.asker()
            elif "as" in request:
                raise refusal("as_not_here", "as")
            known = self._operations(held, asker, everything, web)
            name = request.get("op")
            if not isinstance(name, str) or name not in known:
                raise refusal("not_one_of", "op", choices=list(known))
            if speaker is not None:
                speaker.check(name)
            run = known[name]
            answer = run(request) if OPERATIONS[name].keys else run()
            note()
            return {"ok": True, **answer}
        except Ri2nError as error:
            refused = answer_of(error)
            if not web or speaker is not None:
                note(refused["error"][:300])
            return refused
        except (ValueError, RecursionError):
            return answer_of(refusal("request_not_json"))
        except Exception as error:
            # The operation is one that there is; its arguments may hold a hash.
            name = request.get("op") if isinstance(request, dict) else None
            _LOG.exception("the operation %s failed, which is a mistake in the program", name)
            return answer_of(refusal("internal_error", error=type(error).__name__))

    def _operations(
        self, leases: local_vlans.Leases, asker: Asker, everything: bool, web: bool
    ) -> dict[str, Callable[..., Any]]:
        """The operations by name, for one who asks: those of `contract.operations`."""
        cluster = self._cluster
        jobs = job_operations(cluster, asker)
        if not everything:
            return jobs
        return dict(
            (
                operations.STATUS.by(self._status),
                operations.EXPLAIN.by(partial(local_explain.explain, cluster)),
                operations.STRATEGY.by(partial(self._strategy, asker=asker)),
                operations.EVENTS.by(self._events),
                operations.RELOAD.by(self._reload),
                operations.VLAN_TABLE.by(partial(local_vlans.set_table, cluster, leases=leases)),
                operations.TRAFFIC.by(partial(local_vlans.traffic, cluster)),
                operations.VLAN_CHECK.by(partial(check_vlans, cluster)),
                operations.VLAN_TABLES.by(partial(local_vlans.tables, cluster)),
                # What is sent is not this answer, but what the watcher sends.
                (operations.WATCH.name, partial(self._watch, web)),
                operations.PAIRS.by(partial(pairs_page, cluster)),
                operations.PARAMETERS.by(partial(list_parameters, cluster)),
                operations.PARAMETERS_SET.by(partial(set_parameter, cluster, asker=asker)),
                operations.AUDIT.by(self._audit.document),
                operations.HOST_LIST.by(partial(list_hosts, cluster)),
                operations.HOST_RETIRE.by(partial(retire_host, cluster, asker=asker)),
                operations.TOKEN_ADD.by(self._tokens.add),
                operations.TOKEN_LIST.by(self._tokens.list),
                operations.TOKEN_REMOVE.by(self._tokens.remove),
                *jobs.items(),
            )
        )

    def _watch(self, web: bool) -> dict[str, Watcher]:
        """The state, and then what changes of it, as it changes."""
        return {"watcher": self._watching.join(tokens=web)}

    def _status(self, request: Request) -> Status:
        """All that is known: the state as a watcher gets it, the keys of before, and the pairs.

        A request with `"pairs": false` gets no pairs: their number is the square of the number of
        hosts.
        """
        with_pairs = request.get("pairs", True)
        if not isinstance(with_pairs, bool):
            raise refusal("not_flag", "pairs")
        (state, sample), cluster = self._watching.look(), self._cluster
        with cluster.lock:
            fabric, now_s = cluster.fabric(), time.monotonic()
            reports = {
                name: (reported.age_s(now_s), reported.running_s)
                for name, reported in cluster.measured.reports.items()
            }
            return {
                "version": STATUS_VERSION,
                "sampled_s": state["controller"].get("sampled_s"),
                "state": state,
                "uptime_s": now_s - cluster.started_s,
                "jobs": dict(Counter(state for state, _ in cluster.jobs.states.values())),
                **earlier_status(state, reports),
                "pairs": [
                    pair_document(cluster, fabric, sample, sender, receiver)
                    for sender in (sorted(fabric.hosts) if with_pairs else ())
                    for receiver in sorted(fabric.hosts)
                    if sender != receiver and fabric.paths(sender, receiver)
                ],
            }

    def _strategy(self, request: Request, asker: Asker) -> Nothing:
        """Change the strategy from the next round on."""
        name = request.get("name")
        if not isinstance(name, str):
            raise refusal("not_strategy_name", "name")
        strategy(name)
        set_parameter(self._cluster, {"name": "strategy", "value": name}, asker)
        return {}

    def _reload(self) -> Reloaded:
        """Check all files that a new start reads, and then start anew in the same process."""
        try:
            self._check()
        except BadInput as error:
            raise refusal("file_wrong", why=str(error)) from None
        return {"starts_anew": True}

    def _events(self, request: Request) -> Events:
        """The newest events, or those after the number `since`."""
        since = request.get("since", 0)
        if not isinstance(since, int):
            raise refusal("not_number", "since")
        with self._cluster.lock:
            return {"events": [event for event in self._cluster.events if event["seq"] > since]}


def _claim(path: Path) -> None:
    """Remove the socket that an ended controller left.

    Raises NotAvailable when another controller listens there, or when the file is no socket.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return
    if not path.is_socket():
        raise NotAvailable(f"--socket {path}: a file is there that is no socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise NotAvailable(f"--socket {path}: {error.strerror or error}") from None
    raise NotAvailable(f"--socket {path}: another controller listens there")
