# SPDX-License-Identifier: Apache-2.0
"""The settings of the web process, and what must not be served to whom."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ri2n_sdn.addresses import is_loopback
from ri2n_sdn.client import DEFAULT_SOCKET
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["DEFAULT_PORT", "WebSettings"]

DEFAULT_PORT = 8420
_SECRET_BYTES = 32


@dataclass(frozen=True)
class WebSettings:
    """How the web process serves, and whom.

    * `controller_socket`: the controller's own socket; the one for the web process is beside it.
    * `host`, `port`: where it listens. Port 0 is any free one.
    * `tls_cert`, `tls_key`: PEM files; both or none.
    * `require_tokens`: nobody sees anything without a token. Otherwise everybody on this machine is
      a viewer.
    * `storage_secret_file`: the secret that signs the cookies of the GUI; it is made when it is
      missing. None: one that ends with the process, and so do the sessions.
    * `storage_dir`: where the sessions of the GUI are kept. None: in a folder that ends with it.
    * `host_names`: further names by which browsers may call the web process.
    * `gui`: whether there is a GUI, or REST and metrics alone.
    * `requests_per_s`: so many requests of REST a token may make, or an address without one.
    * `demo`: the socket of the demo's own process. Only `ri2n demo` gives it.
    * `cluster`: what the GUI calls the cluster. None: as this machine.
    """

    controller_socket: Path = DEFAULT_SOCKET
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls_cert: Path | None = None
    tls_key: Path | None = None
    require_tokens: bool = False
    storage_secret_file: Path | None = None
    storage_dir: Path | None = None
    host_names: Sequence[str] = ()
    gui: bool = True
    requests_per_s: float = 50.0
    demo: Path | None = None
    cluster: str | None = None

    @property
    def tls(self) -> bool:
        """Whether browsers talk TLS to it."""
        return self.tls_cert is not None

    @property
    def called(self) -> str:
        """What the GUI calls the cluster, so that who has several does not mix them up."""
        return self.cluster or socket.gethostname().partition(".")[0]

    @property
    def url(self) -> str:
        """The address for a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}/"

    def check(self) -> None:
        """Raise BadInput when it must not be served so, or when a file is missing."""
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "--tls-cert" if self.tls_cert is None else "--tls-key"
            raise BadInput(f"{missing} is missing: TLS needs --tls-cert and --tls-key")
        for option, path in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key)):
            if path is not None and not path.is_file():
                raise BadInput(f"{option} {path}: no such file")
        if not is_loopback(self.host) and not (self.tls and self.require_tokens):
            raise BadInput(
                f"--listen {self.host}: other machines may be served only with TLS and tokens; "
                "give --tls-cert, --tls-key and --require-tokens, or listen on 127.0.0.1"
            )
        if self.host_names and not self.require_tokens:
            # Behind a proxy, everybody seems to be on this machine.
            raise BadInput("--host-name: needs --require-tokens")

    def secret(self) -> str:
        """The secret that signs cookies. Raises NotAvailable when its file cannot be used."""
        path = self.storage_secret_file
        if path is None:
            return secrets.token_hex(_SECRET_BYTES)
        try:
            if not path.exists():
                # Whoever reads the file meanwhile finds it whole.
                made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
                made.touch(mode=0o600)
                made.write_text(secrets.token_hex(_SECRET_BYTES) + "\n", encoding="ascii")
                made.replace(path)
            if path.stat().st_mode & 0o077:
                raise NotAvailable(f"{path}: others can read it; run: chmod 600 {path}")
            text = path.read_text(encoding="ascii").strip()
        except UnicodeDecodeError:
            raise NotAvailable(f"{path}: is not text; remove it, and another is made") from None
        except OSError as error:
            raise NotAvailable(f"{path}: {error.strerror}") from None
        if len(text) < _SECRET_BYTES:
            raise NotAvailable(f"{path}: is too short; remove it, and another is made")
        return text
