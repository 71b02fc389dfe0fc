# SPDX-License-Identifier: Apache-2.0
"""`ri2n controller` and `ri2n reload`: run the controller, and have it read its files again."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from ri2n_sdn.addresses import is_loopback
from ri2n_sdn.cli.common import check_choice, parse_listen, tries
from ri2n_sdn.cli.labs import Where
from ri2n_sdn.cli.web import DEFAULT_LISTEN, LogFormatOption, LogLevelOption
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.imports import imports_that_stay
from ri2n_sdn.logs import LOG_FORMATS, LOG_LEVELS

__all__ = ["controller", "reload"]

RELOAD_S = 60.0
STATE_DIR_VARIABLE = "RI2N_STATE_DIR"


def controller(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where hosts connect (OpenFlow).")
    ] = "127.0.0.1:6653",
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="cluster.yaml; see docs/operations.md. Not needed."),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help=f"How weights are computed: {', '.join(STRATEGIES)}. Default: the file's, else "
            "max_min."
        ),
    ] = None,
    socket: Annotated[
        Path,
        typer.Option(envvar="RI2N_SOCKET", help="Unix socket for `ri2n status`, `explain`, ..."),
    ] = Path("/run/ri2n-controller/controller.sock"),
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar=STATE_DIR_VARIABLE,
            help="What must survive a restart is kept here. Default: /var/lib/ri2n/controller.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET,...",
            help="Keep it in these ovsdb-servers instead: unix:PATH, tcp:ADDRESS:PORT or "
            "ssl:ADDRESS:PORT; or `none`.",
        ),
    ] = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Private key; hosts use ssl:. For ssl: stores, too."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="This controller's certificate.")
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA of the hosts' certificates.")
    ] = None,
    web_group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="The group of the web process, which may use the socket for it. Default: none.",
        ),
    ] = None,
    web: Annotated[
        bool,
        typer.Option(
            "--web",
            help="Run `ri2n web` as well, as the user ri2n-web if root starts this and that user "
            "exists.",
        ),
    ] = False,
    web_listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where --web listens, on this machine alone."),
    ] = DEFAULT_LISTEN,
) -> int:
    """Run the controller until SIGTERM or Ctrl-C.

    It stays in the foreground and logs to stderr. Hosts keep forwarding while it does not run, and
    a new start takes over what is installed. When it has no terminal, SIGHUP does the same as
    `ri2n reload`.
    """
    host, port = parse_listen(listen)
    if strategy is not None:
        check_choice(strategy, STRATEGIES, "--strategy")
    check_choice(log_level, LOG_LEVELS, "--log-level")
    check_choice(log_format, LOG_FORMATS, "--log-format")
    tls_files = {"--tls-key": tls_key, "--tls-cert": tls_cert, "--tls-ca": tls_ca}
    missing = [name for name, path in tls_files.items() if path is None]
    if 0 < len(missing) < len(tls_files):
        raise BadInput(f"{missing[0]} is missing: TLS needs --tls-key, --tls-cert and --tls-ca")
    for name, path in tls_files.items():
        if path is not None and not path.is_file():
            raise BadInput(f"{name} {path}: no such file")
    if web:
        web_host, _ = parse_listen(web_listen, "--web-listen")
        if not is_loopback(web_host):
            raise BadInput(
                f"--web-listen {web_listen}: is for this machine alone; other machines need TLS "
                "and tokens: run `ri2n web`"
            )
    if store is not None and state_dir is not None:
        # The environment may name a folder for whatever is run, as the package's unit does.
        if str(state_dir) != os.environ.get(STATE_DIR_VARIABLE):
            raise BadInput("--store: cannot be combined with --state-dir")
        state_dir = None

    with imports_that_stay():
        from ri2n_sdn.apps.launcher import ControllerOptions, run
        from ri2n_sdn.apps.memory import MemoryOptions
        from ri2n_sdn.store.link import TlsFiles

    tls = TlsFiles(tls_key, tls_cert, tls_ca) if tls_key and tls_cert and tls_ca else None

    return run(
        ControllerOptions(
            listen_host=host,
            listen_port=port,
            config_path=config,
            strategy=strategy,
            socket_path=socket,
            tls_key=tls_key,
            tls_cert=tls_cert,
            tls_ca=tls_ca,
            log_level=log_level,
            log_format=log_format,
            memory=MemoryOptions(state_dir, store, tls),
            web_group=web_group,
            web_listen=web_listen if web else None,
        )
    )


def reload(at: Where) -> None:
    """Let the controller read cluster.yaml and its certificates again.

    If one of them is wrong, the command says so and the controller goes on with what it has. Hosts
    keep forwarding and connect again.
    """
    path = at.path
    asked_s = time.monotonic()
    call(path, ops.RELOAD, timeout_s=RELOAD_S)
    for _ in tries(RELOAD_S, 0.05):
        since_s = time.monotonic() - asked_s
        with contextlib.suppress(NotAvailable):
            status = call(path, ops.STATUS, pairs=False)
            if status["uptime_s"] < since_s:
                print(f"reloaded: strategy {status['state']['controller']['strategy']}")
                return
    raise NotAvailable(f"the controller has not come back within {RELOAD_S:g} s; its log shows why")
