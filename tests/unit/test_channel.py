# SPDX-License-Identifier: Apache-2.0
"""A switch's connection: what is sent in which order, and which replies belong to which request."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ri2n_sdn.apps import channel as module
from ri2n_sdn.apps import charge, codec
from ri2n_sdn.apps.channel import ECHO, Channel, Close, Refused, Unfinished
from ri2n_sdn.apps.openflow import handler_drops, ofp, parser
from ri2n_sdn.contract.counters import COUNTERS
from ri2n_sdn.pipeline.layout import COOKIE_MASK, COOKIE_OURS

LONG_S = 120.0


class Switch:
    """os-ken's side of a connection. It takes what is sent once `reads` is set."""

    address = ("192.0.2.1", 40000)
    id = 1

    def __init__(self) -> None:
        self.socket = SimpleNamespace(getsockname=lambda: ("192.0.2.9", 6653))
        self.reads = threading.Event()
        self.got = b""
        self.closed = False

    def send(self, data: bytes) -> bool:
        assert self.reads.wait(LONG_S)
        self.got += data
        return not self.closed

    def ri2n_end(self) -> None:
        self.closed = True
        self.reads.set()


ROWS = codec.flows()


@pytest.fixture
def switch() -> Switch:
    return Switch()


@pytest.fixture
def channel(switch: Switch) -> Iterator[Channel]:
    made = Channel(switch)
    yield made
    made.close(Close.ENDED)


def part(xid: int, more: bool, what: int = ofp.OFPMP_FLOW_DESC, size: int = 100) -> Any:
    flags = ofp.OFPMPF_REPLY_MORE if more else 0
    return SimpleNamespace(
        xid=xid, flags=flags, msg_type=ofp.OFPT_MULTIPART_REPLY, type=what, buf=bytes(size)
    )


def test_a_reply_is_whole_with_its_last_part(channel: Channel) -> None:
    future = channel.request(ROWS)
    xid, unrelated = xid_of(channel), channel.request(ROWS)
    for number, more in enumerate((True, True, False)):
        assert not future.done()
        each = part(xid, more)
        each.buf = bytes(16) + bytes([number])
        channel.answered(each)
    assert future.result(LONG_S) == b"\0\1\2" and not unrelated.done()
    channel.answered(part(xid, False))  # once more: the request is no longer open


def test_an_error_ends_the_request_that_it_is_about(channel: Channel) -> None:
    future = channel.request(ROWS)
    xid, unrelated = xid_of(channel), channel.request(ROWS)
    assert channel.failed(xid, "error type 1 code 2")
    with pytest.raises(Refused, match="error type 1 code 2"):
        future.result(LONG_S)
    assert not unrelated.done()
    assert not channel.failed(xid, "again")  # the request is no longer open


def test_what_is_sent_arrives_in_order(channel: Channel, switch: Switch) -> None:
    sent = [bytes([number]) * 30_000 for number in range(20)]
    for data in sent:
        channel.send_bytes(data)
    switch.reads.set()
    whole = threading.Event()
    last = channel.request(ROWS)
    asked = codec.message(
        ofp.OFPT_MULTIPART_REQUEST, struct.pack("!H6x", ROWS.kind) + ROWS.body, xid_of(channel)
    )
    assert not last.done()
    for _ in range(int(LONG_S * 100)):
        if len(switch.got) == 600_000 + len(asked):
            break
        whole.wait(0.01)
    assert switch.got == b"".join(sent) + asked


def test_a_switch_that_does_not_read_is_given_up(channel: Channel, switch: Switch) -> None:
    """16 MB may wait. Open requests then fail instead of waiting for ever."""
    future = channel.request(ROWS)
    sent = 0
    while not channel.closed and sent < 32 << 20:
        channel.send_bytes(bytes(1 << 20))
        sent += 1 << 20
    assert 16 << 20 <= sent <= 18 << 20
    assert channel.closed and switch.closed
    with pytest.raises(ConnectionError, match="does not read"):
        future.result(LONG_S)
    with pytest.raises(ConnectionError, match="closed"):
        channel.request(ROWS).result(LONG_S)


