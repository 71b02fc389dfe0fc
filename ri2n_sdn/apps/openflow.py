"""The one module that knows os-ken:

its events and messages, and what had to be mended in it (version 4.2.2).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

os.environ["OSKEN_HUB_TYPE"] = "native"  # read when os_ken.lib.hub is imported: plain threads

from os_ken import cfg
from os_ken.base.app_manager import AppManager, OSKenApp
from os_ken.controller import controller, event, ofp_event, ofp_handler
from os_ken.controller.handler import (
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    set_ev_cls,
)
from os_ken.ofproto import ofproto_parser
from os_ken.ofproto import ofproto_v1_5 as ofp
from os_ken.ofproto import ofproto_v1_5_parser as parser

from ri2n_sdn.apps import wellformed
from ri2n_sdn.apps.budget import Budget
from ri2n_sdn.apps.doorkeeper import Doorkeeper
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.pipeline import messages as plain
from ri2n_sdn.pipeline.layout import ETH_IPV6

__all__ = [
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "AppManager",
    "OSKenApp",
    "RawBody",
    "add_flow",
    "delete_flows",
    "event",
    "handler",
    "handler_drops",
    "handler_errors",
    "let_go_of",
    "listen",
    "ofp",
    "ofp_event",
    "parser",
    "start_apps",
    "tls_context",
]

_LOG = logging.getLogger("ri2n.openflow")
_HandlerT = TypeVar("_HandlerT", bound=Callable[..., None])
_MAX_CONNECTIONS = 1024
_GREETING_S = 15.0  # until a connection's host must be known by name
_REAP_S = 0.25
_JUDGED_S = 1.0
_STRANGERS_BYTES = (
    4 << 20
)  # that are read of one connection until then: its ports are described in them
_TOLERATED_MALFORMED = 3
# What one connection may say unasked. A bridge has 1,000 packet-ins a second, as host-up sets it;
# more of them come at once when this machine was held up. Who says much more is read more slowly,
# since all that is read costs others time: what is no packet-in must not be lost.
_PACKET_INS_PER_S, _PACKET_INS_BURST = 1500.0, 3000.0
_OTHERS_PER_S, _OTHERS_BURST = 200.0, 2000.0
_BREATH_S = 0.02
_REPLIES = (ofp.OFPT_ECHO_REPLY, ofp.OFPT_MULTIPART_REPLY, ofp.OFPT_BARRIER_REPLY)
_LEARN_HEAD_BYTES = 22  # of the body: what comes before the specifications
_FOLLOWED_PRIORITY = 10  # below that of rows from apps.placed_rows
_HEADER = struct.Struct("!BBHI")
_PARSERS = ofproto_parser._MSG_PARSERS
logging.getLogger("OFPHandler").setLevel(
    logging.ERROR
)  # or an error that is cut short costs four lines in the log

handler_errors: Counter[str] = Counter()
"""Exceptions caught in event handlers, by handler."""

handler_drops: Counter[str] = Counter()
"""Messages and connections that were dropped before any app saw them, by reason."""


def handler(events: Any, dispatchers: Any = None) -> Callable[[_HandlerT], _HandlerT]:
    """Register a method for os-ken events, guarded.

    An exception in a bare os-ken handler silently ends the app's thread, and later events then
    block their sender. Here it is logged and counted, and the app goes on; what it left half done,
    the next audit of the hosts puts right.
    """

    def decorate(method: _HandlerT) -> _HandlerT:
        @functools.wraps(method)
        def guarded(self: Any, ev: Any) -> None:
            try:
                method(self, ev)
            except Exception:
                name = f"{type(self).__name__}.{method.__name__}"
                handler_errors[name] += 1
                _LOG.exception("%s failed on %s; going on", name, type(ev).__name__)

        return cast("_HandlerT", set_ev_cls(events, dispatchers)(guarded))

    return decorate


class RawBody:
    """The undecoded rest of a multipart reply (apps.codec reads it)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)

    @classmethod
    def parser(cls, buf: bytes, offset: int) -> RawBody:
        return cls(bytes(buf[offset:]))


