"""Start the controller (configuration, OpenFlow listener, seven apps, local interface) and run until told to stop."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.config import load_cluster_config
from ri2n_sdn.apps.connection import ConnectionApp
from ri2n_sdn.apps.discovery import DiscoveryApp
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.openflow import listen, start_apps
from ri2n_sdn.apps.placement import PlacementApp
from ri2n_sdn.apps.striping import StripingApp
from ri2n_sdn.apps.telemetry import TelemetryApp
from ri2n_sdn.apps.trunk import TrunkApp
from ri2n_sdn.apps.vlans import VlanApp
from ri2n_sdn.errors import BadInput

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

    Returns 0, or 1 when one of its parts failed for good. Hosts keep what is installed when it ends, however it ends.
    """
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    for noisy in ("os_ken.base.app_manager", "os_ken.controller.controller"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    config = load_cluster_config(options.config_path)
    try:
        cluster = Cluster(config, options.strategy or config.strategy, options.socket_path)
    except ValueError as error:  # no trees can be made of the declared switches
        raise BadInput(f"{options.config_path}: {error}") from None
    server_apps = listen(options.listen_host, options.listen_port, options.tls_key, options.tls_cert, options.tls_ca)
    api = LocalApi(cluster)
    apps = (ConnectionApp, DiscoveryApp, TelemetryApp, TrunkApp, StripingApp, VlanApp, PlacementApp)
    for app in apps:
        app.cluster = cluster
    start_apps([*server_apps, *apps])
    _LOG.info("listening on %s:%d, strategy %s", options.listen_host, options.listen_port, cluster.strategy)

    def stop(number: int, frame: FrameType | None) -> None:
        cluster.stop.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
    # An untimed wait would keep the main thread from running signal handlers on some platforms.
    while not cluster.stop.wait(1.0):
        pass
    with contextlib.suppress(OSError):
        api.close()
    return 1 if cluster.failed else 0
