# SPDX-License-Identifier: Apache-2.0
"""The life of a job's marks: begin, change, end, orders, repairs, kills and bad input."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import ovs
from ri2n_sdn.pipeline.layout import COOKIE_FAILED, COOKIE_MASK, Table

from .frames import wait_until
from .marked_host import (
    ADDRESSES,
    BRIDGE,
    SCRIPTS,
    MarkedHost,
    classes,
    fake_program,
    host,
    shared,
)

__all__ = ["host", "shared"]

USER, OTHER = 20001, 20002
CANARY = f"table={Table.CANARY:d},priority=1"
ORDER: dict[str, Any] = {
    "v": 1,
    "id": "ordered:1",
    "user": "alice",
    "uid": USER,
    "hosts": ["A", "B"],
    "policy": "isolated",
    "paths": ["net1", "net2/12"],
    "tables": [{"dscp": 10, "paths": ["vlan:12"]}, {"dscp": 46, "paths": ["A:eth1", "eth2"]}],
    "services": ["10.0.0.9/tcp/2049", "[fd09::9]/udp/53"],
    "min_rate_bps": 400_000_000,
    "max_rate_bps": 800_000_000,
    "begin_s": 1790000000.25,
    "end_s": 2790000000,
    "order": True,
}


def declared(host: MarkedHost) -> dict[str, dict[str, Any]]:
    """The declarations in the bridge by the job's id. Each has its class as its priority."""
    found = {}
    for priority, note in host.rows(248):
        job = json.loads(note)
        if "failed" in job:  # an order that could not be carried out
            continue
        assert job["class"] == priority
        found[job["id"]] = job
    return found


def listed(host: MarkedHost) -> list[dict[str, Any]]:
    """The jobs as job-ls tells them."""
    jobs: list[dict[str, Any]] = json.loads(host.script("job-ls", "--json").stdout)["jobs"]
    return jobs


def clean(host: MarkedHost) -> dict[str, object]:
    """What there is of jobs, without what two equal jobs do not share."""
    found = host.left()
    found["rules"] = re.sub(r"0x0[1-9][0-9a-f]{6}\b", "SERIAL", str(found["rules"]))
    found["files"] = [name for name in host.files() if name != "serial"]
    return found


# ---- what the controller is told


def test_a_declaration_says_all_that_the_options_say(host: MarkedHost) -> None:
    host.begin("first", OTHER)
    host.begin(
        "slurm-14", USER, "--policy", "isolated", "--paths", "net1,net2/12", "--table",
        "10=vlan:12", "--table", "46=A:eth1,eth2", "--service", "10.0.0.9/tcp/2049", "--service",
        "[fd09::9]/udp/53", "--min-rate", "400M", "--max-rate", "800M", "--until", "2790000000",
        "--begin", "1790000000.25",
    )  # fmt: skip
    expected = {**ORDER, "id": "slurm-14", "class": 2, "user": str(USER), "source": "host"}
    del expected["order"]
    assert declared(host)["slurm-14"] == expected
    assert set(declared(host)["first"]) == {
        "v", "id", "class", "user", "uid", "hosts", "policy", "begin_s", "source",
    }  # fmt: skip
    (line,) = re.findall(r"cookie=(0x524a[0-9a-f]{12}), .*priority=2,",
                         host.ofctl("dump-flows", BRIDGE, "table=248"))  # fmt: skip
    assert [job["id"] for job in listed(host)] == [
        "first",
        "slurm-14",
    ] and line != "0x524a" + "0" * 12
    assert "slurm-14" in host.script("job-ls").stdout


def test_options_may_come_from_the_environment(host: MarkedHost) -> None:
    settings = {
        "ID": "pbs.7", "USER": str(USER), "HOSTS": "A,B", "POLICY": "isolated",
        "TABLES": "10=net1 46=net2", "SERVICES": "10.0.0.9/tcp/2049 10.0.0.8/udp/53",
        "MAX_RATE": "1G", "DB": ovs.database(host.folder),
    }  # fmt: skip
    words = [f"RI2N_JOB_{name}={value}" for name, value in settings.items()]
    host.run("env", *words, str(SCRIPTS / "job-begin"))
    job = declared(host)["pbs.7"]
    assert [table["dscp"] for table in job["tables"]] == [10, 46] and len(job["services"]) == 2
    host.run("env", *words, str(SCRIPTS / "job-end"))
    assert declared(host) == {}