# These three os-ken either decodes wrongly (it over-reads groups and buckets and loses the whole
# reply) or slowly.
for _reply in (
    parser.OFPFlowDescStatsReply,
    parser.OFPGroupDescStatsReply,
    parser.OFPGroupStatsReply,
):
    _reply.cls_stats_body_cls = RawBody


def add_flow(datapath: Any, flow: plain.Flow) -> Any:
    """An OFPFlowMod that adds `flow` or replaces the one in its place, keeping that one's
    counters.
    """
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        table_id=flow.table,
        command=ofp.OFPFC_ADD,
        priority=flow.priority,
        match=parser.OFPMatch(**dict(flow.match)),
        instructions=[
            parser.OFPInstructionActions(
                ofp.OFPIT_APPLY_ACTIONS,
                [sent for action in flow.actions for sent in _actions(action)],
            )
        ]
        if flow.actions
        else [],
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


def delete_flows(datapath: Any, cookie: int, mask: int = 0xFFFFFFFFFFFFFFFF) -> Any:
    """An OFPFlowMod that deletes all flows whose cookie equals `cookie` under `mask`, in every
    table.
    """
    return parser.OFPFlowMod(
        datapath,
        cookie=cookie,
        cookie_mask=mask,
        table_id=ofp.OFPTT_ALL,
        command=ofp.OFPFC_DELETE,
        match=parser.OFPMatch(),
        instructions=[],
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


class _LimitedLearn(parser.NXActionLearn):
    """`learn(limit=N, ...)`, which os-ken does not have:

    Nicira's action 45 is its 16 with four fields more.
    """

    _subtype = 45
    limit = 0

    def serialize_body(self) -> bytearray:
        data = bytearray(super().serialize_body())
        data[_LEARN_HEAD_BYTES:_LEARN_HEAD_BYTES] = struct.pack("!IHH", self.limit, 0, 0)
        return data


def _follow(action: plain.Follow) -> Any:
    version = "ipv6" if action.eth_type == ETH_IPV6 else "ipv4"
    bits = 128 if version == "ipv6" else 32

    def same(source: str, target: str, n_bits: int) -> Any:
        return parser.NXFlowSpecMatch(src=(source, 0), dst=(target, 0), n_bits=n_bits)

    learn = _LimitedLearn(
        table_id=action.table,
        idle_timeout=action.idle_timeout_s,
        fin_idle_timeout=action.fin_timeout_s,
        priority=_FOLLOWED_PRIORITY,
        cookie=action.cookie,
        specs=[
            parser.NXFlowSpecMatch(src=action.eth_type, dst=("eth_type", 0), n_bits=16),
            parser.NXFlowSpecMatch(src=6, dst=("ip_proto", 0), n_bits=8),
            same("eth_src", "eth_dst", 48),
            same(f"{version}_src", f"{version}_dst", bits),
            same(f"{version}_dst", f"{version}_src", bits),
            same("tcp_src", "tcp_dst", 16),
            same("tcp_dst", "tcp_src", 16),
            parser.NXFlowSpecLoad(src=("reg5", 0), dst=("reg1", 0), n_bits=32),
        ],
    )
    learn.limit = action.limit
    return learn


def _look_back(action: plain.LookBack) -> list[Any]:
    """Swap both ends, look, and swap them again:

    nothing is sent in between, so no frame is changed.
    """
    version, bits = ("ipv6", 128) if action.eth_type == ETH_IPV6 else ("ipv4", 32)
    swap = []
    for kind, n_bits in (("eth", 48), (version, bits), ("tcp", 16)):
        source, target = f"{kind}_src", f"{kind}_dst"
        swap += [
            parser.NXActionStackPush(field=each, start=0, end=n_bits) for each in (source, target)
        ]
        swap += [
            parser.NXActionStackPop(field=each, start=0, end=n_bits) for each in (source, target)
        ]
    return [*swap, parser.NXActionResubmitTable(table_id=action.table), *swap]


def _distinguish(action: plain.Distinguish) -> list[Any]:
    """Read both ends and put them back as they were: who reads a field depends on it."""
    version, bits = ("ipv6", 128) if action.eth_type == ETH_IPV6 else ("ipv4", 32)
    ends = [(f"{version}_src", bits), (f"{version}_dst", bits), ("tcp_src", 16), ("tcp_dst", 16)]
    both = (parser.NXActionStackPush, parser.NXActionStackPop)
    return [each(field=field, start=0, end=n_bits) for field, n_bits in ends for each in both]


def _actions(action: plain.Action) -> list[Any]:
    if isinstance(action, plain.LookBack):
        return _look_back(action)
    return _distinguish(action) if isinstance(action, plain.Distinguish) else [_action(action)]


def _action(action: plain.Action) -> Any:
    if isinstance(action, plain.Output):
        return parser.OFPActionOutput(action.port, 0)
    if isinstance(action, plain.ToController):
        return parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)
    if isinstance(action, plain.SetField):
        return parser.OFPActionSetField(**{action.name: action.value})
    if isinstance(action, plain.PushVlan):
        return parser.OFPActionPushVlan(0x8100)
    if isinstance(action, plain.PopVlan):
        return parser.OFPActionPopVlan()
    if isinstance(action, plain.Goto):
        return parser.NXActionResubmitTable(table_id=action.table)
    if isinstance(action, plain.ToGroup):
        return parser.OFPActionGroup(action.group_id)
    if isinstance(action, plain.OutputRegister):
        return parser.NXActionOutputReg(ofs_nbits=15, src=action.register, max_len=0)
    if isinstance(action, (plain.CopyField, plain.LookBack, plain.Distinguish)):
        raise TypeError(f"only buckets may hold {action}")
    if isinstance(action, plain.Follow):
        return _follow(action)
    return parser.NXActionLearn(
        table_id=action.table,
        idle_timeout=action.idle_timeout_s,
        priority=10,
        cookie=action.cookie,
        specs=[
            parser.NXFlowSpecMatch(src=("eth_src", 0), dst=("eth_dst", 0), n_bits=48),
            parser.NXFlowSpecLoad(src=("in_port_nxm", 0), dst=(action.register, 0), n_bits=16),
        ],
    )


