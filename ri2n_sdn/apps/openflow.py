# SPDX-License-Identifier: Apache-2.0
"""The connection to os-ken: its events, its parsers, its listener, and repairs of version 4.2.2."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

# isort: off
from ri2n_sdn.contract.bucket import TokenBucket
from ri2n_sdn.apps.os_ken_parts import PARSERS

# isort: on
from os_ken.base.app_manager import AppManager, OSKenApp
from os_ken.controller import controller, event, ofp_event, ofp_handler
from os_ken.controller.handler import (
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    set_ev_cls,
)
from os_ken.ofproto import ofproto_v1_5 as ofp
from os_ken.ofproto import ofproto_v1_5_parser as parser

from ri2n_sdn.apps import wellformed
from ri2n_sdn.apps.counts import Counts
from ri2n_sdn.apps.doorkeeper import Doorkeeper
from ri2n_sdn.certificates import peer_end_s
from ri2n_sdn.errors import NotAvailable

__all__ = [
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "PARSERS",
    "OSKenApp",
    "event",
    "handler",
    "handler_drops",
    "handler_errors",
    "listen",
    "message_counts",
    "ofp",
    "ofp_event",
    "parser",
    "set_expendable",
    "start_apps",
    "tls_context",
]

_LOG = logging.getLogger("ri2n.openflow")
_HandlerT = TypeVar("_HandlerT", bound=Callable[..., None])
_MAX_CONNECTIONS = 1024
# A connection is closed when its host is not known by name within this time.
_GREETING_S = 15.0
# How often the listener looks for connections whose time is over.
_REAP_S = 0.25
# What is left of a controller that was killed may hold the address for a moment.
_BIND_PATIENCE_S, _BIND_POLL_S = 2.0, 0.05
# How often the listener asks at most which hosts may lose their connection.
_JUDGED_S = 1.0
# The bytes that are read of one connection before its host is known by name. The switch describes
# its ports in them.
_STRANGERS_BYTES = 4 << 20
_TOLERATED_MALFORMED = 3
# What one connection may send without being asked. host-up limits a bridge to 1,000 packet-ins a
# second; more of them come at once after this machine was held up. Reading costs the other
# connections time. So packet-ins above the budget are dropped. Other messages must not be lost:
# the connection is read more slowly instead.
_PACKET_INS_PER_S, _PACKET_INS_BURST = 1500.0, 3000.0
_OTHERS_PER_S, _OTHERS_BURST = 200.0, 2000.0
# The pause in reading after a packet-in was dropped.
_PAUSE_S = 0.02
_REPLIES = (ofp.OFPT_ECHO_REPLY, ofp.OFPT_MULTIPART_REPLY, ofp.OFPT_BARRIER_REPLY)
_HEADER = struct.Struct("!BBHI")
# Below this level, os-ken writes four lines into the log for an error that is cut short.
logging.getLogger("OFPHandler").setLevel(logging.ERROR)

handler_errors = Counts()
"""Numbers of exceptions that were caught in event handlers, by handler."""

handler_drops = Counts()
"""Numbers of messages and connections that were dropped before any app saw them, by reason."""


_MESSAGE_KINDS = {
    value: name.removeprefix("OFPT_").lower()
    for name, value in vars(ofp).items()
    if name.startswith("OFPT_")
}


_received, _sent = Counts(), Counts()


def _count_messages(counts: Counts, data: bytes) -> None:
    """Count encoded messages, one behind the other, by their types. All unknown types are one."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        _, kind, length, _ = _HEADER.unpack_from(data, offset)
        counts.add(_MESSAGE_KINDS.get(kind, "unknown"))
        offset += max(length, _HEADER.size)


def message_counts() -> dict[str, dict[str, int]]:
    """The OpenFlow messages since the process began, as {"received": {TYPE: N}, "sent": ...}."""
    return {"received": _received.described(), "sent": _sent.described()}


def handler(events: Any, dispatchers: Any = None) -> Callable[[_HandlerT], _HandlerT]:
    """Register a method as a handler of os-ken events, and catch its exceptions.

    An exception in a bare os-ken handler silently ends the app's thread, and later events then
    block their sender. Here the exception is logged and counted, and the app goes on. The next
    audit of the hosts repairs what the handler left half done.
    """

    def decorate(method: _HandlerT) -> _HandlerT:
        @functools.wraps(method)
        def guarded(self: Any, ev: Any) -> None:
            try:
                method(self, ev)
            except Exception:
                name = f"{type(self).__name__}.{method.__name__}"
                handler_errors.add(name)
                _LOG.exception("%s failed on %s; going on", name, type(ev).__name__)

        return cast("_HandlerT", set_ev_cls(events, dispatchers)(guarded))

    return decorate