def test_the_controller_is_nudged_by_begin_and_by_end(host: MarkedHost) -> None:
    argv = ["ovs-ofctl", "-O", "OpenFlow15", "monitor", BRIDGE, "65534"]
    log = host.folder / "monitor"
    with log.open("w") as output:
        monitor = subprocess.Popen(
            argv, env=ovs.environment(host.folder), stdout=output, stderr=output
        )
    try:

        def nudges() -> int:
            return log.read_text().count("dl_dst=03:00:00:52:49:4a,dl_type=0x88b5")

        def begin_and_end() -> bool:  # until the monitor listens
            host.begin("job", USER)
            host.script("job-end", "--id", "job")
            return bool(nudges())

        wait_until(begin_and_end, log.read_text)
        host.begin("job", USER)
        before = nudges()
        host.script("job-end", "--id", "job")
        wait_until(lambda: nudges() > before, log.read_text)
    finally:
        monitor.terminate()
        monitor.wait()


def test_wait_returns_with_the_controllers_answer(host: MarkedHost) -> None:
    argv = ("--id", "job", "--user", str(USER), "--hosts", "A,B")
    done = host.script("job-begin", *argv, "--wait", "1", check=False)
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    host.put_note(247, 1, "reg6=1", '{"id":"job","state":"waiting","why":"B has not said it"}')
    done = host.script("job-begin", *argv, "--wait", "0", check=False)
    assert done.returncode == 3 and "B has not said it" in done.stderr
    host.put_note(247, 1, "reg6=1", '{"id": "job", "state": "installed", "why": ""}')
    assert host.script("job-begin", *argv, "--wait", "60").returncode == 0
    assert listed(host)[0]["state"] == "installed"
    why = 'net1 is "taken" by job \\\\ x until 10:00'
    note = json.dumps({"id": "job", "state": "refused", "why": why}, separators=(",", ":"))
    host.put_note(247, 1, "reg6=1", note)
    done = host.script("job-begin", *argv, "--wait", "60", check=False)
    assert done.returncode == 4 and why in done.stderr and len(done.stderr.splitlines()) == 1
    assert declared(host) == {}
    # The answer to the job that had the class before is none to the next.
    host.begin("next", USER)
    assert host.rows(247) == []


# ---- twice, and otherwise


def test_begin_twice_changes_nothing_and_other_options_are_refused(host: MarkedHost) -> None:
    host.begin("job", USER, "--policy", "exclusive", "--min-rate", "10M")
    before = host.left()
    host.begin("job", USER, "--policy", "exclusive", "--min-rate", "10M")
    assert host.left() == before
    for more, name in (
        (("--policy", "exclusive"), "min rate"),
        (("--policy", "exclusive", "--min-rate", "10M", "--paths", "net1"), "paths"),
        (("--policy", "exclusive", "--min-rate", "10M", "--cgroup"), "--cgroup"),
        (("--policy", "exclusive", "--min-rate", "10M", "--hosts", "A"), "hosts"),
    ):
        argv = ("--id", "job", "--user", str(USER), "--hosts", "A,B", *more)
        done = host.script("job-begin", *argv, check=False)
        assert done.returncode == 2 and name in done.stderr
        assert host.left() == before
    host.begin("job", USER, "--policy", "exclusive", "--max-rate", "10M", "--change")
    job = declared(host)["job"]
    assert job["max_rate_bps"] == 10_000_000 and "min_rate_bps" not in job and job["class"] == 1
    assert "htb" in str(host.left()["queue"])
    host.begin("job", USER, "--change")
    assert "htb" not in str(host.left()["queue"])


def test_an_end_counts_from_the_start_however_often_the_job_begins(host: MarkedHost) -> None:
    host.begin("job", USER, "--until", "+3600", "--begin", "1790000000.5")
    before = host.left()
    host.begin("job", USER, "--until", "+3600")
    assert host.left() == before and declared(host)["job"]["end_s"] == 1790003600


