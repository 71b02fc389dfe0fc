# SPDX-License-Identifier: Apache-2.0
"""Starts the controller, with its OpenFlow listener, apps and local interface, and ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from ri2n_sdn.apps.charge import Charge
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.config import ClusterConfig, load_cluster_config
from ri2n_sdn.apps.connection import ConnectionApp
from ri2n_sdn.apps.discovery import DiscoveryApp
from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.apps.jobs import JobsApp
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.memory import MemoryOptions, open_memory
from ri2n_sdn.apps.openflow import listen, start_apps, tls_context
from ri2n_sdn.apps.placement import PlacementApp
from ri2n_sdn.apps.remember import Rememberer
from ri2n_sdn.apps.remembered import remembered
from ri2n_sdn.apps.striping import StripingApp
from ri2n_sdn.apps.telemetry import TelemetryApp
from ri2n_sdn.apps.trunk import TrunkApp
from ri2n_sdn.apps.vlans import VlanApp
from ri2n_sdn.apps.web_child import WebChild, web_user
from ri2n_sdn.certificates import first_end_s
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.logs import LogLines, log_lines
from ri2n_sdn.service import notify

__all__ = ["ControllerOptions", "run"]

_LOG = logging.getLogger("ri2n")


@dataclass(frozen=True)
class ControllerOptions:
    """The options of the command line. `strategy` None stands for the one of cluster.yaml.

    `web_listen` is where a web process of this controller listens; None: it has none.
    """

    listen_host: str
    listen_port: int
    config_path: Path | None
    strategy: str | None
    socket_path: Path
    tls_key: Path | None = None
    tls_cert: Path | None = None
    tls_ca: Path | None = None
    log_level: str = "info"
    log_format: str = "text"
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    web_group: str | None = None
    web_listen: str | None = None

    @property
    def name(self) -> str:
        """The controller's name for people: its machine's, and where it listens."""
        return f"{socket.gethostname()} ({self.listen_host}:{self.listen_port})"


def run(options: ControllerOptions) -> int:
    """Run the controller until SIGTERM or SIGINT, and return its exit code.

    The code is 1 when one of the controller's parts failed for good, else 0. Hosts keep what is
    installed, however the controller ends. SIGHUP and `ri2n reload` start it anew in the same
    process, if its files are right. Raises BadInput or NotAvailable before anything is served.
    """
    with log_lines(options.log_level, options.log_format) as log:
        for noisy in ("os_ken.base.app_manager", "os_ken.controller.controller"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        cluster = _cluster(options, load_cluster_config(options.config_path))
        tls = _tls(options)
        if tls is not None:
            cluster.certificate_ends_s = first_end_s(options.tls_cert, options.tls_ca)
        memory = open_memory(options.memory, options.name)
        try:
            cluster.memory = memory
            if not memory.common:
                cluster.remember(remembered(memory.state()))
            return _serve(options, cluster, tls, log)
        finally:
            memory.close()


def _serve(
    options: ControllerOptions, cluster: Cluster, tls: ssl.SSLContext | None, log: LogLines
) -> int:
    cluster.jobs.book = JobBook(cluster.memory.store)
    server_apps = listen(options.listen_host, options.listen_port, tls)
    restart = _Restart(options, cluster)
    user = web_user() if options.web_listen is not None else None
    web_group = options.web_group or (user.group if user is not None else None)
    api = LocalApi(cluster, restart.check, restart.go, web_group)
    charge = Charge(cluster, options.name, restart.go)
    ConnectionApp.charge = DiscoveryApp.charge = charge
    apps = (
        *(ConnectionApp, DiscoveryApp, TelemetryApp, TrunkApp),
        *(StripingApp, VlanApp, PlacementApp, JobsApp),
    )
    for app in apps:
        app.cluster = cluster
    start_apps([*server_apps, *apps])
    charge.start()
    if cluster.memory.store is not None:
        Rememberer(cluster, cluster.memory.store).start()
    _LOG.info(
        "listening on %s:%d, strategy %s",
        options.listen_host,
        options.listen_port,
        cluster.strategy,
    )

    web = None
    if options.web_listen is not None:
        web = WebChild(options.socket_path, options.web_listen, user, options.log_format)
        web.start()
    hung_up = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: cluster.wake.stop.set())
        # With a terminal, SIGHUP keeps its meaning: a terminal that closes ends the controller.
        if not os.isatty(0):
            signal.signal(signal.SIGHUP, lambda *_: hung_up.set())
    notify("READY=1")
    # An untimed wait would keep the main thread from running signal handlers on some platforms.
    while not cluster.wake.stop.wait(1.0):
        _tell_watchdog(cluster)
        if hung_up.is_set():
            hung_up.clear()
            # What is wrong stands in the log and in `ri2n status`.
            with contextlib.suppress(BadInput, NotAvailable):
                restart.check()
                restart.go()
    if web is not None:
        web.stop(at_once=restart.wanted)
    with contextlib.suppress(OSError):
        api.close()
    if restart.wanted:
        _LOG.info("starting anew")
        # SIGHUP is ignored until the new start has its handler.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        cluster.memory.close()
        log.tell()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 1 if cluster.failed else 0


def _tell_watchdog(cluster: Cluster) -> None:
    """Tell systemd that the controller is well, as long as its threads go on.

    A thread that hangs while it holds the lock stops all others. Nothing in the process can repair
    that, so nothing is told, and systemd starts the controller anew. A thread that hangs without
    the lock concerns one host or one client, and those have limits of their own.
    """
    if cluster.lock.acquire(timeout=1.0):
        cluster.lock.release()
        notify("WATCHDOG=1")


class _Restart:
    """A new start in the same process. Nothing is undone first: hosts keep what they have.

    All files that a start reads are checked before, so that an error in one does not end the
    controller. The error stands in `ri2n status` until a later start succeeds.
    """

    def __init__(self, options: ControllerOptions, cluster: Cluster) -> None:
        self._options, self._cluster = options, cluster
        self.wanted = False

    def check(self) -> None:
        """Read all files as a start would. Raises BadInput or NotAvailable, and changes nothing."""
        try:
            _cluster(self._options, load_cluster_config(self._options.config_path))
            _tls(self._options)
        except (BadInput, NotAvailable) as error:
            with self._cluster.lock:
                self._cluster.faults["not_reloaded"] = str(error)
                self._cluster.note("not_reloaded", error=str(error))
            raise

    def go(self) -> None:
        """Make `run` start the controller anew."""
        self.wanted = True
        self._cluster.wake.stop.set()


def _cluster(options: ControllerOptions, config: ClusterConfig) -> Cluster:
    try:
        return Cluster(config, options.strategy or config.strategy, options.socket_path)
    except ValueError as error:
        # No trees can be made of the declared switches.
        raise BadInput(f"{options.config_path}: {error}") from None


def _tls(options: ControllerOptions) -> ssl.SSLContext | None:
    if options.tls_key is None or options.tls_cert is None:
        return None
    return tls_context(options.tls_key, options.tls_cert, options.tls_ca)
