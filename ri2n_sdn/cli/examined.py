# SPDX-License-Identifier: Apache-2.0
"""The controller that `ri2n doctor` looks at, and how it was started."""

from __future__ import annotations

import contextlib
import grp
import http.client
import os
import pwd
import re
import ssl
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ri2n_sdn.cli.common import parse_listen
from ri2n_sdn.cli.finding import Verdict
from ri2n_sdn.cli.labs import Where
from ri2n_sdn.cli.machine import Process, last_option, process, processes
from ri2n_sdn.client import DEFAULT_SOCKET, Watch
from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import Documents, HostEntry

__all__ = [
    "ANSWER_S",
    "DEFAULT_WEB",
    "HOST",
    "OPTIONS",
    "STATE_DIR",
    "Examined",
    "Row",
    "http_get",
    "number_in",
    "user_name",
]

OPTIONS = Path("/etc/ri2n/controller.conf")
HOST = Path("/etc/ri2n/host.conf")
STATE_DIR = Path("/var/lib/ri2n/controller")
DEFAULT_WEB = "127.0.0.1:8420"
ANSWER_S = 10.0

# Users that packages make, and those of DynamicUser= in systemd.
_USERS_OF_SERVICES = (range(1000), range(61184, 65520))

Row = tuple[Verdict, str, str]
"""What a check says: the verdict, what was seen, and what to do."""


@dataclass
class Examined:
    """What the checks look at. `state` is None when no controller answers; `why` says why."""

    socket: Path
    state: Documents | None = None
    why: str = ""
    running: Process | None = None
    argv: tuple[str, ...] = ()
    proc: Path = Path("/proc")
    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @classmethod
    def of(cls, path: Path, options: Path = OPTIONS) -> Examined:
        """Ask the controller at `path`, and find out with which options it runs."""
        seen = cls(path)
        try:
            with Watch(path, silent_s=ANSWER_S) as watch:
                seen.state = watch.state
        except (NotAvailable, BadInput) as error:
            seen.why = str(error)
        if seen.state is not None:
            seen.running = process(int(seen.state["controller"]["pid"]))
        if seen.running is not None:
            seen.argv = seen.running.argv
        else:
            with contextlib.suppress(OSError):
                # As systemd reads it: a backslash joins lines, and of several settings the last
                # counts.
                text = options.read_text(errors="replace").replace("\\\n", " ")
                lines = re.findall(r"^\s*RI2N_CONTROLLER_OPTIONS=(.*)$", text, re.M)
                seen.argv = tuple(lines[-1].strip().strip("\"'").split()) if lines else ()
        return seen

    def option(self, name: str) -> str | None:
        """The value of an option of the controller; None when it was not given."""
        return last_option(self.argv, name)

    @property
    def hosts(self) -> dict[str, HostEntry]:
        """The hosts that the controller knows."""
        return self.state["hosts"] if self.state is not None else {}

    @property
    def state_dir(self) -> Path | None:
        """The folder of the controller's own store; None when its store is elsewhere."""
        if self.option("--store") is not None:
            return None
        return Path(self.option("--state-dir") or os.environ.get("RI2N_STATE_DIR") or STATE_DIR)

    def web(self) -> Process | None:
        """The process of `ri2n web`: the controller's child, or a service of its own."""
        return next(filter(self._is_web, processes(self.proc)), None)

    def _is_web(self, found: Process) -> bool:
        words = [Path(word).name for word in found.argv[:4]]
        named = "web" in words and ("ri2n" in words or "ri2n_sdn.cli.main" in words)
        may_be = named and self._may_be_the_service(found)
        return may_be and self._asks(found.argv) and not self._is_elsewhere(found.pid)

    def _may_be_the_service(self, found: Process) -> bool:
        """Whether a process may be what its command line says.

        Everybody can start a program with any command line. Root would be told to put its user into
        the group of the web process, and would connect to wherever it says. So nobody counts who is
        a person: only who runs this, the controller's user, users of services, and members of the
        group.
        """
        own = {0, os.geteuid()} | ({self.running.uid} if self.running is not None else set())
        with contextlib.suppress(KeyError):
            group = self.option("--web-group")
            if group is not None and grp.getgrnam(group).gr_gid in found.groups:
                return True
        return found.uid in own or any(found.uid in users for users in _USERS_OF_SERVICES)

    def _asks(self, argv: tuple[str, ...]) -> bool:
        """Whether a command with these options asks this controller."""
        path, lab = last_option(argv, "--socket"), last_option(argv, "--lab")
        if path is None and lab is None and self.socket == DEFAULT_SOCKET:
            return True
        try:
            return Where(None if path is None else Path(path), lab).path == self.socket
        except (BadInput, NotAvailable):
            return False

    def _is_elsewhere(self, pid: int) -> bool:
        """Whether a process is in another network namespace, as those of containers are."""
        try:
            own, its = ((self.proc / str(each) / "ns/net").readlink() for each in ("self", pid))
        except OSError:
            return False
        return own != its


def http_get(argv: tuple[str, ...], path: str, max_bytes: int) -> tuple[str, int, str]:
    """(where it listens, status, content): what a web process answers that was started so.

    With TLS its certificate is not verified: it may be for another name, and it is another check.
    Raises NotAvailable when there is no answer, or one of more than `max_bytes`.
    """
    listen = last_option(argv, "--listen") or DEFAULT_WEB
    try:
        host, port = parse_listen(listen)
    except BadInput as error:
        raise NotAvailable(str(error)) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with contextlib.closing(
            http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=context)
            if last_option(argv, "--tls-cert") is not None
            else http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        ) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            data = answer.read(max_bytes + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NotAvailable(f"{listen}: {getattr(error, 'strerror', None) or error!r}") from None
    if len(data) > max_bytes:
        raise NotAvailable(f"{listen}: its answer is longer than {max_bytes} bytes")
    return listen, answer.status, data.decode(errors="replace")


def user_name(uid: int) -> str:
    """The name of a user, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def number_in(text: str) -> tuple[int, int] | None:
    """The first version number in a text."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