BAD = {
    "no job given": ("--user", "20001"),
    "no user given": ("--id", "x"),
    "'a b'": ("--id", "a b", "--user", "20001"),
    "'../x'": ("--id", "../x", "--user", "20001"),
    "'x;reboot'": ("--id", "x", "--user", "x;reboot"),
    "no such user": ("--id", "x", "--user", "no-such-user"),
    "packets of root": ("--id", "x", "--user", "0"),
    "'A,,B'": ("--id", "x", "--user", "20001", "--hosts", "A,,B"),
    "'A': is there twice": ("--id", "x", "--user", "20001", "--hosts", "A,A"),
    "--policy 'mine'": ("--id", "x", "--user", "20001", "--policy", "mine"),
    "at least one path": ("--id", "x", "--user", "20001", "--policy", "paths"),
    "no paths of its own": ("--id", "x", "--user", "20001", "--paths", "net1"),
    "not a name": ("--id", "x", "--user", "20001", "--policy", "paths", "--paths", "n;1"),
    "from 0 to 63": ("--id", "x", "--user", "20001", "--policy", "paths", "--table", "64=n1"),
    "policy shared has none": ("--id", "x", "--user", "20001", "--service", "10.0.0.1/tcp/1"),
    "must be ADDRESS/tcp/PORT": ("--id", "x", "--user", "20001", "--service", "10.0.0.256/tcp/1"),
    "not an IPv6 address": (
        "--id", "x", "--user", "20001", "--policy", "isolated", "--service", "[f::d::1]/tcp/1",
    ),
    "--max-rate '1T'": ("--id", "x", "--user", "20001", "--max-rate", "1T"),
    "is above --max-rate": (
        "--id", "x", "--user", "20001", "--min-rate", "2G", "--max-rate", "1G",
    ),
    "not after the job's start": ("--id", "x", "--user", "20001", "--until", "1000"),
    "unknown option --colour": ("--id", "x", "--user", "20001", "--colour", "red"),
    "needs a value": ("--id",),
    "has begun for another user": ("--id", "there", "--user", "20002"),
    "job there of this user": ("--id", "x", "--user", "20001"),
    "has not begun on this host": ("--id", "x", "--user", "20002", "--change"),
    "no bridge br-none": ("--id", "x", "--user", "20002", "--bridge", "br-none"),
    "not a valid device name": ("--id", "x", "--user", "20002", "--bridge", 'br"; x'),
    "--config /none": ("--id", "x", "--user", "20002", "--config", "/none"),
    "must be a plain path": ("--id", "x", "--user", "20002", "--run-dir", "/tmp/$(x)"),
}  # fmt: skip


@pytest.mark.parametrize("why", BAD)
def test_bad_input_is_one_line_and_changes_nothing(host: MarkedHost, why: str) -> None:
    host.begin("there", USER)
    before = host.left()
    done = host.script("job-begin", *BAD[why], check=False)
    assert done.returncode == 2 and why in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""
    assert host.left() == before


def test_end_of_an_unknown_job_is_an_error_unless_that_is_said(host: MarkedHost) -> None:
    assert host.script("job-end", "--id", "x", check=False).returncode == 2
    assert host.script("job-end", "--id", "x", "--if-known").returncode == 0


def test_without_nft_nothing_is_changed(host: MarkedHost, tmp_path: Path) -> None:
    for name in ("bash", "ovs-ofctl", "ip", "flock", "sha256sum", "readlink"):
        fake_program(tmp_path, name, 'exec REAL "$@"')
    argv = ["--id", "x", "--user", str(USER), "--hosts", "A"]
    before = host.left()
    env = ["env", f"PATH={tmp_path}"]
    done = host.run(*env, *host.command("job-begin", *argv)[2:], check=False)
    assert done.returncode == 2 and "nft is missing" in done.stderr
    assert host.left() == before


@pytest.mark.parametrize("program", ["nft", "ovs-ofctl"])
def test_what_fails_is_undone(host: MarkedHost, tmp_path: Path, program: str) -> None:
    host.begin("there", OTHER)
    before = host.left()
    fake_program(
        tmp_path,
        program,
        f'if [[ ! -e {tmp_path}/failed ]]; then touch {tmp_path}/failed; echo "no way" >&2; exit 1;'
        ' fi\nexec REAL "$@"',
    )
    argv = host.command("job-begin", "--id", "x", "--user", str(USER), "--hosts", "A", "--cgroup")
    done = host.run("env", f"PATH={tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin", *argv[2:], check=False)
    assert done.returncode == 1 and "no way" in done.stderr and len(done.stderr.splitlines()) == 1
    after = host.left()
    before["files"] = after["files"]  # the serial number is not taken back
    assert after == before and not list(host.run_dir.glob("new/*"))


def test_the_64th_job_is_refused_and_a_class_is_free_again(host: MarkedHost) -> None:
    host.begin("last", 30000)
    state = next(host.run_dir.glob("job.last")).read_text()
    for number in range(2, 64):  # as if 62 more had begun
        text = state.replace("class=1", f"class={number}").replace("30000", f"{40000 + number}")
        (host.run_dir / f"job.j{number}").write_text(text)
    done = host.script("job-begin", "--id", "x", "--user", str(USER), "--hosts", "A", check=False)
    assert done.returncode == 2 and "63 jobs" in done.stderr
    host.script("job-end", "--id", "j40")
    host.begin("x", USER)
    assert [job["class"] for job in listed(host) if job["id"] == "x"] == [40]