def test_a_switch_that_reads_in_the_end_may_be_sent_any_amount(
    channel: Channel, switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only waiting bytes count, not all that were ever sent."""
    monkeypatch.setattr(module, "_MAX_QUEUED_BYTES", 200_000)
    for turn in range(1, 11):
        switch.reads.clear()
        for _ in range(10):
            channel.send_bytes(bytes(10_000))
        switch.reads.set()
        for _ in range(int(LONG_S * 100)):
            if channel.closed or len(switch.got) == turn * 100_000:
                break
            threading.Event().wait(0.01)
        assert not channel.closed and len(switch.got) == turn * 100_000


def test_open_requests_are_bounded(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PENDING", 3)
    for _ in range(3):
        assert not channel.request(ROWS).done()
    with pytest.raises(ConnectionError, match="too many open requests"):
        channel.request(ROWS).result(LONG_S)


@pytest.mark.parametrize(
    "odd",
    [{"type": ofp.OFPMP_PORT_STATS}, {"msg_type": ofp.OFPT_BARRIER_REPLY, "type": None}],
    ids=["kind", "barrier"],
)
def test_who_answers_something_else_than_was_asked_is_given_up(
    channel: Channel, switch: Switch, odd: dict[str, Any]
) -> None:
    future = channel.request(ROWS)
    reply = part(xid_of(channel), False)
    reply.__dict__.update(odd)
    channel.answered(reply)
    assert channel.closed and switch.closed
    with pytest.raises(ConnectionError, match="something else"):
        future.result(LONG_S)


def test_a_reply_that_does_not_end_is_given_up(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is on all unfinished replies together. Finished ones no longer count."""
    monkeypatch.setattr(module, "_MAX_REPLY_BYTES", 10_000)
    for _ in range(20):
        future = channel.request(ROWS)
        xid = xid_of(channel)
        channel.answered(part(xid, True, size=6000))
        channel.answered(part(xid, False, size=6000))
        assert len(future.result(LONG_S)) == 2 * (6000 - 16)
    futures, xids = [], []
    for _ in range(2):
        futures.append(channel.request(ROWS))
        xids.append(xid_of(channel))
    channel.answered(part(xids[0], True, size=6000))
    assert not channel.closed
    channel.answered(part(xids[1], True, size=6000))
    assert channel.closed
    for future in futures:
        with pytest.raises(ConnectionError, match="longer than 10000 bytes"):
            future.result(LONG_S)


def test_replies_that_fail_give_their_room_back(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_REPLY_BYTES", 10_000)
    for _ in range(20):
        channel.request(ROWS)
        channel.answered(part(xid_of(channel), True, size=6000))
        assert channel.failed(xid_of(channel), "error")
    assert not channel.closed


def test_a_switch_is_mute_from_its_oldest_open_request_on(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_s = [107.0, 100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=asked_s.pop))
    assert channel.mute_s(100.0) == 0.0
    channel.request(ROWS)
    first = xid_of(channel)
    channel.request(ROWS)
    assert channel.mute_s(109.0) == 9.0
    channel.answered(part(first, False))
    assert channel.mute_s(109.0) == 2.0
    channel.answered(part(xid_of(channel), False))
    assert channel.mute_s(109.0) == 0.0


def test_of_all_replies_that_do_not_end_the_longest_goes(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch whose replies are short is not given up because of others."""
    monkeypatch.setattr(module._unfinished, "max_bytes", 2000)
    other_switch = Switch()
    other = Channel(other_switch)
    closed = handler_drops[Close.REPLIES_EVICTED.counter]
    try:
        endless, modest = other.request(ROWS), channel.request(ROWS)
        channel.answered(part(xid_of(channel), more=True, size=300))
        for _ in range(5):
            other.answered(part(xid_of(other), more=True, size=300))
        assert not other.closed
        channel.answered(part(xid_of(channel), more=True, size=300))
        assert (
            other.closed and not channel.closed and isinstance(endless.exception(), ConnectionError)
        )
        channel.answered(part(xid_of(channel), more=True, size=1300))
        channel.answered(part(xid_of(channel), more=False))
        assert len(modest.result(timeout=LONG_S)) == 300 + 300 + 1300 + 100 - 4 * 16
        assert module._unfinished.total_bytes == 0
    finally:
        other.close(Close.ENDED)
    assert handler_drops[Close.REPLIES_EVICTED.counter] == closed + 1


def test_who_releases_more_than_it_holds_makes_no_room_for_others() -> None:
    unfinished: Unfinished[str] = Unfinished(1000)
    unfinished.add("a", 400)
    unfinished.add("b", 600)
    unfinished.release("a", 500)
    unfinished.release("a", 100)
    assert unfinished.total_bytes == 600
    assert unfinished.add("a", 401) == "b"


def xid_of(channel: Channel) -> int:
    """The transaction ID of the channel's open request."""
    return next(iter(channel._pending))


@pytest.mark.parametrize("why", Close)
def test_closed_connections_are_counted_by_reason(channel: Channel, why: Close) -> None:
    args = {"seconds": 5.0, "max_bytes": 100}
    before, waiting = handler_drops[why.counter], channel.request(ROWS)
    channel.close(why, **args)
    channel.close(why, **args)
    assert handler_drops[why.counter] == before + 1
    assert str(waiting.exception()) == why.text.format(**args)


def test_every_reason_has_a_counter_of_its_own() -> None:
    assert len({why.counter for why in Close}) == len(Close)
    assert all(why.counter in COUNTERS for why in Close)


MATCH: dict[str, int | str] = {
    "eth_type": 0x800,
    "ip_proto": 6,
    "ipv4_src": "10.0.0.1",
    "tcp_dst": 80,
    "tcp_src": 9,
}
ANY = (ofp.OFPP_ANY, ofp.OFPG_ANY)
OURS = (COOKIE_OURS << 48, COOKIE_MASK)
OS_KEN = SimpleNamespace(ofproto=ofp, ofproto_parser=parser)


@pytest.mark.parametrize(
    ("question", "reference"),
    [
        (codec.DESCRIPTION, parser.OFPDescStatsRequest(OS_KEN, 0)),
        (codec.PORT_COUNTERS, parser.OFPPortStatsRequest(OS_KEN, 0, ofp.OFPP_ANY)),
        (codec.GROUP_COUNTERS, parser.OFPGroupStatsRequest(OS_KEN, 0, ofp.OFPG_ALL)),
        (codec.GROUPS, parser.OFPGroupDescStatsRequest(OS_KEN, 0, ofp.OFPG_ALL)),
        (
            codec.flows(),
            parser.OFPFlowDescStatsRequest(
                OS_KEN, 0, ofp.OFPTT_ALL, *ANY, *OURS, parser.OFPMatch()
            ),
        ),
        (
            codec.flows(7, 5, 6, MATCH),
            parser.OFPFlowDescStatsRequest(OS_KEN, 0, 7, *ANY, 5, 6, parser.OFPMatch(**MATCH)),
        ),
        (None, parser.OFPBarrierRequest(OS_KEN)),
    ],
)
def test_requests_are_encoded_as_os_ken_does(
    channel: Channel,
    monkeypatch: pytest.MonkeyPatch,
    question: codec.Question | None,
    reference: Any,
) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(channel, "send_bytes", sent.append)
    channel.request(question)
    reference.set_xid(xid_of(channel))
    reference.serialize()
    assert sent == [bytes(reference.buf)]


@pytest.mark.parametrize(
    ("kind", "body", "reference"),
    [
        (ofp.OFPT_ECHO_REQUEST, ECHO.pack(7.5), parser.OFPEchoRequest(OS_KEN, ECHO.pack(7.5))),
        (
            ofp.OFPT_ROLE_REQUEST,
            charge._ROLE.pack(ofp.OFPCR_ROLE_MASTER, ofp.OFPCID_UNDEFINED, 9),
            parser.OFPRoleRequest(OS_KEN, ofp.OFPCR_ROLE_MASTER, ofp.OFPCID_UNDEFINED, 9),
        ),
    ],
)
def test_messages_without_a_reply_are_encoded_as_os_ken_does(
    channel: Channel,
    monkeypatch: pytest.MonkeyPatch,
    kind: int,
    body: bytes,
    reference: Any,
) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(channel, "send_bytes", sent.append)
    channel.send(kind, body)
    reference.set_xid(1)
    reference.serialize()
    assert sent == [bytes(reference.buf)]


def test_a_frame_that_a_switch_is_to_send_is_a_packet_out(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(channel, "send_bytes", sent.append)
    channel.send_frame(3, b"x" * 60)
    assert sent == [codec.packet_out(3, b"x" * 60, 1)]