# The apps read the bodies of these replies from the messages' bytes. os-ken decodes some of them
# slowly or wrongly: it reads past the end of groups and buckets and loses the whole reply.
_UNREAD = SimpleNamespace(parser=lambda buf, offset: SimpleNamespace(length=len(buf) - offset))
for _reply in (
    parser.OFPDescStatsReply,
    parser.OFPFlowDescStatsReply,
    parser.OFPGroupDescStatsReply,
    parser.OFPGroupStatsReply,
    parser.OFPPortStatsReply,
):
    _reply.cls_stats_body_cls = _UNREAD


class _Malformed(Exception):
    """What a switch sent cannot be read."""


class _Datapath(controller.Datapath):
    """os-ken's connection to a switch, with a reader of its own.

    os-ken's reader notices that the peer has closed only when something is sent to it. It also goes
    on reading garbage, and writes a traceback into the log for each message.
    """

    ri2n_channel: Any = None
    """Its apps.channel.Channel; None until the handler that makes it has run.

    Messages may be handed to apps before that.
    """
    ri2n_names: frozenset[str] | None = None
    """The names in its certificate; None when certificates are not checked."""
    ri2n_certificate_ends_s: float | None = None
    """The Unix time at which its certificate ends; None when it has none, or does not say that."""
    heard_s = 0.0
    """When something was read from the switch last, on the monotonic clock."""
    place: socket.socket | None = None
    """The socket by which the listener's doorkeeper knows this connection."""
    ports: dict[int, Any] | None = None
    """The switch's ports by number. os-ken sets them when the switch has greeted."""
    _tolerated = _TOLERATED_MALFORMED
    _admitted: Callable[[], None] | None = None
    # The bytes read so far; -1 after the host was let in.
    _read_bytes = 0
    # When the warning about the budget was last logged.
    _warned_s = -1e9
    _ended = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._packet_ins = TokenBucket(_PACKET_INS_PER_S, _PACKET_INS_BURST)
        self._others = TokenBucket(_OTHERS_PER_S, _OTHERS_BURST)

    def ri2n_admitted(self) -> None:
        """Note that it is known which host this is: its limits as a stranger end."""
        if self._admitted is not None:
            self._admitted()
            self._read_bytes = -1

    def ri2n_end(self) -> None:
        """Give the connection up without waiting. Its own thread notices and closes it.

        A reset refuses what the switch still sends. After a normal end, a switch that sends much
        and reads nothing would notice only after two minutes, and its data would fill this
        machine's buffers until then.
        """
        self._ended = True
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.socket.shutdown(socket.SHUT_RDWR)

    def send(self, buf: Any, close_socket: bool = False) -> Any:
        queued = super().send(buf, close_socket=close_socket)
        if queued:
            _count_messages(_sent, buf)
        return queued

    def _recv_loop(self) -> None:
        try:
            self._read()
        finally:
            self.close()
            # This wakes the sending thread, so that the connection is given up now.
            self.send(b"", close_socket=True)
            self.socket.close()

    def _read(self) -> None:
        buffer = bytearray()
        while self.state != DEAD_DISPATCHER:
            try:
                data = self.socket.recv(1 << 16)
            except (TimeoutError, ssl.SSLWantReadError):
                continue
            except OSError:
                return
            if not data:
                return
            # The time is taken here and not in a handler: handlers may be late with their events
            # while the switch is well.
            self.heard_s = time.monotonic()
            if self._read_bytes >= 0:
                self._read_bytes += len(data)
                if self._read_bytes > _STRANGERS_BYTES:
                    raise _Malformed(
                        f"it sent more than {_STRANGERS_BYTES} bytes before its host was known"
                    )
            buffer += data
            offset, dropped = 0, False
            while len(buffer) - offset >= _HEADER.size and not self._ended:
                version, kind, length, xid = _HEADER.unpack_from(buffer, offset)
                if length < _HEADER.size:
                    raise _Malformed(f"a message of {length} bytes")
                if len(buffer) - offset < length:
                    break
                _received.add(_MESSAGE_KINDS.get(kind, "unknown"))
                if kind != ofp.OFPT_PACKET_IN or self._packet_ins.take(self.heard_s):
                    self._message(version, kind, xid, bytes(buffer[offset : offset + length]))
                else:
                    handler_drops.add("packet_ins_over_budget")
                    dropped = True
                if kind not in (ofp.OFPT_PACKET_IN, *_REPLIES):
                    self._pause(self._others.owe(time.monotonic()))
                offset += length
            del buffer[:offset]
            self._pause(_PAUSE_S if dropped else 0.0)

    def _pause(self, seconds: float) -> None:
        """Read nothing for a moment, so that other connections are read.

        What the switch sends waits in its socket.
        """
        if seconds <= 0:
            return
        handler_drops.add("pauses_of_reading")
        if self.heard_s - self._warned_s > 60:
            self._warned_s = self.heard_s
            _LOG.warning(
                "%s sends too many messages that nobody asked for: it is read more slowly",
                self.address[0],
            )
        time.sleep(seconds)
        self.heard_s = time.monotonic()

    def _message(self, version: int, kind: int, xid: int, data: bytes) -> None:
        """Check one whole message, parse it and hand it to its handlers.

        Raises _Malformed when the connection must be closed.
        """
        greeted = self.state != HANDSHAKE_DISPATCHER
        if version not in PARSERS or (greeted and version != ofp.OFP_VERSION):
            raise _Malformed(f"it speaks OpenFlow version {version:#04x}")
        if not greeted and kind not in (
            ofp.OFPT_HELLO,
            ofp.OFPT_ERROR,
            ofp.OFPT_ECHO_REQUEST,
            ofp.OFPT_ECHO_REPLY,
        ):
            raise _Malformed(f"a message of type {kind} came before the greeting")
        try:
            # os-ken treats a description of ports as the end of the greeting, even when the
            # greeting has not begun.
            too_early = kind == ofp.OFPT_MULTIPART_REPLY and self.id is None
            if too_early or not wellformed.check(version, kind, data):
                handler_drops.add("message_not_asked_for")
                return
            message = PARSERS[version](self, version, kind, len(data), xid, data)
        except Exception as error:
            handler_drops.add("message_malformed")
            self._tolerated -= 1
            if self.state != MAIN_DISPATCHER or self._tolerated < 0:
                why = str(error) if isinstance(error, ValueError) else type(error).__name__
                raise _Malformed(f"malformed message of type {kind}: {why}") from None
            _LOG.warning(
                "%s: malformed message of type %d ignored: %r", self.address[0], kind, error
            )
            return
        if message is None or self.ofp_brick is None:
            return
        ev = ofp_event.ofp_msg_to_ev(message)
        self.ofp_brick.send_event_to_observers(ev, self.state)
        for handle in self.ofp_brick.get_handlers(ev):
            if self.state in handle.callers[ev.__class__].dispatchers:
                handle(ev)
        if self.ports is not None and len(self.ports) > wellformed.MAX_PORTS:
            raise _Malformed(f"it has more than {wellformed.MAX_PORTS} ports")