class _Malformed(Exception):
    """What a switch sent cannot be read."""


class _Datapath(controller.Datapath):
    """os-ken's connection with a reader of its own.

    os-ken's notices a closed peer only when something is next sent to it, and goes on reading
    whatever garbage comes, with a traceback in the log for each message.
    """

    ri2n_channel: Any = None
    """Its apps.channel.Channel:

    messages may be handed out before the handler that makes it has run.
    """
    ri2n_names: frozenset[str] | None = None
    """The names in its certificate, when certificates are checked."""
    heard_s = 0.0
    place: socket.socket | None = None
    """What it holds of the listener's places."""
    ports: dict[int, Any] | None = None  # os-ken sets it when the switch has greeted
    _tolerated = _TOLERATED_MALFORMED
    _admitted: Callable[[], None] | None = None
    _read_bytes = 0
    _over_budget_s = -1e9  # when that was last said
    _ended = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._packet_ins = Budget(_PACKET_INS_PER_S, _PACKET_INS_BURST)
        self._others = Budget(_OTHERS_PER_S, _OTHERS_BURST)

    def ri2n_admitted(self) -> None:
        """It is known which host this is."""
        if self._admitted is not None:
            self._admitted()
            self._read_bytes = -1

    def ri2n_end(self) -> None:
        """Give the connection up, without waiting: its own thread notices and says so.

        What the switch still has to say is refused by a reset. By an end alone, one that says much
        and reads nothing would find out after two minutes, and hold this machine's buffers until
        then.
        """
        self._ended = True
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.socket.shutdown(socket.SHUT_RDWR)

    def _recv_loop(self) -> None:
        try:
            self._read()
        finally:
            self.close()
            self.send(
                b"", close_socket=True
            )  # wakes the sending thread, so that the connection is given up now
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
            # Here and not in a handler: those may be behind with their events while the switch is
            # well.
            self.heard_s = time.monotonic()
            if self._read_bytes >= 0:
                self._read_bytes += len(data)
                if self._read_bytes > _STRANGERS_BYTES:
                    raise _Malformed(
                        f"it said more than {_STRANGERS_BYTES} bytes before it was known who it is"
                    )
            buffer += data
            offset, lost = 0, False
            while len(buffer) - offset >= _HEADER.size and not self._ended:
                version, kind, length, xid = _HEADER.unpack_from(buffer, offset)
                if length < _HEADER.size:
                    raise _Malformed(f"a message of {length} bytes")
                if len(buffer) - offset < length:
                    break
                if kind != ofp.OFPT_PACKET_IN or self._packet_ins.take(self.heard_s):
                    self._message(version, kind, xid, bytes(buffer[offset : offset + length]))
                else:
                    handler_drops["packet_ins_over_budget"] += 1
                    lost = True
                if kind not in (ofp.OFPT_PACKET_IN, *_REPLIES):
                    self._breathe(self._others.owe(time.monotonic()))
                offset += length
            del buffer[:offset]
            self._breathe(_BREATH_S if lost else 0.0)

    def _breathe(self, seconds: float) -> None:
        """Read nothing for a moment, so that the others are read.

        What the switch says waits in its socket.
        """
        if seconds <= 0:
            return
        handler_drops["pauses_of_reading"] += 1
        if self.heard_s - self._over_budget_s > 60:
            self._over_budget_s = self.heard_s
            _LOG.warning(
                "%s says too much that nobody asked for: it is read more slowly", self.address[0]
            )
        time.sleep(seconds)
        self.heard_s = time.monotonic()

    def _message(self, version: int, kind: int, xid: int, data: bytes) -> None:
        greeted = self.state != HANDSHAKE_DISPATCHER
        if version not in _PARSERS or (greeted and version != ofp.OFP_VERSION):
            raise _Malformed(f"it speaks OpenFlow version {version:#04x}")
        if not greeted and kind not in (
            ofp.OFPT_HELLO,
            ofp.OFPT_ERROR,
            ofp.OFPT_ECHO_REQUEST,
            ofp.OFPT_ECHO_REPLY,
        ):
            raise _Malformed(f"message type {kind} before the greeting")
        try:
            # os-ken takes a description of ports for the end of a greeting, also of one that has
            # not begun.
            too_early = kind == ofp.OFPT_MULTIPART_REPLY and self.id is None
            if too_early or not wellformed.check(version, kind, data):
                handler_drops["message_not_asked_for"] += 1
                return
            message = _PARSERS[version](self, version, kind, len(data), xid, data)
        except Exception as error:
            handler_drops["message_malformed"] += 1
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
        for found in self.ofp_brick.get_handlers(ev):
            if self.state in found.callers[ev.__class__].dispatchers:
                found(ev)
        if self.ports is not None and len(self.ports) > wellformed.MAX_PORTS:
            raise _Malformed(f"more than {wellformed.MAX_PORTS} ports")


