# SPDX-License-Identifier: Apache-2.0
"""`ri2n cp` and `ri2n serve`: copies of files over several links at once.

They are for users who may not touch the network.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import resource
import secrets
import signal
import socket
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_parallel.cli.output import note, print_json, rate_text, terminate_as_interrupt
from ri2n_parallel.cli.progress import copy_progress, size_text
from ri2n_parallel.errors import BadInput, NotAvailable, UserError

if TYPE_CHECKING:
    from ri2n_parallel import ParallelSocket
    from ri2n_parallel.copy import Remote, Server, Summary

__all__ = ["cp", "serve"]

DEFAULT_LISTEN = "0.0.0.0:7000"
MAX_TOKEN_BYTES = 4096
MADE_TOKEN_BYTES = 20
"""160 random bits: nobody can guess them, even by trying words without the server."""
GOODBYE_S = 2.0
"""The time in which a client's last bytes have to be acknowledged before it leaves."""
MAX_LINES_PER_S = 10
MAX_NAMED_FAILURES = 20
LISTENER_COUNTERS = ("tokens_missing", "tokens_wrong", "greetings_timed_out", "pending_dropped")
"""Counters of the listener, of clients that were not let in, which the last line also shows."""

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help="A file with the token that clients must know; it never travels."
    ),
]


def cp(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC... DST",
            help="Local paths and HOST[:PORT]:NAME; either all SRC or DST is remote.",
        ),
    ],
    recursive: Annotated[bool, typer.Option("-r", "--recursive", help="Directories too.")] = False,
    preserve: Annotated[
        bool, typer.Option("-p", "--preserve", help="Keep mode and mtime.")
    ] = False,
    streams: Annotated[
        int, typer.Option("--streams", min=1, max=64, help="Connections side by side.")
    ] = 6,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", metavar="ADDR", help="Own address to leave from; once for each link."
        ),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            metavar="CIDR",
            help="The server's other addresses may be there, behind routers.",
        ),
    ] = None,
    token_file: TokenOption = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", help="TLS: the certificate that signed the server's, or the server's own."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1.0, help="Seconds of silence before giving up.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Copy files to or from a host that runs `ri2n serve`, over several links at once.

    An interrupted copy goes on where it stopped when the same command runs again; what is there is
    compared by checksums. A file gets its name when the whole file is there and right.
    """
    from ri2n_parallel.copy import Session, Watch, download, parse_remote, upload

    if len(paths) < 2:
        raise BadInput("give at least one SRC and a DST")
    remotes = [parse_remote(path) for path in paths]
    server, is_upload = _server_of(paths, remotes)
    token = _read_token(token_file)
    context = _client_context(ca)
    for cidr in network or ():
        _check_network(cidr)
    started_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        if is_upload:
            for path in paths[:-1]:
                if not Path(path).exists():
                    raise BadInput(f"{path}: no such file or directory")
        connection = _connect(server, streams, source, network, token, context, timeout)
        stack.callback(_leave, connection)
        progress = stack.enter_context(copy_progress(lambda: _links_up(connection)))
        watch = Watch(progress.set_total, progress.begin, progress.arrived)
        try:
            session = Session(connection, timeout)
            if is_upload:
                assert remotes[-1] is not None
                summary = upload(
                    session,
                    [Path(path) for path in paths[:-1]],
                    remotes[-1].name,
                    recursive=recursive,
                    preserve=preserve,
                    watch=watch,
                )
            else:
                summary = download(
                    session,
                    [remote.name for remote in remotes if remote is not None],
                    paths[-1],
                    recursive=recursive,
                    preserve=preserve,
                    watch=watch,
                )
        except OSError as error:
            raise _lost(server, error) from None
        seconds = time.monotonic() - started_s
        links = _links(connection)
    _report(summary, seconds, links, as_json)


def serve(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory that clients see.")
    ],
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDR:PORT", help="Port 0: any free one.")
    ] = DEFAULT_LISTEN,
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            metavar="ADDR",
            help="Take data on this address; once for each link. Default: all.",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Give files, take none.")] = False,
    token_file: TokenOption = None,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token", help="Let in whoever can connect. Default: a token is made and printed."
        ),
    ] = False,
    cert: Annotated[
        Path | None, typer.Option("--cert", help="TLS: this host's certificate (PEM).")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="TLS: its key.")] = None,
    max_transfers: Annotated[
        int,
        typer.Option(
            "--max-transfers",
            min=1,
            max=10_000,
            help="Clients at once; others are told to come again.",
        ),
    ] = 1000,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=1.0, help="Seconds of silence before a client is closed."),
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Serve one directory to `ri2n cp`, until Ctrl-C or SIGTERM.

    Clients see nothing outside of the directory. They have to know the token of --token-file, or
    the one that is made and printed; with --no-token everyone who can connect may read and, unless
    --read-only, write.
    """
    from ri2n_parallel import create_listener
    from ri2n_parallel.copy import Folder, Server, current_umask

    host, port = _parse_listen(listen)
    if no_token and token_file is not None:
        raise BadInput("--no-token, --token-file: give one of them")
    made = None if no_token or token_file is not None else secrets.token_hex(MADE_TOKEN_BYTES)
    token = made or _read_token(token_file)
    context = _server_context(cert, key)
    folder = Folder(directory, current_umask())
    if not os.access(directory, os.R_OK | os.X_OK | (0 if read_only else os.W_OK)):
        folder.close()
        raise NotAvailable(
            f"{directory}: no permission to {'read' if read_only else 'write'} (see --read-only)"
        )
    _raise_descriptor_limit()
    try:
        listener = create_listener(
            (host, port), addresses=address or None, token=token, ssl_context=context
        )
    except OSError as error:
        folder.close()
        raise NotAvailable(f"--listen {listen}: {error.strerror or error}") from None
    server = Server(
        listener,
        folder,
        read_only=read_only,
        max_transfers=max_transfers,
        timeout_s=timeout,
        say=_Lines(),
    )
    shown = f"[{host}]" if ":" in host else host
    terminate_as_interrupt()
    try:
        note(
            f"serving {directory} on {shown}:{listener.address[1]}{_how(token, context, read_only)}"
        )
        if made:
            note(f"token of this run: {made}")
            note(
                "clients put it into a file: ri2n cp --token-file FILE SRC "
                f"HOST:{listener.address[1]}:NAME"
            )
        server.serve()
    except KeyboardInterrupt:
        # This is how a server ends. A second signal must not interrupt its closing.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    finally:
        server.close()
        folder.close()
    _farewell(server, dict(listener.counters), as_json)


