# SPDX-License-Identifier: Apache-2.0
"""Random and mutated bytes go into both ends of a session.

`python -m tests.unit.parallel.fuzz --seconds N [--seed S]` runs more of them by hand.

Each case comes from a seed. It is a legal conversation: chunks in any order, twice, over any link,
with acknowledgements, pings and an end. Some of its frames are then changed, cut, doubled, left
out, or moved to where they do not belong. Greetings and answers are treated in the same way. A case
fails when it crashes, hangs, grows, takes bytes for others, or disturbs other connections. The seed
of a case that fails is printed; `--seed S --cases 1` runs it again.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import re
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator

from ri2n_parallel import (
    AllLinksLost,
    HandshakeRefused,
    ParallelListener,
    ParallelSocket,
    ProtocolError,
    Qos,
    create_connection,
)
from ri2n_parallel.engine import MAX_OUT
from ri2n_parallel.frames import (
    ABORT,
    ACK,
    DATA,
    EARLY,
    FIN,
    FRAME,
    GREETING,
    HELLO,
    JOIN,
    MAX_CHUNK,
    OK,
    PING,
    PONG,
    REPLY,
    SESSION_BYTES,
    Endpoint,
    Greeting,
    Reply,
)
from tests.unit.parallel.raw import (
    WINDOW,
    Hand,
    client_by_hand,
    early_by_hand,
    exactly,
    frame,
    server_by_hand,
)
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    connect,
    in_thread,
    p_all,
    resident_bytes,
    serving,
    wait_until,
)

__all__ = ["Watch", "run_case", "run_cases"]

BORDERS = [
    0,
    1,
    2,
    31,
    32,
    33,
    255,
    MAX_CHUNK - 1,
    MAX_CHUNK,
    MAX_CHUNK + 1,
    WINDOW - 1,
    WINDOW,
    WINDOW + 1,
]
BORDERS += [
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]
ENDS = (ProtocolError, ConnectionResetError, ConnectionAbortedError, AllLinksLost)
GROWTH_BYTES = 64 << 20


class Watch(logging.Handler):
    """Notes what the library logs: nothing that a peer sends may be logged as a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))

    def __enter__(self) -> Watch:
        logging.getLogger("ri2n.parallel").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("ri2n.parallel").removeHandler(self)


# ---- what is said


def conversation(chance: random.Random, data: bytes) -> list[bytes]:
    """The frames of `data`, in an order that a peer with several links may use."""
    at = 0
    frames: list[bytes] = []
    longest = chance.choice([1, 100, 1420, MAX_CHUNK])
    while at < len(data) and len(frames) < 200:
        size = chance.randint(1, longest)
        frames.append(frame(DATA, at, data[at : at + size]))
        at += size
    del frames[200:]
    reach = chance.choice([0, 1, 5, 200])
    frames = [
        one
        for _, one in sorted(
            (place + chance.uniform(0, reach), one) for place, one in enumerate(frames)
        )
    ]
    for _ in range(chance.randint(0, 5)):
        other = chance.choice(
            [frame(ACK), frame(PING, chance.choice(BORDERS)), frame(PONG, 5), *frames[:3]]
        )
        frames.insert(chance.randint(0, len(frames)), other)
    if chance.random() < 0.5:
        frames.insert(chance.randint(0, len(frames)), frame(FIN, min(at, len(data))))
    return frames


def changed(chance: random.Random, frames: list[bytes]) -> list[bytes]:
    """These bytes with one change."""
    frames = list(frames) or [frame(PING)]
    place = chance.randrange(len(frames))
    one = bytearray(frames[place])
    how = chance.randrange(10)
    if how == 0 and one:
        one[chance.randrange(min(len(one), FRAME.size))] = chance.randrange(256)
    elif how == 1 and len(one) >= FRAME.size:
        fields = list(FRAME.unpack_from(one))
        which = chance.randrange(5)
        most = [255, (1 << 32) - 1, (1 << 64) - 1, (1 << 64) - 1, (1 << 64) - 1][which]
        fields[which] = min(
            most, max(0, chance.choice([*BORDERS, fields[which] + 1, fields[which] - 1]))
        )
        one[: FRAME.size] = FRAME.pack(*fields)
    elif how == 2:
        del one[chance.randrange(len(one) + 1) :]
    elif how == 3:
        at = chance.randrange(len(one) + 1)
        one[at:at] = chance.randbytes(chance.choice([1, 2, 32, 100]))
    elif how == 4:
        frames.insert(chance.randrange(len(frames)), bytes(one))
    elif how == 5:
        one.clear()
    elif how == 6:
        other = chance.randrange(len(frames))
        frames[other], one = bytes(one), bytearray(frames[other])
    elif how == 7:
        one = bytearray(chance.randbytes(chance.choice([1, 32, 33, 1000])))
    elif how == 8:
        ranges = b"".join(
            struct.pack("!QQ", *chance.choices(BORDERS, k=2))
            for _ in range(chance.choice([1, 2, 32, 33]))
        )
        one = bytearray(frame(ACK, payload=ranges[: chance.choice([len(ranges), 15])]))
    else:
        text = chance.randbytes(chance.choice([0, 5, 200, 201]))
        one = bytearray(
            frame(chance.choice([ABORT, FIN, PONG, 0, 7]), chance.choice(BORDERS), text)
        )
    frames[place] = bytes(one)
    return frames