# ---- many, and killed


def in_a_row(host: MarkedHost, count: int, workers: int) -> None:
    """Begin and end that many jobs, some at the same time, and look what stays."""
    before = clean(host)

    def one(number: int) -> None:
        host.begin(f"job-{number}", 30000 + number, *(["--cgroup"] if number % 3 == 0 else []))
        host.script("job-end", "--id", f"job-{number}")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, range(count)))
    assert clean(host) == before


@pytest.mark.parametrize("workers", [1, 16])
def test_jobs_in_a_row_leave_nothing(host: MarkedHost, workers: int) -> None:
    host.begin("stays", USER)
    in_a_row(host, 50, workers)
    assert list(declared(host)) == ["stays"]


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 16])
def test_a_thousand_jobs_in_a_row_leave_nothing(host: MarkedHost, workers: int) -> None:
    host.begin("stays", USER)
    in_a_row(host, 1000, workers)


def test_jobs_at_the_same_time_have_classes_of_their_own(host: MarkedHost) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: host.begin(f"job-{number}", 30000 + number), range(16)))
    assert sorted(job["class"] for job in declared(host).values()) == list(range(1, 17))


# Every program that the scripts run, so that a script can be killed before and after each step.
STEPS = ("nft", "ovs-ofctl", "mv", "rm", "mkdir", "rmdir", "ip", "sha256sum", "flock", "tc", "find")
KILLER = """
echo >>{folder}/steps
step=$(wc -l <{folder}/steps)
if [[ $step == {at} && {when} == before ]]; then kill -9 "$(<{folder}/pid)"; exit 1; fi
REAL "$@"
status=$?
if [[ $step == {at} && {when} == after ]]; then kill -9 "$(<{folder}/pid)"; fi
exit $status
"""


def killed(host: MarkedHost, folder: Path, at: int, when: str, argv: list[str]) -> bool:
    """Run a script that is killed at that step; False when it has ended before."""
    folder.mkdir(exist_ok=True)
    (folder / "steps").write_text("")
    for name in STEPS:
        fake_program(folder, name, KILLER.format(folder=folder, at=at, when=when))
    path = f"PATH={folder}:/usr/sbin:/usr/bin:/sbin:/bin"
    start = f'echo $$ >{folder}/pid; exec "$@"'
    done = host.run("env", path, "bash", "-c", start, "bash", *argv[2:], check=False)
    assert done.returncode in (0, -9, 137), done
    return done.returncode != 0


JOB = ("--begin", "1790000000", "--max-rate", "1G")


def begin_again(host: MarkedHost) -> None:
    """The job begins once more, which finishes what was begun, or begins it anew."""
    host.begin("job", USER, *JOB, "--cgroup")
    assert "job" in declared(host)
    host.script("job-end", "--id", "job")


def end_it(host: MarkedHost) -> None:
    host.script("job-end", "--id", "job", "--if-known")


def use_another(host: MarkedHost) -> None:
    """A job that has nothing to do with it; the killed one is either there in full, or not."""
    host.begin("another", OTHER)
    known = [job["id"] for job in listed(host)]
    assert set(declared(host)) == set(known) and "another" in known
    rules = str(host.left()["rules"])
    assert len(re.findall(r"chain class_\d+ ", rules)) == len(known)
    host.script("job-end", "--id", "another")
    host.script("job-end", "--id", "job", "--if-known")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("script", ["job-begin", "job-end"])
def test_what_a_killed_script_leaves_is_put_right(
    host: MarkedHost, tmp_path: Path, script: str, when: str
) -> None:
    host.begin("there", 30000)
    before = clean(host)
    argv = ["--id", "job"]
    if script == "job-begin":
        argv += ["--user", str(USER), "--hosts", "A,B", *JOB, "--cgroup"]
    follow: list[Callable[[MarkedHost], None]] = [begin_again, end_it, use_another]
    at, more = 1, True
    while more:
        if script == "job-end":
            host.begin("job", USER, *JOB, "--cgroup")
        more = killed(host, tmp_path / "steps", at, when, host.command(script, *argv))
        then = follow[at % 3]
        then(host)
        assert clean(host) == before, (at, then)
        at += 1
    assert at > 8


# ---- host-watch


