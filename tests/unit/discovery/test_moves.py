# SPDX-License-Identifier: Apache-2.0
"""A NIC is said to have moved when its former network has been silent for the whole span."""

from __future__ import annotations

from ri2n_sdn.discovery.moves import Moves

A, B = ("A", 1), ("B", 1)
SPAN_S = 2.0


def said(
    moves: Moves, now_s: float, heard_s: float | None = None, alive_s: float | None = None
) -> list[object]:
    """Who has moved by now.

    The new network was heard at `heard_s`, and the former one was alive at `alive_s`; None is now.
    """
    heard = now_s if heard_s is None else heard_s
    alive = now_s if alive_s is None else alive_s
    return list(moves.proven(now_s, SPAN_S, lambda nic: heard, lambda network: alive))


def test_a_nic_that_hears_only_its_new_network_has_moved_and_is_named_once() -> None:
    moves = Moves()
    moves.left(A, 2, 1, 10.0)
    moves.contact(B, 2)
    moves.contact(A, 1)
    assert said(moves, 11.9) == []
    assert said(moves, 12.0) == [(A, 2)]
    assert said(moves, 20.0) == []


def test_a_nic_that_hears_its_former_network_or_nothing_has_not_moved() -> None:
    moves = Moves()
    moves.left(A, 2, 1, 10.0)
    moves.contact(A, 2)
    assert said(moves, 13.0) == []
    moves.left(A, 2, 1, 20.0)
    assert said(moves, 22.0, heard_s=20.5) == []
    moves.left(A, 2, 1, 30.0)
    moves.merged(1, 2)
    assert said(moves, 33.0) == []
    moves.left(A, 2, 1, 40.0)
    moves.gone(A)
    assert said(moves, 43.0) == []


def test_a_founder_that_nobody_has_met_has_not_moved() -> None:
    moves = Moves()
    moves.founded(A)
    moves.left(A, 2, 1, 10.0)
    assert said(moves, 13.0) == []
    moves.founded(A)
    moves.met(A)
    moves.left(A, 2, 1, 20.0)
    assert said(moves, 23.0) == [(A, 2)]


def test_a_way_over_several_networks_is_one_move_and_a_way_back_is_none() -> None:
    moves = Moves()
    moves.left(A, 3, 2, 10.0)
    moves.left(A, 2, 1, 10.5)
    assert said(moves, 12.0) == []
    assert said(moves, 12.5) == [(A, 3)]
    moves.left(A, 3, 2, 20.0)
    moves.left(A, 2, 3, 20.5)
    assert said(moves, 25.0) == []


def test_a_former_network_that_nobody_floods_proves_nothing() -> None:
    moves = Moves()
    moves.left(A, 2, 1, 10.0)
    assert said(moves, 12.0, alive_s=-1e9) == []
    assert said(moves, 15.0, alive_s=15.0) == [(A, 2)], "it was alive again in time"
    moves.left(A, 2, 1, 20.0)
    assert said(moves, 26.5, alive_s=-1e9) == []
    assert said(moves, 27.0) == [], "it was forgotten"
