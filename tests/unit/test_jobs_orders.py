# SPDX-License-Identifier: Apache-2.0
"""No user's orders keep those of another one from a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps.job_book import MAX_OF_USER, JobBook
from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.model import Job, Policy, Reservation
from ri2n_sdn.jobs.orders import told


def order(user: str, number: int, hosts: tuple[str, ...] = ("A", "B")) -> Job:
    return Job(f"{user}-{number}", user, 20001, hosts, Policy("shared"), float(number), None)


@given(st.integers(0, 100), st.integers(0, 5), st.integers(1, 64))
def test_a_user_with_few_orders_has_a_place_beside_one_with_many(
    many: int, few: int, most: int
) -> None:
    orders = [order("eve", number) for number in range(many)]
    orders += [order("alice", 1000 + number) for number in range(few)]
    lists = told(orders, most)
    for host in ("A", "B") if orders else ():
        users = [each.user for _, each in lists[host]]
        assert len(users) == min(most, many + few)
        assert users.count("alice") >= min(few, most // 2)
        numbers = {each.id: number for number, each in lists[host]}
        assert all(sorted(orders, key=lambda job: job.begin_s)[numbers[i]].id == i for i in numbers)


def test_a_host_is_told_of_its_own_orders_alone() -> None:
    lists = told([order("alice", 1, ("A",)), order("bob", 2, ("B",))], 64)
    assert {host: [each.id for _, each in mine] for host, mine in lists.items()} == {
        "A": ["alice-1"],
        "B": ["bob-2"],
    }


def test_one_user_does_not_fill_the_book() -> None:
    book = JobBook()
    for number in range(MAX_OF_USER):
        book.add_order(order("eve", number))
        book.put_reservation(Reservation(f"eve-{number}", "eve", ("A",), 1.0, 2.0))
    with pytest.raises(BadInput, match="eve has 512 jobs already"):
        book.add_order(order("eve", MAX_OF_USER))
    with pytest.raises(BadInput, match="eve has 512 reservations already"):
        book.put_reservation(Reservation("one-more", "eve", ("A",), 1.0, 2.0))
    book.add_order(order("eve", 7))
    book.add_order(order("alice", 1))
    book.put_reservation(Reservation("r", "alice", ("A",), 1.0, 2.0))