# ---- cases


def run_case(seed: int, listener: ParallelListener, watch: Watch) -> str:
    """Run one case, and return its outcome; AssertionError when that is not allowed."""
    chance = random.Random(seed)
    kind = chance.choice(["server"] * 5 + ["client"] * 3 + ["early"] * 2 + ["greeting", "answer"])
    if kind == "greeting":
        outcome = _greeting(chance, listener)
    elif kind == "answer":
        outcome = _answer(chance)
    else:
        outcome = _session(chance, kind, listener)
    assert not watch.found, watch.found
    return f"{kind}: {outcome}"


def _session(chance: random.Random, end: str, listener: ParallelListener) -> str:
    links = chance.randint(1, 3)
    data = chance.randbytes(chance.choice([0, 50, 3000, 100_000]))
    frames = conversation(chance, data)
    wrong = chance.choice([0, 1, 1, 1, 2, 3, 10])
    for _ in range(wrong):
        frames = changed(chance, frames)
    with contextlib.ExitStack() as stack:
        if end == "client":
            sock, hand = stack.enter_context(server_by_hand(links))
        else:
            hand = (
                early_by_hand(listener.address)
                if end == "early"
                else client_by_hand(listener.address, links)
            )
            stack.callback(hand.close)
            sock = _accepted(listener, hand)
            stack.callback(sock.abort)
            wait_until("links", lambda: end == "early" or len(sock.links) == links)
        return _talk(chance, sock, hand, frames, data, wrong)


def _accepted(listener: ParallelListener, hand: Hand) -> ParallelSocket:
    """The socket of that session; others are of greetings that were changed into early ones."""
    while (sock := listener.accept(PATIENCE_S))._session.name != hand.session:
        sock.abort()
    return sock


def _talk(
    chance: random.Random,
    sock: ParallelSocket,
    hand: Hand,
    frames: list[bytes],
    data: bytes,
    wrong: int,
) -> str:
    sock.settimeout(chance.choice([0.0, 0.001]))
    got = bytearray()
    sent = [0] * len(hand.links)
    error: BaseException | None = None
    to_send = chance.randbytes(chance.choice([0, 10, 5000]))
    ended = closed = False
    misplaced = chance.randrange(len(frames)) if wrong and chance.random() < 0.1 else -1
    cut = chance.randrange(len(frames)) if wrong and chance.random() < 0.2 else -1
    for place, one in enumerate(frames):
        number = chance.randrange(len(hand.links))
        stream = hand.links[number]
        if place == misplaced:
            stream, closed = hand.control, True
        elif place == cut:
            stream.close()
            closed = True
        try:
            stream.sendall(one)
            sent[number] += len(one)
        except OSError:  # it has been given up
            closed = True
        if error is None and not ended and chance.random() < 0.2:
            error, ended = _take(sock, got, chance.choice([1, 1000, 1 << 20]))
        if to_send and error is None and chance.random() < 0.1:
            with contextlib.suppress(*ENDS, BlockingIOError, TimeoutError):
                to_send = to_send[sock.send(to_send) :]
        _bounded(sock)
    deadline_s = time.monotonic() + PATIENCE_S
    session = sock._session
    while error is None and not ended and session.broken is None:
        error, ended = _take(sock, got, 1 << 20)
        _bounded(sock)
        welcome = 0 if session._rejoin is None else REPLY.size
        links = (
            [session.control]
            if hand.links == [hand.control]
            else [session.links.get(k) for k in range(len(sent))]
        )
        come = [-1 if link is None else link.received_bytes - welcome for link in links]
        if closed or all(
            -1 in (have,) or have >= want for have, want in zip(come, sent, strict=True)
        ):
            error, ended = (error, ended) if error or ended else _take(sock, got, 1 << 20)
            break
        assert time.monotonic() < deadline_s, f"it hangs: {come} of {sent} bytes have come"
        time.sleep(0.0005)
    if error is None and not ended:
        error, ended = _take(sock, got, 1 << 20)
    if not wrong:
        assert error is None, repr(error)
        complete = sum(len(one) - FRAME.size for one in {one for one in frames if one[0] == DATA})
        assert bytes(got) == data[:complete], f"{len(got)} bytes of {complete} came, or others"
        return "all well"
    if error is not None:
        text = str(error)
        assert "\n" not in text and len(text) < 1000, text
        if isinstance(error, ProtocolError):
            return re.sub(r"-?\d+|b'.*'", "N", text.partition("): ")[2])[:60]
        return type(error).__name__
    return "the end" if ended else "waits for more"


