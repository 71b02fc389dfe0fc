# SPDX-License-Identifier: Apache-2.0
"""Every test here leaves no thread, no descriptor and no session behind."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_parallel import (
    caretaker,
    connect,
    connection,
    dial,
    engine,
    link,
    links,
    listener,
    session,
)
from ri2n_parallel.copy import channel, server
from tests.unit.parallel import worlds


@pytest.fixture(autouse=True)
def patient_dialing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that takes long to connect is not given up and connected again."""
    monkeypatch.setattr(dial, "ATTEMPT_S", worlds.PATIENCE_S)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> worlds.Clock:
    """The clock of the whole library, for tests of what happens after some time."""
    found = worlds.Clock()
    for module in (
        caretaker,
        channel,
        connect,
        connection,
        dial,
        engine,
        link,
        links,
        listener,
        server,
        session,
    ):
        monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    with worlds.no_leaks():
        yield


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """An empty directory for a copy server."""
    directory = tmp_path / "served"
    directory.mkdir()
    return directory


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += [
        "-days",
        "2",
        "-keyout",
        str(key),
        "-out",
        str(cert),
        "-subj",
        f"/CN={name}",
        "-addext",
        names,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="session")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's TLS context; `tls_client` knows its certificate.

    The certificate is for localhost and 127.0.0.1.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(tmp_path_factory.getbasetemp(), "server"))
    return context


@pytest.fixture(scope="session")
def tls_strict_server(
    tls_server: ssl.SSLContext, tmp_path_factory: pytest.TempPathFactory
) -> ssl.SSLContext:
    """As `tls_server`, for clients with a certificate only."""
    folder = tmp_path_factory.getbasetemp()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.load_verify_locations(folder / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture(scope="session")
def tls_client(
    tls_server: ssl.SSLContext, tmp_path_factory: pytest.TempPathFactory
) -> ssl.SSLContext:
    """A client's context that trusts the server's certificate only."""
    return ssl.create_default_context(cafile=str(tmp_path_factory.getbasetemp() / "server.pem"))