# ---- cp


def _server_of(paths: list[str], remotes: list[Remote | None]) -> tuple[Remote, bool]:
    """The server, and whether files go to it.

    BadInput unless all SRC or DST are remote, but not both, and all SRC are on one server.
    """
    *sources, target = remotes
    if target is not None:
        if any(source is not None for source in sources):
            raise BadInput("SRC and DST are both remote: one of them must be a local path")
        return target, True
    servers = [source for source in sources if source is not None]
    if not servers:
        raise BadInput(
            f"{paths[-1]}: neither SRC nor DST is remote: write HOST:NAME or HOST:PORT:NAME"
        )
    places = {(server.host, server.port) for server in servers}
    if len(servers) != len(sources) or len(places) > 1:
        raise BadInput("all SRC must be on one server")
    return servers[0], False


def _check_network(text: str) -> None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise BadInput(
            f"--network {text}: must be a network such as 10.1.0.0/16 or fd00:1::/32"
        ) from None


def _connect(
    server: Remote,
    streams: int,
    sources: list[str] | None,
    networks: list[str] | None,
    token: str | None,
    context: ssl.SSLContext | None,
    timeout_s: float,
) -> ParallelSocket:
    """Connect to the server; BadInput or NotAvailable that names the option that may help."""
    from ri2n_parallel import ProtocolError, Qos, TokenRefused, create_connection

    try:
        return create_connection(
            (server.host, server.port),
            Qos(parallelism=streams),
            timeout_s=min(10.0, timeout_s),
            sources=sources or None,
            token=token,
            networks=networks or (),
            ssl_context=context,
            server_hostname=server.host if context else None,
        )
    except socket.gaierror:
        raise BadInput(f"{server.host}: no such host") from None
    except UserError as error:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise NotAvailable(f"{server}: --ca: {error.__cause__.verify_message}") from None
        hint = ""
        if isinstance(error, ProtocolError):
            hint = " (something else listens there, or it wants TLS: --ca)"
        elif isinstance(error, TokenRefused):
            hint = " (--token-file)"
        raise NotAvailable(f"{server}: {str(error).removeprefix(f'{server}: ')}{hint}") from None
    except ConnectionRefusedError:
        raise NotAvailable(
            f"{server}: nobody listens there; start `ri2n serve DIR` on that host"
        ) from None
    except OSError as error:
        raise NotAvailable(f"{server}: {error.strerror or error}") from None


def _lost(server: Remote, error: OSError) -> NotAvailable:
    why = error.strerror or str(error) or type(error).__name__
    return NotAvailable(
        f"{server}: the connection was lost: {why}; the same command goes on where it stopped"
    )