class _Controller(controller.OpenFlowController):
    """os-ken's listener on a bound socket. It logs one line for each connection that fails."""

    bound: socket.socket
    context: ssl.SSLContext | None = None
    expendable: Callable[[], Iterable[_Datapath]] = staticmethod(tuple)

    def __call__(self) -> None:
        self._lock = threading.Lock()
        self._door: Doorkeeper[socket.socket] = Doorkeeper(_MAX_CONNECTIONS)
        self._may_end: set[socket.socket] = set()
        self._asked_s = -_JUDGED_S
        threading.Thread(target=self._reap, name="of-reaper", daemon=True).start()
        while True:
            try:
                connection, address = self.bound.accept()
            except OSError as error:
                if self.bound.fileno() < 0:
                    return
                # The peer gave up, or no file descriptor is left. Neither may end the listener.
                _LOG.warning("a connection was not accepted: %s", error.strerror)
                time.sleep(0.1)
                continue
            may_end = self._expendable() if self._door.is_full else ()
            with self._lock:
                evicted = self._door.add(
                    connection, str(address[0]), time.monotonic() + _GREETING_S, may_end
                )
            if evicted is not None:
                handler_drops.add("connections_turned_away")
                self._turn_away(evicted, f"{_MAX_CONNECTIONS} connections are open")
            if evicted is connection:
                connection.close()
            else:
                threading.Thread(
                    target=self._serve,
                    args=(connection, address),
                    name=f"of-{address[0]}",
                    daemon=True,
                ).start()

    def _expendable(self) -> Collection[socket.socket]:
        """Connections of hosts that matter to nobody, asked for once a second at most.

        Otherwise everybody who connects would cost all others time.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s > _JUDGED_S:
            self._asked_s = now_s
            self._may_end = {
                datapath.place for datapath in self.expendable() if datapath.place is not None
            }
        return self._may_end

    def _reap(self) -> None:
        """End the connections whose hosts are not known in time."""
        while self.bound.fileno() >= 0:
            with self._lock:
                late = self._door.overdue(time.monotonic())
            for connection in late:
                handler_drops.add("connections_overdue")
                self._turn_away(connection, "it did not say in time which host it is")
            time.sleep(_REAP_S)

    def _turn_away(self, connection: socket.socket, why: str) -> None:
        """Log why a connection is dropped, and end it. Its own thread, if any, closes it."""
        with contextlib.suppress(OSError):
            _LOG.warning("%s:%s dropped: %s", *connection.getpeername()[:2], why)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket, address: Any) -> None:
        plain = connection
        certificate: Mapping[str, Any] | None = None

        def admitted() -> None:
            with self._lock:
                self._door.admitted(plain)

        try:
            if self.context is not None:
                connection.settimeout(10)
                # The doorkeeper holds the plain socket, whose descriptor must stay valid when the
                # socket is wrapped.
                connection = self.context.wrap_socket(connection.dup(), server_side=True)
                if self.context.verify_mode == ssl.CERT_REQUIRED:
                    certificate = _certificate_of(connection)
            datapath = _Datapath(connection, address)
            datapath._admitted = admitted
            datapath.place = plain
            if certificate is not None:
                datapath.ri2n_names = _names(certificate)
                datapath.ri2n_certificate_ends_s = _certificate_ends_s(certificate)
            try:
                datapath.serve()
            finally:
                datapath.close()
        except _Malformed as error:
            handler_drops.add("closed_malformed")
            _LOG.warning("%s:%s dropped: %s", *address[:2], error)
        except ssl.SSLCertVerificationError as error:
            handler_drops.add("certificates_refused")
            _LOG.warning(
                "%s:%s dropped: its certificate is not good: %s", *address[:2], error.verify_message
            )
        except Exception as error:
            _LOG.warning("%s:%s dropped: %s: %s", *address[:2], type(error).__name__, error)
        finally:
            with self._lock:
                self._door.remove(plain)
            connection.close()
            plain.close()


def set_expendable(expendable: Callable[[], Iterable[_Datapath]]) -> None:
    """Set the function that names the connections that may end when all places are taken."""
    _Controller.expendable = staticmethod(expendable)


def _certificate_of(connection: ssl.SSLSocket) -> Mapping[str, Any]:
    """The certificate of a peer, which was verified. Raises _Malformed when it makes no sense."""
    try:
        return connection.getpeercert() or {}
    except (ssl.SSLError, ValueError):
        handler_drops.add("certificates_unreadable")
        raise _Malformed("its certificate cannot be read") from None


def _certificate_ends_s(certificate: Mapping[str, Any]) -> float | None:
    """The Unix time at which a certificate ends; None, and counted, when it does not say that."""
    ends_s = peer_end_s(certificate)
    if ends_s is None:
        handler_drops.add("certificates_unreadable")
    return ends_s


def _names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The names that a verified certificate is for: its DNS names, or else its common name.

    `ovs-pki` writes " id:" and a number behind each name; both are cut off.
    """
    dns = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    subject = [entry for part in certificate.get("subject", ()) for entry in part]
    common = [value for kind, value in subject if kind == "commonName"]
    return frozenset(str(value).partition(" id:")[0] for value in dns or common)


