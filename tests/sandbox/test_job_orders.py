# SPDX-License-Identifier: Apache-2.0
"""What operators order about jobs, with real commands: named policies, moves, orders that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from tests.problem_texts import problem_texts
from tests.unit.commands import ri2n

from .declarations import declare, fail, job, orders, withdraw_all
from .frames import await_problems, wait_until

HOSTS = "AB"
NETWORKS = ("n0", "n1", "n2")


@pytest.fixture(scope="module")
def running() -> Iterator[Sandbox]:
    """Two hosts on three networks under a controller, which is settled."""
    with Sandbox({name: list(NETWORKS) for name in HOSTS}) as made:
        made.start_controller(strategy="max_min")
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()
        assert not [name for name in made.ask("status")["counters"] if "errors" in name]


@pytest.fixture
def sandbox(running: Sandbox) -> Iterator[Sandbox]:
    """The same; afterwards no host declares a job and nothing is ordered."""
    yield running
    for order in running.ask("job_list")["jobs"]:
        if order["source"] == "order":
            running.ask("job_end", id=order["id"])
    for each in running.ask("reserve_list")["reservations"]:
        running.ask("reserve_remove", id=each["id"])
    for host in HOSTS:
        withdraw_all(running, host)
    wait_until(lambda: not running.ask("job_list")["jobs"], "jobs stay though nobody declares them")
    await_problems(running)


def command(sandbox: Sandbox, *words: str) -> str:
    """What a command prints, which must succeed."""
    done = ri2n(*words, "--socket", str(sandbox.socket))
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def shown(sandbox: Sandbox, name: str) -> dict[str, Any]:
    """A job as `ri2n job show --json` has it."""
    document: dict[str, Any] = json.loads(command(sandbox, "job", "show", name, "--json"))
    return document


def state_of(sandbox: Sandbox, name: str) -> str | None:
    """The state of a job; None while the controller has not read that hosts declare it."""
    jobs = sandbox.ask("job_list")["jobs"]
    return next((str(each["state"]) for each in jobs if each["id"] == name), None)


def await_state(sandbox: Sandbox, name: str, state: str = "installed") -> None:
    wait_until(
        lambda: state_of(sandbox, name) == state, lambda: str(sandbox.ask("job_list")["jobs"])
    )


def start_anew(sandbox: Sandbox) -> None:
    """Kill the controller, and start another one with the same store."""
    sandbox.kill_controllers()
    sandbox.start_controller(strategy="max_min")
    sandbox.wait_settled()


def carry_out(sandbox: Sandbox, name: str, classes: dict[str, int]) -> None:
    """Let hosts declare a job that is ordered, each with its class."""
    for host, number in classes.items():
        wait_until(lambda host=host: name in orders(sandbox, host), "no order")  # type: ignore[misc]
        document = orders(sandbox, host)[name]
        document.pop("order")
        declare(sandbox, host, document | {"class": number, "source": "order"})


def test_a_named_policy_survives_a_new_start_and_its_job_survives_the_name(
    sandbox: Sandbox,
) -> None:
    named = ("--policy", "exclusive", "--max-rate", "800M")
    command(sandbox, "policy", "add", "gold", *named)
    start_anew(sandbox)
    assert command(sandbox, "policy", "show", "gold") == "gold: exclusive; at most 800.0 Mbit/s\n"
    job = ("job", "begin", "j1", "--hosts", "A,B", "--user", "20001", "--named", "gold")
    command(sandbox, *job)
    later = ("--begin", "2999-01-01", "--for", "2h", "--named", "gold")
    command(sandbox, "reserve", "add", "r1", "--hosts", "A,B", "--user", "20001", *later)
    carry_out(sandbox, "j1", {"A": 3, "B": 4})
    await_state(sandbox, "j1")
    lanes = shown(sandbox, "j1")["lanes"]
    assert len(lanes) == 1
    command(sandbox, "policy", "rm", "gold")
    start_anew(sandbox)
    assert command(sandbox, "policy", "ls") == "no named policies\n"
    await_state(sandbox, "j1")
    job_now = shown(sandbox, "j1")
    (reserved,) = sandbox.ask("reserve_list")["reservations"]
    for kept in (job_now, reserved):
        assert (kept["policy"], kept["max_rate_bps"]) == ("exclusive", 800_000_000)
    assert job_now["lanes"] == lanes


ORDER = ("job", "begin", "o1", "--hosts", "A,B", "--user", "20001")
FAILED: dict[str, Any] = {"v": 1, "id": "o1", "failed": True, "why": "no class is left"}


def test_an_order_that_a_host_cannot_carry_out_is_seen_until_it_can(sandbox: Sandbox) -> None:
    command(sandbox, *ORDER)
    fail(sandbox, "B", FAILED)
    line = "B cannot begin it: no class is left"
    wait_until(lambda: shown(sandbox, "o1")["why"] == line, lambda: str(shown(sandbox, "o1")))
    assert line in command(sandbox, "job", "ls")
    assert "B: has not begun it, and cannot carry out the order" in command(
        sandbox, "job", "show", "o1"
    )
    problem = "B: cannot carry out the order of job o1: no class is left"
    assert problem in problem_texts(sandbox.ask("status"))
    # The other host begins it: the job waits for B, whose reason is there still.
    carry_out(sandbox, "o1", {"A": 5})
    wait_until(lambda: shown(sandbox, "o1")["classes"] == {"A": 5}, "A is not in the job")
    assert (shown(sandbox, "o1")["state"], shown(sandbox, "o1")["why"]) == ("waiting", line)
    start_anew(sandbox)
    wait_until(
        lambda: state_of(sandbox, "o1") and shown(sandbox, "o1")["why"] == line,
        lambda: str(sandbox.ask("job_list")["jobs"]),
    )
    withdraw_all(sandbox, "B")
    carry_out(sandbox, "o1", {"B": 6})
    await_state(sandbox, "o1")
    assert shown(sandbox, "o1")["failed"] == {}
    await_problems(sandbox)


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (b"\xff\xfe", "failed order of A: the note is not UTF-8 text"),
        (b"[" * 500, "failed order of A: the note is not JSON: Expecting value"),
        ({**FAILED, "why": "x" * 201}, "failed order of A: why: String should have at most 200"),
        ({**FAILED, "why": "\x1b[2J"}, "failed order of A: why: must be one line of printable"),
        ({**FAILED, "id": "a\nb"}, "failed order of A: id: 'a\\nb' must be"),
        ({**FAILED, "class": 3}, "failed order of A: unknown key 'class'"),
    ],
    ids=["no text", "nested", "long", "control", "id", "key"],
)
def test_a_row_that_makes_no_sense_is_a_line_in_status_and_harms_no_order(
    sandbox: Sandbox, document: dict[str, Any] | bytes, fault: str
) -> None:
    command(sandbox, *ORDER)
    fail(sandbox, "A", document)
    fail(sandbox, "A", {**FAILED, "id": "of-another", "why": "it is not mine"}, 1)
    fail(sandbox, "A", FAILED, 2)
    wait_until(
        lambda: any(fault in text for text in problem_texts(sandbox.ask("status"))),
        lambda: str(problem_texts(sandbox.ask("status"))),
    )
    wait_until(
        lambda: shown(sandbox, "o1")["failed"] == {"A": "no class is left"},
        lambda: str(shown(sandbox, "o1")),
    )
    assert not any("it is not mine" in text for text in problem_texts(sandbox.ask("status")))


def test_a_host_with_more_such_rows_than_orders_has_the_first_read(sandbox: Sandbox) -> None:
    command(sandbox, *ORDER)
    for number in range(70):
        fail(sandbox, "A", {**FAILED, "id": f"x{number}"}, number)
    carry_out(sandbox, "o1", {"A": 1, "B": 1})
    await_state(sandbox, "o1")


def test_a_job_of_hosts_is_moved_until_it_ends_or_is_moved_back(sandbox: Sandbox) -> None:
    for number, host in enumerate(HOSTS, 1):
        declare(sandbox, host, job("h1", number, HOSTS, "exclusive"))
    await_state(sandbox, "h1")
    (lane,) = shown(sandbox, "h1")["lanes"]
    network = next(str(n["id"]) for n in sandbox.ask("status")["networks"] if n["id"] != lane)
    command(sandbox, "job", "move", "h1", "--paths", network)

    def is_moved() -> bool:
        if state_of(sandbox, "h1") != "installed":  # a new controller may not have read it yet
            return False
        document = shown(sandbox, "h1")
        used = {each["network"] for each in document["routes"]}
        return document["state"] == "installed" and used == {network} and not document["lanes"]

    def said() -> str:
        return str(sandbox.ask("job_list")["jobs"])

    wait_until(is_moved, said, 60)
    text = command(sandbox, "job", "show", "h1")
    assert f"paths; {network}, begun by its hosts" in text and "its hosts declare exclusive" in text
    why = command(sandbox, "explain", "A", "B", "--job", "h1")
    assert "h1 of alice (paths, moved by root) use 1 of 3 paths" in why, why
    start_anew(sandbox)
    wait_until(is_moved, said, 60)
    counters = sandbox.ask("status")["counters"]
    assert (counters.get("flow_mods", 0), counters.get("group_mods", 0)) == (0, 0), counters
    command(sandbox, "job", "move", "h1", "--back")
    wait_until(
        lambda: shown(sandbox, "h1")["lanes"] and not shown(sandbox, "h1")["moved"],
        said,
        60,
    )
    await_state(sandbox, "h1")
    assert shown(sandbox, "h1")["policy"] == "exclusive"
    # A move ends with the job: the next one with the same id has what its hosts declare.
    command(sandbox, "job", "move", "h1", "--paths", network)
    wait_until(is_moved, said, 60)
    for host in HOSTS:
        withdraw_all(sandbox, host)
    wait_until(lambda: not sandbox.ask("job_list")["jobs"], "the job has not ended")
    for number, host in enumerate(HOSTS, 1):
        declare(sandbox, host, job("h1", number, HOSTS, "exclusive"))
    await_state(sandbox, "h1")
    assert shown(sandbox, "h1")["policy"] == "exclusive" and not shown(sandbox, "h1")["moved"]
