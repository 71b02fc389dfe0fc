# SPDX-License-Identifier: Apache-2.0
"""The controller's memory: its store, with a server of its own or with those that were named."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.store.link import TlsFiles, check_targets
from ri2n_sdn.store.rows import State
from ri2n_sdn.store.server import FolderInUse, OwnServer
from ri2n_sdn.store.store import Store

__all__ = ["DEFAULT_STATE_DIR", "NO_STORE", "Memory", "MemoryOptions", "open_memory"]

DEFAULT_STATE_DIR = Path("/var/lib/ri2n/controller")

# What systemd makes of the default folder for a service with DynamicUser=; that is a link to this.
_PRIVATE_STATE_DIR = Path("/var/lib/private/ri2n/controller")

NO_STORE = "none"
"""In place of a list of servers: the controller has no memory."""

_LOG = logging.getLogger("ri2n.memory")
# A controller with a server of its own waits for it for this time, and starts without it then.
_READ_S = 10.0


@dataclass(frozen=True)
class MemoryOptions:
    """The options about the memory. `state_dir` None stands for the default folder.

    `store` has the servers of a common store, separated by commas; None stands for a server of the
    controller's own, NO_STORE for no memory.
    """

    state_dir: Path | None = None
    store: str | None = None
    tls: TlsFiles | None = None

    @property
    def common(self) -> bool:
        """Whether other controllers may use the same store."""
        return self.store is not None and self.store != NO_STORE


@dataclass
class Memory:
    """The store, the server of the controller's own, and why there is no store (`fault`)."""

    store: Store | None = None
    server: OwnServer | None = None
    fault: str | None = None
    common: bool = False

    def state(self) -> State:
        """What is remembered; nothing without a store."""
        return self.store.state() if self.store is not None else State()

    @property
    def problem(self) -> str | None:
        """Why nothing can be remembered now, in one line; None when all is well."""
        return self.fault if self.store is None else self.store.problem

    def close(self) -> None:
        """End the connection and the server."""
        if self.store is not None:
            self.store.close()
        if self.server is not None:
            self.server.stop()


def _default_folder() -> Path:
    """The default folder, by the way that is open to this process.

    Where the controller's machine is a host, too, `host-up` keeps all but root out of
    /var/lib/ri2n, and with it out of the link to the service's folder.
    """
    private = os.access(_PRIVATE_STATE_DIR, os.W_OK | os.X_OK)
    return _PRIVATE_STATE_DIR if private else DEFAULT_STATE_DIR


def open_memory(options: MemoryOptions, name: str) -> Memory:
    """The memory of the controller called `name`.

    Raises NotAvailable or BadInput when it cannot be had. In the default folder, which nobody has
    asked for, only a damaged file and another controller are errors.
    """
    if options.store == NO_STORE:
        return Memory()
    if options.store is not None:
        targets = check_targets(options.store)
        if options.tls is None and any(target.startswith("ssl:") for target in targets):
            raise BadInput("--store: ssl: needs --tls-key, --tls-cert and --tls-ca")
        return Memory(Store(targets, name=name, tls=options.tls), common=True)
    server = OwnServer(options.state_dir or _default_folder())
    try:
        server.start()
    except FolderInUse:
        raise
    except NotAvailable as error:
        if options.state_dir is not None:
            raise
        _LOG.warning("nothing is remembered: %s", error)
        return Memory(fault=str(error))
    store = Store([server.target], name=name)
    if not store.wait_active(_READ_S):
        _LOG.warning("%s", store.problem or "the store does not make this controller active")
    return Memory(store, server)
