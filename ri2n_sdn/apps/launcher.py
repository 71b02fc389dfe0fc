"""Start the controller (configuration, OpenFlow listener, seven apps, local interface) and run
until told to stop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import ssl
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.config import ClusterConfig, load_cluster_config
from ri2n_sdn.apps.connection import ConnectionApp
from ri2n_sdn.apps.discovery import DiscoveryApp
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.openflow import listen, start_apps, tls_context
from ri2n_sdn.apps.placement import PlacementApp
from ri2n_sdn.apps.striping import StripingApp
from ri2n_sdn.apps.telemetry import TelemetryApp
from ri2n_sdn.apps.trunk import TrunkApp
from ri2n_sdn.apps.vlans import VlanApp
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["ControllerOptions", "run"]

_LOG = logging.getLogger("ri2n")


@dataclass(frozen=True)
class ControllerOptions:
    """What the command line says; `strategy` None: the configuration's."""

    listen_host: str
    listen_port: int
    config_path: Path | None
    strategy: str | None
    socket_path: Path
    tls_key: Path | None = None
    tls_cert: Path | None = None
    tls_ca: Path | None = None
    log_level: str = "info"


def run(options: ControllerOptions) -> int:
    """Run until SIGTERM or SIGINT. Raises BadInput or NotAvailable before anything is served.

    Returns 0, or 1 when one of its parts failed for good. Hosts keep what is installed when it
    ends, however it ends. SIGHUP and `ri2n reload` start it anew in its place, if its files are
    right.
    """
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    for noisy in ("os_ken.base.app_manager", "os_ken.controller.controller"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    cluster = _cluster(options, load_cluster_config(options.config_path))
    server_apps = listen(options.listen_host, options.listen_port, _tls(options))
    anew = _Anew(options, cluster)
    api = LocalApi(cluster, anew.check, anew.go)
    apps = (ConnectionApp, DiscoveryApp, TelemetryApp, TrunkApp, StripingApp, VlanApp, PlacementApp)
    for app in apps:
        app.cluster = cluster
    start_apps([*server_apps, *apps])
    _LOG.info(
        "listening on %s:%d, strategy %s",
        options.listen_host,
        options.listen_port,
        cluster.strategy,
    )

    hung_up = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        cluster.wake.stop.set()

    def hang_up(number: int, frame: FrameType | None) -> None:
        hung_up.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        if not os.isatty(0):  # a terminal that goes away ends what was started in it
            signal.signal(signal.SIGHUP, hang_up)
    # An untimed wait would keep the main thread from running signal handlers on some platforms.
    while not cluster.wake.stop.wait(1.0):
        if hung_up.is_set():
            hung_up.clear()
            with contextlib.suppress(BadInput, NotAvailable):  # told in the log and in `status`
                anew.check()
                anew.go()
    with contextlib.suppress(OSError):
        api.close()
    if anew.goes:
        _LOG.info("starting anew")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the new start listens to it
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 1 if cluster.failed else 0


class _Anew:
    """A new start in the same process, as with `kill -9`: hosts keep what they have, and nothing
    has to be undone.

    So that what is wrong in a file ends nothing, all that a start reads is tried before. What was
    wrong stands in `status` until a later try finds all right.
    """

    def __init__(self, options: ControllerOptions, cluster: Cluster) -> None:
        self._options, self._cluster = options, cluster
        self.goes = False

    def check(self) -> None:
        """Raises BadInput or NotAvailable, and nothing changes."""
        try:
            _cluster(self._options, load_cluster_config(self._options.config_path))
            _tls(self._options)
        except (BadInput, NotAvailable) as error:
            with self._cluster.lock:
                self._cluster.faults["not reloaded"] = str(error)
                self._cluster.note(f"not reloaded: {error}")
            raise

    def go(self) -> None:
        """Let `run` end by starting anew."""
        self.goes = True
        self._cluster.wake.stop.set()


def _cluster(options: ControllerOptions, config: ClusterConfig) -> Cluster:
    try:
        return Cluster(config, options.strategy or config.strategy, options.socket_path)
    except ValueError as error:  # no trees can be made of the declared switches
        raise BadInput(f"{options.config_path}: {error}") from None


def _tls(options: ControllerOptions) -> ssl.SSLContext | None:
    if options.tls_key is None or options.tls_cert is None:
        return None
    return tls_context(options.tls_key, options.tls_cert, options.tls_ca)
