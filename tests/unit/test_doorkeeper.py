"""Places for connections: nobody takes another address's, and strangers have their time."""

from __future__ import annotations

from ri2n_sdn.apps.doorkeeper import Doorkeeper


def test_whoever_floods_takes_places_from_nobody_else() -> None:
    door: Doorkeeper[str] = Doorkeeper(100)
    for number in range(99):
        assert door.comes(f"evil{number}", "192.0.2.66", 15.0) is None
    assert door.comes("honest0", "192.0.2.1", 15.0) is None
    for number in range(1, 40):
        assert door.comes(f"honest{number}", f"192.0.2.{number + 1}", 15.0) == f"evil{number - 1}"
    for number in range(99, 300):  # more floods: its own go
        assert str(door.comes(f"evil{number}", "192.0.2.66", 15.0)).startswith("evil")
    assert len(door) == 100


def test_who_is_known_keeps_its_place_and_then_the_new_one_is_turned_away() -> None:
    door: Doorkeeper[str] = Doorkeeper(3)
    for number in range(3):
        door.comes(f"host{number}", "127.0.0.1", 15.0)
    door.admitted("host0")
    door.admitted("host2")
    assert door.comes("host3", "127.0.0.1", 15.0) == "host1"
    door.admitted("host3")
    assert door.comes("host4", "192.0.2.9", 15.0) == "host4" and len(door) == 3
    door.leaves("host0")
    door.leaves("host0")
    assert door.comes("host4", "192.0.2.9", 15.0) is None


def test_strangers_have_their_time_and_hosts_all_time() -> None:
    door: Doorkeeper[str] = Doorkeeper(10)
    door.comes("slow", "192.0.2.1", 15.0)
    door.comes("host", "192.0.2.1", 15.0)
    door.comes("late", "192.0.2.1", 18.0)
    door.admitted("host")
    assert door.overdue(15.0) == []
    assert door.overdue(15.1) == ["slow"]
    assert door.overdue(18.1) == ["late"] and len(door) == 1
    door.admitted("slow")  # too late: it has left
    assert len(door) == 1
