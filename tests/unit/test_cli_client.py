# SPDX-License-Identifier: Apache-2.0
"""The socket's client, with controllers that answer, refuse, hang, or send slowly or garbage."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.client import answered, call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError
from tests.waiting import LONG_S


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[Path]:
    """A unix socket that hands each connection to `serve`, on a thread that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder:
        path = Path(folder) / "controller.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen(8)

            def loop() -> None:
                while True:
                    try:
                        connection, _ = server.accept()
                    except OSError:
                        return
                    with connection:
                        try:
                            serve(connection)
                        except OSError:
                            continue

            thread = threading.Thread(target=loop)
            thread.start()
            try:
                yield path
            finally:
                server.shutdown(socket.SHUT_RDWR)
                thread.join(timeout=120)
                assert not thread.is_alive()


def answering(reply: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.makefile("rb").readline()
        connection.sendall(reply)

    return serve


def test_an_answer_comes_back_and_the_request_is_one_json_line() -> None:
    got: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        got.append(connection.makefile("rb").readline())
        connection.sendall(b'{"ok": true, "hosts": []}\n')

    with listener(serve) as path:
        assert call(path, "explain", src="A", dst="B") == {"ok": True, "hosts": []}
    assert json.loads(got[0]) == {"op": "explain", "src": "A", "dst": "B"}


def test_a_lease_lasts_as_long_as_the_block_and_an_error_in_it_stays_as_it_is() -> None:
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        requests = connection.makefile("rb")
        requests.readline()
        connection.sendall(b'{"ok": true, "owners": {"a": 1}}\n')
        assert requests.read() == b""
        ended.set()

    with listener(serve) as path:
        with (
            pytest.raises(FileNotFoundError),
            answered(path, ops.VLAN_TABLE, owner="a", pairs=[], lease=True) as answer,
        ):
            assert answer["owners"] == {"a": 1}
            assert not ended.is_set()
            raise FileNotFoundError("what runs in the block")
        assert ended.wait(LONG_S)


def test_a_large_answer_comes_back_whole() -> None:
    reply = {"ok": True, "pairs": ["x" * 100] * 20_000}
    with listener(answering(json.dumps(reply).encode() + b"\n")) as path:
        assert call(path, "status") == reply


def test_a_refusal_is_bad_input_in_the_controllers_words() -> None:
    with (
        listener(answering(b'{"ok": false, "error": "unknown host Z"}\n')) as path,
        pytest.raises(BadInput, match=r"^unknown host Z$"),
    ):
        call(path, "explain", src="Z", dst="A")


def test_a_controller_that_hangs_or_drips_is_given_up_on() -> None:
    done = threading.Event()

    def drip(connection: socket.socket) -> None:
        while not done.wait(0.05):
            connection.sendall(b" ")

    with listener(drip) as path:
        with pytest.raises(NotAvailable) as given_up:
            call(path, "status", timeout_s=0.5)
        assert given_up.value.code == "controller_late"
        assert given_up.value.values == {"path": str(path), "after_s": 0.5}
        done.set()


def test_nobody_there() -> None:
    with pytest.raises(NotAvailable) as refused:
        call(Path("/nonexistent/controller.sock"), "status")
    assert refused.value.code == "controller_absent"
    assert refused.value.values == {"path": "/nonexistent/controller.sock"}


def test_a_socket_path_that_is_too_long_is_one_line() -> None:
    with pytest.raises(NotAvailable, match="too long"):
        call(Path("/tmp") / ("x" * 200), "status")


GARBAGE = st.one_of(
    st.binary(max_size=300),
    st.just(b"[" * 100_000 + b"\n"),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ok", "error"]), inner)
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode() + b"\n"),
)


def test_garbage_raises_one_of_our_errors_with_one_line() -> None:
    reply = b""

    def serve(connection: socket.socket) -> None:
        answering(reply)(connection)

    with listener(serve) as path:

        @settings(max_examples=150, deadline=None)
        @given(GARBAGE)
        def check(garbage: bytes) -> None:
            nonlocal reply
            reply = garbage
            try:
                assert call(path, "status", timeout_s=60)["ok"] is True
            except Ri2nError as error:
                assert "Traceback" not in str(error)

        check()