def tls_context(key: Path, certificate: Path, authority: Path | None) -> ssl.SSLContext:
    """A TLS context with these PEM files.

    With an `authority`, hosts must have a certificate that it signed. Raises NotAvailable when a
    file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        if authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise NotAvailable(
            f"TLS: cannot use {key}, {certificate}, {authority or 'no CA'}: {error}"
        ) from None
    return context


def listen(host: str, port: int, context: ssl.SSLContext | None = None) -> Sequence[type[OSKenApp]]:
    """Bind the OpenFlow port and return the os-ken apps that serve it.

    They use TLS when a context is given. Raises NotAvailable when the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline_s = time.monotonic() + _BIND_PATIENCE_S
    while True:
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            bound.listen(512)
            break
        except OSError as error:
            bound.close()
            in_use = error.errno == errno.EADDRINUSE
            if in_use and time.monotonic() < deadline_s:
                time.sleep(_BIND_POLL_S)
                continue
            why = f"cannot listen on {host}:{port}: {error.strerror}"
            if in_use:
                why += (
                    " (does another controller run there? choose another address with --listen "
                    "HOST:PORT)"
                )
            raise NotAvailable(why) from None
    _Controller.bound = bound
    if context is not None:
        _Controller.context = context
    ofp_handler.OpenFlowController = _Controller
    return [ofp_handler.OFPHandler]


def start_apps(apps: Sequence[type[OSKenApp]]) -> None:
    """Make and start the apps. Raises whatever fails while they start.

    os-ken's threads never end and are not daemons, so they would keep the process from ending.
    Threads inherit the flag from the thread that starts them: the apps are started in a daemon
    thread.
    """
    manager = AppManager.get_instance()
    for app in apps:
        manager.applications_cls[f"{app.__module__}.{app.__name__}"] = app
    errors: list[BaseException] = []

    def start() -> None:
        try:
            manager.instantiate_apps(**manager.create_contexts())
        except BaseException as error:
            errors.append(error)

    starter = threading.Thread(target=start, name="start", daemon=True)
    starter.start()
    starter.join()
    if errors:
        raise errors[0]