@pytest.fixture
def watch(host: MarkedHost, tmp_path: Path) -> Iterator[MarkedHost]:
    """The host with a host-watch."""
    config = tmp_path / "host.conf"
    config.write_text(f"bridge {BRIDGE}\ndb {ovs.database(host.folder)}\n")
    process = host.start(str(SCRIPTS / "host-watch"), "--config", str(config))
    yield host
    assert process.poll() is None, "host-watch has ended"
    process.terminate()
    process.communicate()
    for table in (247, Table.CANARY):
        host.ofctl("del-flows", BRIDGE, f"table={table:d}")
    host.ofctl("del-flows", BRIDGE, f"table=248,cookie={COOKIE_FAILED << 48:#x}/{COOKIE_MASK:#x}")


def give_order(host: MarkedHost, number: int, order: dict[str, Any] | str) -> None:
    note = order if isinstance(order, str) else json.dumps(order, separators=(",", ":"))
    host.put_note(247, 1000 + number, f"reg6=0,reg7={number}", note)


def test_orders_are_carried_out_changed_and_given_up(watch: MarkedHost) -> None:
    give_order(watch, 1, ORDER)
    wait_until(lambda: declared(watch), "the order is not carried out")
    expected = {**ORDER, "class": 1, "user": str(USER), "source": "order"}
    del expected["order"]
    assert declared(watch)["ordered:1"] == expected
    give_order(watch, 1, {**ORDER, "policy": "exclusive", "services": [], "paths": []})
    wait_until(
        lambda: declared(watch)["ordered:1"]["policy"] == "exclusive", "the order is not changed"
    )
    assert "services" not in declared(watch)["ordered:1"]
    watch.begin("host-s", OTHER)
    # Without a controller's canary nobody has given the order up.
    watch.ofctl("del-flows", BRIDGE, "table=247,reg6=0,in_port=LOCAL,reg7=1")
    give_order(watch, 2, {**ORDER, "id": "ordered:2", "uid": 30000})
    wait_until(lambda: "ordered:2" in declared(watch), "the second order is not carried out")
    assert "ordered:1" in declared(watch)
    watch.ofctl("add-flow", BRIDGE, f"{CANARY},actions=drop")
    wait_until(lambda: "ordered:1" not in declared(watch), "the first job has not ended")
    assert set(declared(watch)) == {"host-s", "ordered:2"}


HOSTILE: list[dict[str, Any] | str] = [
    {**ORDER, "id": "x;reboot"},
    {**ORDER, "hosts": ["A", "$(reboot)"]},
    {**ORDER, "unknown": 1},
    {**ORDER, "v": 2},
    {**ORDER, "order": False},
    {**ORDER, "uid": 0},
    {**ORDER, "policy": "x --repair"},
    {**ORDER, "paths": ["--all"]},
    "{" * 200,
    '{"v":1,"id":"x","order":true',
    "\0\0\1",
]


def test_a_wrong_order_is_not_carried_out_and_harms_no_other(watch: MarkedHost) -> None:
    for number, order in enumerate(HOSTILE, 1):
        give_order(watch, number, order)
    give_order(watch, 999, {**ORDER, "id": "good", "uid": 30000})
    wait_until(lambda: "good" in declared(watch), "the right order is not carried out")
    assert set(declared(watch)) == {"good"}


def test_marks_and_declarations_are_made_again(watch: MarkedHost) -> None:
    _, peer = ADDRESSES["-4"]
    watch.begin("one", USER, "--max-rate", "1G")
    watch.begin("two", OTHER, "--cgroup")
    before = watch.left()
    watch.run("nft", "flush", "ruleset")
    wait_until(lambda: watch.left() == before, lambda: f"not as before: {watch.left()}")
    watch.ofctl("del-flows", BRIDGE, "table=248,in_port=LOCAL,reg6=1")
    wait_until(lambda: watch.left() == before, lambda: f"not as before: {watch.left()}")
    watch.run("tc", "qdisc", "del", "dev", BRIDGE, "root")
    wait_until(lambda: watch.left() == before, lambda: f"not as before: {watch.left()}")
    (watch.run_dir / "new/job.three").write_text("class=3\nuid=5\n")  # of a script that was killed
    wait_until(lambda: watch.left() == before, lambda: f"not as before: {watch.left()}")
    watch.stop_switch()
    watch.start_switch()
    watch.configure()
    wait_until(lambda: watch.left() == before, lambda: f"not as before: {watch.left()}")
    with watch.capture() as capture:
        watch.run("ping", "-c1", "-w60", peer, uid=USER)
        assert classes(capture.wait(1, lambda frame: frame.proto == "ping")) == {1}


def test_an_end_while_the_switch_is_away_leaves_nothing(host: MarkedHost) -> None:
    before = clean(host)
    host.begin("job", USER, "--cgroup")
    host.stop_switch()
    host.script("job-end", "--id", "job")
    host.start_switch()
    host.configure()
    assert clean(host) == before