def _leave(connection: ParallelSocket) -> None:
    """End the stream and close, so that the server does not wait for links to come back."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.flush(GOODBYE_S)
    with contextlib.suppress(OSError):
        connection.close()


def _links_up(connection: ParallelSocket) -> int:
    return sum(link.state == "up" for link in connection.links)


def _links(connection: ParallelSocket) -> list[dict[str, object]]:
    return [
        {
            "number": link.number,
            "local": link.local,
            "remote": link.remote,
            "state": link.state,
            "sent_bytes": link.sent_bytes,
            "received_bytes": link.received_bytes,
        }
        for link in connection.links
    ]


def _report(
    summary: Summary, seconds: float, links: list[dict[str, object]], as_json: bool
) -> None:
    """Print the summary of a copy; BadInput when something was not copied."""
    failures = summary.failures
    goodput_bps = 8 * summary.moved_bytes / seconds if seconds > 0 else 0.0
    if as_json:
        print_json(
            {
                "files": summary.files,
                "directories": summary.directories,
                "size_bytes": summary.size_bytes,
                "moved_bytes": summary.moved_bytes,
                "kept_bytes": summary.kept_bytes,
                "repeated_blocks": summary.repeated_blocks,
                "seconds": round(seconds, 3),
                "goodput_bps": round(goodput_bps),
                "links": links,
                "digests": summary.digests,
                "skipped": summary.skipped,
                "failures": [{"name": name, "why": why} for name, why in failures],
            }
        )
    if summary.skipped:
        note(
            f"left out: {len(summary.skipped)} symbolic links or special files, the first: "
            f"{summary.skipped[0]!r}"
        )
    if not failures:
        if not as_json:
            kept = (
                f", {size_text(summary.kept_bytes)} of it were there" if summary.kept_bytes else ""
            )
            files = "1 file" if summary.files == 1 else f"{summary.files} files"
            rate = f", {rate_text(goodput_bps)}" if summary.moved_bytes else ""
            note(f"{files}, {size_text(summary.size_bytes)}{kept}, {seconds:.1f} s{rate}")
        return
    if summary.planned == 1:
        raise BadInput(failures[0][1])
    for _, why in failures[1:MAX_NAMED_FAILURES]:
        note(f"not copied: {why}")
    raise BadInput(
        f"{len(failures)} of {summary.planned} were not copied, the first: {failures[0][1]}"
    )


# ---- serve


class _Lines:
    """Prints lines on stderr, at most MAX_LINES_PER_S, whatever clients do."""

    def __init__(self) -> None:
        self._second, self._printed = 0, 0

    def __call__(self, text: str) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._printed = second, 0
        self._printed += 1
        if self._printed < MAX_LINES_PER_S:
            note(f"refused: {text}")
        elif self._printed == MAX_LINES_PER_S:
            note("refused: more, see the counters at the end")


def _how(token: str | None, context: ssl.SSLContext | None, read_only: bool) -> str:
    """How clients are served, for the first line of a server."""
    words = ["read-only"] if read_only else []
    words += ["TLS"] if context else []
    if token:
        words.append("token")
    else:
        words.append(f"no token: whoever can connect may read{'' if read_only else ' and write'}")
    return f" ({', '.join(words)})"


def _farewell(server: Server, listener: dict[str, int], as_json: bool) -> None:
    """Print the counters of a server that has ended."""
    counters = {name: count for name, count in sorted(server.counters.items()) if count}
    if as_json:
        print_json({"counters": counters, "listener": listener})
        return
    counters |= {name: listener[name] for name in LISTENER_COUNTERS if listener.get(name)}
    note(
        "ended: "
        + (", ".join(f"{name} {count}" for name, count in counters.items()) or "nobody came")
    )


def _parse_listen(text: str) -> tuple[str, int]:
    """The address and port of ADDR:PORT, where port 0 is any port; BadInput for something else."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
        raise BadInput(f"--listen {text}: must be ADDR:PORT with a port from 0 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _raise_descriptor_limit() -> None:
    """Allow this process as many descriptors as it may have.

    A thousand clients with several links each need more than the usual limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# ---- both


def _read_token(path: Path | None) -> str | None:
    """The token in a file; None without a file; BadInput when there is no token in it."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            token = file.read(MAX_TOKEN_BYTES + 1).strip()
            readable = os.fstat(file.fileno()).st_mode & 0o044
    except OSError as error:
        raise BadInput(f"--token-file {path}: {error.strerror}") from None
    if not token or len(token) > MAX_TOKEN_BYTES:
        raise BadInput(f"--token-file {path}: must hold 1 to {MAX_TOKEN_BYTES} bytes")
    if readable:
        note(f"--token-file {path}: others can read it (chmod 600)")
    return token.decode("utf-8", "surrogateescape")


def _client_context(ca: Path | None) -> ssl.SSLContext | None:
    """The TLS context of `cp`; None without --ca; BadInput for a file that is no certificate."""
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise BadInput(f"--ca {ca}: no certificate: {error.reason}") from None
    except OSError as error:
        raise BadInput(f"--ca {ca}: {error.strerror}") from None


def _server_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The TLS context of `serve`; None without --cert and --key; BadInput for wrong files."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise BadInput("--cert and --key belong together")
    for option, path in (("--cert", cert), ("--key", key)):
        if not os.access(path, os.R_OK):
            raise BadInput(f"{option} {path}: no such file, or it cannot be read")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise BadInput(
            f"--cert {cert}, --key {key}: {getattr(error, 'reason', None) or error}"
        ) from None
    return context
