# SPDX-License-Identifier: Apache-2.0
"""Orders that a host cannot carry out: the rows by which host-watch tells the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from ri2n_sdn.jobs.declaration import MAX_FAILURE, Failure, read_failure
from ri2n_sdn.pipeline.layout import COOKIE_FAILED

from .frames import wait_until
from .marked_host import BRIDGE, SCRIPTS, MarkedHost, host, shared
from .test_job_script_lives import ORDER, USER, declared, give_order, watch

__all__ = ["host", "shared", "watch"]


def failed(host: MarkedHost) -> dict[str, str]:
    """What the host says of orders, by the job's id, as the controller reads it."""
    notes = [note for priority, note in host.rows(248) if priority >= 1000]
    found = [read_failure("A", note) for note in notes]
    assert len({failure.id for failure in found}) == len(found)
    return {failure.id: failure.why for failure in found}


def take_back(host: MarkedHost, number: int) -> None:
    host.ofctl("del-flows", BRIDGE, f"table=247,in_port=LOCAL,reg6=0,reg7={number}")


def test_an_order_that_fails_is_told_until_it_succeeds(watch: MarkedHost) -> None:
    watch.begin("own", USER)
    give_order(watch, 1, ORDER)
    wait_until(lambda: failed(watch), "the order does not fail")
    assert failed(watch) == {
        "ordered:1": f"--user {USER}: job own of this user runs here: --cgroup tells two jobs apart"
    }
    assert set(declared(watch)) == {"own"}
    # What other jobs declare is made anew each time; this stays.
    watch.begin("other", 30001)
    assert failed(watch)
    # A row that somebody removes comes back.
    watch.ofctl("del-flows", BRIDGE, "table=248,in_port=LOCAL,reg7=0,reg6=0")
    wait_until(lambda: failed(watch), "the row does not come back")
    watch.script("job-end", "--id", "own")
    wait_until(lambda: "ordered:1" in declared(watch), "the order is not tried again")
    wait_until(lambda: not failed(watch), "the host still says that the order fails")
    take_back(watch, 1)


def test_orders_that_fail_are_told_each_and_no_longer_than_they_are_there(
    watch: MarkedHost,
) -> None:
    for number in (1, 2, 3):
        give_order(watch, number, {**ORDER, "id": f"root:{number}", "uid": 0})
    give_order(watch, 4, {**ORDER, "id": "good", "uid": 30000})
    wait_until(lambda: len(failed(watch)) == 3, lambda: f"failed are {failed(watch)}")
    assert "packets of root are also the system's" in failed(watch)["root:2"]
    wait_until(lambda: "good" in declared(watch), "the right order is not carried out")
    take_back(watch, 2)
    wait_until(
        lambda: set(failed(watch)) == {"root:1", "root:3"}, lambda: f"failed are {failed(watch)}"
    )
    for number in (1, 3, 4):
        take_back(watch, number)
    wait_until(lambda: not failed(watch), "the host tells of orders that are gone")


def test_a_host_watch_that_starts_anew_removes_what_a_killed_one_said(
    host: MarkedHost, tmp_path: Path
) -> None:
    note = '{"v":1,"id":"gone","failed":true,"why":"long ago"}'
    row = f"table=248,cookie={COOKIE_FAILED << 48:#x},priority=1005,in_port=LOCAL,reg6=0,reg7=5"
    host.ofctl("add-flow", BRIDGE, f"{row},actions=note:{note.encode().hex('.')}")
    assert failed(host) == {"gone": "long ago"}
    config = tmp_path / "host.conf"
    config.write_text(f"bridge {BRIDGE}\ndb unix:{host.folder}/db.sock\n")
    process = host.start(str(SCRIPTS / "host-watch"), "--config", str(config))
    wait_until(lambda: not failed(host), "the row stays")
    assert process.poll() is None
    process.terminate()
    process.communicate()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "job-begin has failed"),
        ("job-begin: first\njob-begin: the last line", "the last line"),
        ('job-begin: a "quoted" \\ path\t\x1b[2J \u00e9', 'a "quoted" \\ path??[2J ??'),
        ("job-begin: " + 'x\\"' * 400, ('x\\"' * 400)[:MAX_FAILURE]),
        ("$(reboot) `reboot` %s %b \\x41", "$(reboot) `reboot` %s %b \\x41"),
    ],
    ids=["nothing", "lines", "odd characters", "long", "code"],
)
def test_whatever_job_begin_says_is_a_note_that_the_controller_reads(
    host: MarkedHost, tmp_path: Path, said: str, why: str
) -> None:
    (tmp_path / "said").write_text(said)
    script = (
        "HERE=.; source common.sh; source jobs.sh; source jobs-declare.sh; source jobs-watch.sh; "
        'note_failed o:1 "$(cat "$1")"; printf %s "${ORDER_FAILED[o:1]}"'
    )
    argv = ("bash", "-euc", f"cd {SCRIPTS}; {script}", "bash", str(tmp_path / "said"))
    note = bytes.fromhex(host.run(*argv).stdout.replace(".", " "))
    assert read_failure("A", note) == Failure("A", "o:1", why)
