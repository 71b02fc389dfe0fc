# SPDX-License-Identifier: Apache-2.0
"""Places for connections: no address takes another one's, and strangers have limited time."""

from __future__ import annotations

from ri2n_sdn.apps.doorkeeper import Doorkeeper


def test_whoever_floods_takes_places_from_nobody_else() -> None:
    door: Doorkeeper[str] = Doorkeeper(100)
    for number in range(99):
        assert door.add(f"evil{number}", "192.0.2.66", 15.0) is None
    assert door.add("honest0", "192.0.2.1", 15.0) is None
    for number in range(1, 40):
        assert door.add(f"honest{number}", f"192.0.2.{number + 1}", 15.0) == f"evil{number - 1}"
    for number in range(99, 300):  # more floods: they take its own places
        assert str(door.add(f"evil{number}", "192.0.2.66", 15.0)).startswith("evil")
    assert len(door._open) == 100


def test_an_address_that_holds_as_many_places_as_another_pays_for_its_own_newcomer() -> None:
    door: Doorkeeper[str] = Doorkeeper(4)
    for connection, address in (
        ("a0", "192.0.2.1"),
        ("a1", "192.0.2.1"),
        ("b0", "192.0.2.2"),
        ("b1", "192.0.2.2"),
    ):
        assert door.add(connection, address, 15.0) is None
    assert door.add("b2", "192.0.2.2", 15.0) == "b0", (
        "though the oldest of all is of the other address"
    )
    assert door.add("c0", "192.0.2.3", 15.0) == "a0", (
        "who has none yet gets the oldest place of either"
    )


def test_who_is_known_keeps_its_place_and_then_the_new_one_is_turned_away() -> None:
    door: Doorkeeper[str] = Doorkeeper(3)
    for number in range(3):
        door.add(f"host{number}", "127.0.0.1", 15.0)
    door.admitted("host0")
    door.admitted("host2")
    assert door.add("host3", "127.0.0.1", 15.0) == "host1"
    door.admitted("host3")
    assert door.add("host4", "192.0.2.9", 15.0) == "host4" and len(door._open) == 3
    door.remove("host0")
    door.remove("host0")
    assert door.add("host4", "192.0.2.9", 15.0) is None


def test_strangers_have_their_time_and_hosts_all_time() -> None:
    door: Doorkeeper[str] = Doorkeeper(10)
    door.add("slow", "192.0.2.1", 15.0)
    door.add("host", "192.0.2.1", 15.0)
    door.add("late", "192.0.2.1", 18.0)
    door.admitted("host")
    assert door.overdue(15.0) == []
    assert door.overdue(15.1) == ["slow"]
    assert door.overdue(18.1) == ["late"] and len(door._open) == 1
    door.admitted("slow")  # too late: it has left
    assert len(door._open) == 1


def polite(door: Doorkeeper[str], *connections: str, address: str = "192.0.2.66") -> None:
    for connection in connections:
        assert door.add(connection, address, 15.0) is None
        door.admitted(connection)


def test_hosts_that_matter_to_nobody_make_room_where_no_stranger_is_left() -> None:
    door: Doorkeeper[str] = Doorkeeper(4)
    polite(door, "host", address="192.0.2.1")
    polite(door, "fake0", "fake1", "fake2")
    fakes = {"fake0", "fake1", "fake2"}
    assert door.is_full and door.add("late", "192.0.2.2", 15.0) == "late"
    assert door.add("back", "192.0.2.2", 15.0, fakes) == "fake0"
    door.admitted("back")
    # An address that floods takes its own places.
    assert door.add("fake3", "192.0.2.66", 15.0, fakes) == "fake1"
    assert len(door._open) == 4


def test_a_flood_of_polite_ones_does_not_take_the_place_of_who_is_just_greeting() -> None:
    door: Doorkeeper[str] = Doorkeeper(4)
    polite(door, "fake0", "fake1", "fake2")
    assert door.add("greeting", "192.0.2.1", 15.0) is None
    for number in range(3, 9):
        taken = door.add(f"fake{number}", "192.0.2.66", 15.0, {f"fake{each}" for each in range(9)})
        assert taken == f"fake{number - 3}"
        door.admitted(f"fake{number}")


def test_of_one_address_strangers_go_first() -> None:
    door: Doorkeeper[str] = Doorkeeper(3)
    polite(door, "fake0", "fake1")
    door.add("silent", "192.0.2.66", 15.0)
    assert door.add("host", "192.0.2.1", 15.0, {"fake0", "fake1"}) == "silent"


def test_a_network_of_ipv6_is_one_address() -> None:
    door: Doorkeeper[str] = Doorkeeper(4)
    door.add("honest0", "2001:db8:1::1", 15.0)
    door.add("honest1", "2001:db8:1::1", 15.0)
    for number in range(2):
        door.add(f"evil{number}", f"2001:db8:66::{number + 1}", 15.0)
    # Of four addresses, the second has the most connections; of three networks, the newcomer's has.
    assert door.add("evil2", "2001:db8:66::3", 15.0) == "evil0"