class _Controller(controller.OpenFlowController):
    """os-ken's listener on a socket that is already bound, with one line for every connection
    that goes wrong.
    """

    bound: socket.socket
    context: ssl.SSLContext | None = None
    expendable: Callable[[], Iterable[_Datapath]] = staticmethod(tuple)

    def __call__(self) -> None:
        self._lock = threading.Lock()
        self._door: Doorkeeper[socket.socket] = Doorkeeper(_MAX_CONNECTIONS)
        self._may_go: set[socket.socket] = set()
        self._asked_s = -_JUDGED_S
        threading.Thread(target=self._reap, name="of-reaper", daemon=True).start()
        while True:
            try:
                connection, address = self.bound.accept()
            except OSError as error:
                if self.bound.fileno() < 0:
                    return
                # A peer that gave up, or no file descriptors left: neither may end the listener.
                _LOG.warning("a connection was not taken: %s", error.strerror)
                time.sleep(0.1)
                continue
            may_go = self._expendable() if self._door.is_full else ()
            with self._lock:
                evicted = self._door.comes(
                    connection, str(address[0]), time.monotonic() + _GREETING_S, may_go
                )
            if evicted is not None:
                handler_drops["connections_turned_away"] += 1
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
        """Places of hosts that matter to nobody:

        asked for once a second, or whoever knocks costs all others time.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s > _JUDGED_S:
            self._asked_s = now_s
            self._may_go = {each.place for each in self.expendable() if each.place is not None}
        return self._may_go

    def _reap(self) -> None:
        """End the connections of those that do not say in time who they are."""
        while self.bound.fileno() >= 0:
            with self._lock:
                late = self._door.overdue(time.monotonic())
            for connection in late:
                handler_drops["connections_overdue"] += 1
                self._turn_away(connection, "its time for saying who it is is over")
            time.sleep(_REAP_S)

    def _turn_away(self, connection: socket.socket, why: str) -> None:
        """Its own thread, when it has one, closes it."""
        with contextlib.suppress(OSError):
            _LOG.warning("%s:%s dropped: %s", *connection.getpeername()[:2], why)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket, address: Any) -> None:
        plain = connection
        names: frozenset[str] | None = None

        def admitted() -> None:
            with self._lock:
                self._door.admitted(plain)

        try:
            if self.context is not None:
                connection.settimeout(10)
                # The door holds the plain socket, whose descriptor must stay when it is wrapped.
                connection = self.context.wrap_socket(connection.dup(), server_side=True)
                if self.context.verify_mode == ssl.CERT_REQUIRED:
                    names = _names(connection.getpeercert() or {})
            datapath = _Datapath(connection, address)
            datapath._admitted = admitted
            datapath.place = plain
            datapath.ri2n_names = names
            try:
                datapath.serve()
            finally:
                datapath.close()
        except _Malformed as error:
            handler_drops["closed_malformed"] += 1
            _LOG.warning("%s:%s dropped: %s", *address[:2], error)
        except Exception as error:
            _LOG.warning("%s:%s dropped: %s: %s", *address[:2], type(error).__name__, error)
        finally:
            with self._lock:
                self._door.leaves(plain)
            connection.close()
            plain.close()


def let_go_of(expendable: Callable[[], Iterable[_Datapath]]) -> None:
    """When all places are taken, new connections get those of the hosts that this returns."""
    _Controller.expendable = staticmethod(expendable)


def _names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The names that a verified certificate speaks for: DNS names, else its common name.

    `ovs-pki` writes " id:" and a number behind both.
    """
    dns = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    subject = [entry for part in certificate.get("subject", ()) for entry in part]
    common = [value for kind, value in subject if kind == "commonName"]
    return frozenset(str(value).partition(" id:")[0] for value in dns or common)


def tls_context(key: Path, certificate: Path, authority: Path | None) -> ssl.SSLContext:
    """TLS with these files, as PEM; with an authority, hosts must have a certificate of it.

    Raises NotAvailable.
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
    """Bind the OpenFlow port (with TLS when a context is given) and return the os-ken app that
    serves it.

    Raises NotAvailable when the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(512)
    except OSError as error:
        bound.close()
        hint = (
            "another controller runs there? (--listen HOST:PORT takes another)"
            if error.errno == 98
            else ""
        )
        raise NotAvailable(
            f"cannot listen on {host}:{port}: {error.strerror} {hint}".rstrip()
        ) from None
    _Controller.bound = bound
    if context is not None:
        _Controller.context = context
    cfg.CONF(args=[], project="ri2n", prog="ri2n controller")
    ofp_handler.OpenFlowController = _Controller
    return [ofp_handler.OFPHandler]


def start_apps(apps: Sequence[type[OSKenApp]]) -> None:
    """Make and start the apps; whatever goes wrong in that is raised.

    os-ken's threads are no daemons by themselves and never end, so the process could not: threads
    inherit that from the one that starts them.
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