def _take(sock: ParallelSocket, got: bytearray, most: int) -> tuple[BaseException | None, bool]:
    """Read what is there; the error, and whether it was the end of the stream.

    Errors other than those of ENDS go on to the caller.
    """
    try:
        while part := sock.recv(most):
            got += part
            assert len(got) <= 2 * WINDOW
    except (BlockingIOError, TimeoutError):
        return None, False
    except ENDS as error:
        return error, False
    return None, True


def _bounded(sock: ParallelSocket) -> None:
    session = sock._session
    with session.lock:
        assert session.incoming.ready <= WINDOW << 3
        for link in session.links.values():
            assert len(link.rest) <= MAX_CHUNK + FRAME.size
            assert len(link.out) <= MAX_OUT + 8


def _greeting(chance: random.Random, listener: ParallelListener) -> str:
    session = bytes(SESSION_BYTES) if chance.random() < 0.5 else chance.randbytes(SESSION_BYTES)
    kind, proves = chance.choice([HELLO, JOIN, EARLY]), chance.random() < 0.3
    data = bytearray(
        Greeting(kind, chance.choice([1, 6, 64]), MAX_CHUNK, WINDOW, session, proves=proves).pack()
        + chance.randbytes(chance.choice([31, 32, 64, 128]) if proves else 0)
    )
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 255, chance.randrange(256)])
    if chance.random() < 0.2:
        del data[chance.randrange(len(data)) :]
    if chance.random() < 0.2:
        data += chance.randbytes(100)
    said = b""
    with (
        socket.create_connection(listener.address, PATIENCE_S) as stream,
        contextlib.suppress(OSError),
    ):
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
        said = exactly(stream, REPLY.size)
        if len(said) == REPLY.size:
            said += exactly(stream, Reply.more(said))
    if len(said) >= REPLY.size:
        return f"status {Reply.unpack(said).status}"
    return "closed"


def _answer(chance: random.Random) -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoints = (Endpoint(*listening.getsockname()),) * chance.choice([1, 2])
        data = bytearray(
            Reply(OK, MAX_CHUNK, WINDOW, chance.randbytes(SESSION_BYTES), endpoints).pack()
        )
        for _ in range(chance.choice([1, 1, 2, 5])):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 255, chance.randrange(256)])
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        listening.settimeout(PATIENCE_S)

        def serve() -> None:
            stream, _ = listening.accept()
            with stream, contextlib.suppress(OSError):
                exactly(stream, GREETING.size)
                stream.sendall(data)
                stream.shutdown(socket.SHUT_WR)
                exactly(stream, 1)

        serving_ = in_thread(serve)
        try:
            create_connection(listening.getsockname(), Qos(2), timeout_s=0.2).abort()
            outcome = "connected"
        except (
            ProtocolError,
            HandshakeRefused,
            AllLinksLost,
            TimeoutError,
            ConnectionError,
        ) as error:
            assert "\n" not in str(error)
            outcome = type(error).__name__
        serving_.result()
    return outcome


def run_cases(seeds: Iterator[int], *, seconds: float | None = None) -> Counter[str]:
    """Run cases until no seeds are left or the time is over; the number of each outcome."""
    outcomes: Counter[str] = Counter()
    began_s, before = time.monotonic(), resident_bytes()
    with Watch() as watch, serving(1, window_bytes=WINDOW) as listener:
        bystander = connect(listener.address, Qos(2))
        friend = listener.accept(PATIENCE_S)
        with bystander, friend:
            for seed in seeds:
                if seconds is not None and time.monotonic() - began_s > seconds:
                    break
                try:
                    outcomes[run_case(seed, listener, watch)] += 1
                    bystander.sendall(b"undisturbed")
                    assert p_all(friend, 11) == b"undisturbed"
                    growth = resident_bytes() - before
                    assert growth < GROWTH_BYTES, f"{growth >> 20} MiB more memory"
                except BaseException:
                    print(f"seed {seed} has failed (--seed {seed} --cases 1)", file=sys.stderr)
                    raise
    return outcomes


def main() -> None:
    """Run cases by hand."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()) << 20)
    parser.add_argument("--cases", type=int, default=1 << 30)
    options = parser.parse_args()
    print(f"seeds from {options.seed}")
    began_s = time.monotonic()
    outcomes = run_cases(
        iter(range(options.seed, options.seed + options.cases)), seconds=options.seconds
    )
    for outcome, count in outcomes.most_common():
        print(f"{count:8}  {outcome}")
    print(
        f"{outcomes.total():8}  cases in {time.monotonic() - began_s:.0f} s, "
        f"{resident_bytes() >> 20} MiB resident"
    )


if __name__ == "__main__":
    main()
