# SPDX-License-Identifier: Apache-2.0
"""The controller's OpenFlow address: what holds it for a moment is waited for."""

from __future__ import annotations

import socket
import threading

import pytest

from ri2n_sdn.apps import openflow
from ri2n_sdn.errors import NotAvailable


def holder() -> socket.socket:
    """A listening socket, as a controller has that is about to end."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    held.listen()
    return held


def test_an_address_that_is_taken_for_a_moment_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openflow._Controller, "bound", None, raising=False)
    base = openflow._Controller.__base__
    monkeypatch.setattr("os_ken.controller.ofp_handler.OpenFlowController", base)
    monkeypatch.setattr(openflow, "_BIND_PATIENCE_S", 60.0)
    held = holder()
    port = held.getsockname()[1]
    ends = threading.Timer(0.2, held.close)
    ends.start()
    try:
        openflow.listen("127.0.0.1", port)
    finally:
        ends.join()
    with openflow._Controller.bound as bound:
        assert bound.getsockname() == ("127.0.0.1", port)


def test_an_address_that_stays_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openflow, "_BIND_PATIENCE_S", 0.1)
    with holder() as held, pytest.raises(NotAvailable, match="Address already in use"):
        openflow.listen("127.0.0.1", held.getsockname()[1])
