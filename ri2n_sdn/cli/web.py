# SPDX-License-Identifier: Apache-2.0
"""`ri2n web`: REST, the GUI and metrics of a controller, in a process of their own."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Annotated

import typer

from ri2n_sdn.cli.common import check_choice, note, number_option, parse_listen
from ri2n_sdn.cli.labs import Where
from ri2n_sdn.client import DEFAULT_SOCKET
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.logs import LOG_FORMATS, LOG_LEVELS, log_lines

__all__ = ["DEFAULT_LISTEN", "LogFormatOption", "LogLevelOption", "web"]

DEFAULT_LISTEN = "127.0.0.1:8420"

LogLevelOption = Annotated[str, typer.Option(help=f"One of {', '.join(LOG_LEVELS)}.")]
LogFormatOption = Annotated[str, typer.Option(help="text, or json: each line is a JSON object.")]


def web(
    at: Where,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Where browsers and scripts connect; port 0 is any free one."
        ),
    ] = DEFAULT_LISTEN,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate and its chain, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's private key, PEM.")
    ] = None,
    require_tokens: Annotated[
        bool,
        typer.Option(
            "--require-tokens",
            help="Show nothing without a token. Otherwise all users of this machine may look.",
        ),
    ] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A further name of this server, as behind a proxy; repeatable."
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="RI2N_WEB_STATE_DIR",
            help="Keep sessions of the GUI here. Default: they end with this process.",
        ),
    ] = None,
    log_level: LogLevelOption = "warning",
    log_format: LogFormatOption = "text",
    requests_per_s: Annotated[
        float,
        number_option("A token, or an address without one, may ask REST so often.", 0.1, "N"),
    ] = 50.0,
    cluster_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What pages call the cluster. Default: the hostname."),
    ] = None,
    no_gui: Annotated[bool, typer.Option("--no-gui", help="REST and metrics alone.")] = False,
    ends_with: Annotated[int | None, typer.Option(hidden=True)] = None,
    demo: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve REST, the GUI and metrics of a controller, until SIGTERM or Ctrl-C.

    It stays in the foreground, and waits for a controller that is not there yet. Other machines are
    served only with TLS and tokens (`ri2n token add`).
    """
    host, port = parse_listen(listen, any_port=True)
    from ri2n_sdn.web.server import serve
    from ri2n_sdn.web.settings import WebSettings

    try:
        path = at.path
    except NotAvailable:
        if at.lab is not None:
            raise
        path = DEFAULT_SOCKET
    check_choice(log_level, LOG_LEVELS, "--log-level")
    check_choice(log_format, LOG_FORMATS, "--log-format")
    log = contextlib.ExitStack()

    def begins() -> None:
        # Below this level, the packages that serve HTTP and WebSockets write what browsers send,
        # with cookies, tokens and what is typed at the login.
        log.enter_context(log_lines(log_level, log_format, others="warning"))

    def ready(settings: WebSettings) -> None:
        if log_format == "json":  # nothing but events is written then
            logging.getLogger("ri2n.web").info("%s (controller: %s)", settings.url, path)
        else:
            note(f"ri2n web: {settings.url} (controller: {path})")

    settings = WebSettings(
        controller_socket=path,
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        require_tokens=require_tokens,
        storage_secret_file=state_dir / "secret" if state_dir is not None else None,
        storage_dir=state_dir / "sessions" if state_dir is not None else None,
        host_names=tuple(host_name or ()),
        gui=not no_gui,
        requests_per_s=requests_per_s,
        demo=demo,
        cluster=cluster_name,
    )
    with log:
        serve(settings, ends_with=ends_with, begins=begins, ready=ready)
