# SPDX-License-Identifier: Apache-2.0
"""What Slurm's scripts say: each message is one line, as text or JSON; and not too many of them."""

from __future__ import annotations

import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .test_slurm_scripts import CLOSED, JOB, REASON, SCRIPTS, WISH, Site, as_root, old, site

__all__ = ["as_root", "site"]

JSON = "log-format json\n"
HOSTILE = 'n1"}\n{"level": "error"}\r\x1b[2J \\b \udcff \u202e$(touch pwned)`touch pwned`\x7f'
ESCAPED = r'n1"}\n{"level": "error"}\x0d\x1b[2J \b \xff \xe2\x80\xae$(touch pwned)`touch pwned`\x7f'


def events(site: Site) -> list[dict[str, Any]]:
    """The log, each line of which is an event."""
    return [json.loads(line) for line in site.told().splitlines()]


@pytest.mark.parametrize(("closed", "level"), [("", "warning"), (CLOSED, "error")])
def test_an_event_has_the_keys_of_the_controllers_log(site: Site, closed: str, level: str) -> None:
    site.configure(JSON + closed)
    site.fake.answer(1, REASON)
    assert site.prolog() == bool(closed)
    (event,) = events(site)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    where = event.pop("where")
    place = int(where.removeprefix("prolog:"))
    assert "trouble" in (SCRIPTS / "prolog").read_text().splitlines()[place - 1]
    assert event.pop("message").startswith(f"job 14: {REASON}; the ")
    assert event == {"level": level, "logger": "ri2n.slurm.prolog", "job": "14"}


@pytest.mark.parametrize("form", ["", JSON])
def test_no_text_breaks_a_line_or_is_carried_out(
    site: Site, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site.folder)
    site.configure(form)
    assert site.prolog(SLURM_NODELIST=HOSTILE) == 0
    said = f"the list of nodes cannot be read: {ESCAPED}; the job runs on the common paths"
    (line,) = site.told().splitlines()
    assert line.isascii() and not (site.folder / "pwned").exists()
    if form:
        assert json.loads(line)["message"] == f"job 14: {said}"
    else:
        assert line.partition("prolog: ")[2] == f"job 14: {said}"


def test_every_byte_comes_through_as_itself_or_as_an_escape(site: Site) -> None:
    site.configure(JSON)
    every = bytes(range(1, 256))
    assert site.prolog(SLURM_NODELIST=every.decode("utf-8", "surrogateescape")) == 0
    wanted = "".join(
        chr(byte) if 32 <= byte < 127 else r"\n" if byte == 10 else f"\\x{byte:02x}"
        for byte in every
    )
    assert wanted in events(site)[0]["message"]


def test_what_job_begin_says_is_in_the_event_as_it_is(site: Site) -> None:
    site.configure(JSON)
    site.fake.answer(4, 'job-begin: no path "a\\b", {1}')
    assert site.prolog() == 0
    assert 'job-begin: no path "a\\b", {1}; ' in events(site)[0]["message"]


def test_a_long_message_is_cut_off_and_written_in_one_piece(site: Site) -> None:
    site.configure(JSON)
    assert site.prolog(SLURM_NODELIST="\udcff" * 9000) == 0
    (event,) = events(site)
    assert event["message"].endswith(" bytes more)") and len(site.told()) < 4096


def test_messages_that_come_at_the_same_time_are_whole(site: Site) -> None:
    site.configure(JSON)
    site.fake.answer(1, REASON)
    assert site.prolog() == 0  # so that no reconcile begins meanwhile
    numbers = [str(number) for number in range(20, 32)]

    def run(job: str) -> int:
        env = {**JOB, "SPANK_RI2N": WISH, "SLURM_JOB_ID": job}
        return site.run("prolog", **env).returncode

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(run, numbers)) == [0] * len(numbers)
    said = [event for event in events(site) if event["logger"] == "ri2n.slurm.prolog"]
    assert sorted(event["job"] for event in said) == ["14", *numbers]


# ---- Not too many


def spoken(folder: Path, text: str) -> list[dict[str, Any]]:
    """What lines of bash write that use the functions of prolog; syslog gets the same."""
    head = (
        f"HERE={SCRIPTS}; source {SCRIPTS}/common.sh; LOG_FORMAT=json STATE_DIR={folder}/state\n"
        f"LOG={folder}/log; logger() {{ printf '%s\\n' \"${{@: -1}}\" >>{folder}/syslog; }}\n"
        # A variable that was unset loses what is special about it: the clock stands still.
        "unset EPOCHSECONDS; EPOCHSECONDS=1000\n"
    )
    (folder / "script").write_text(head + text)
    argv = ["bash", "-u", str(folder / "script")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
    assert (folder / "log").read_text() == (folder / "syslog").read_text()
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_more_messages_than_anybody_reads_are_counted(tmp_path: Path) -> None:
    found = spoken(
        tmp_path,
        """
        for each in {1..150}; do report warning "late $each"; done
        EPOCHSECONDS=1002; report error "still too early"
        EPOCHSECONDS=1003; report info "in time"; report info "the second one"
        EPOCHSECONDS=900; report info "the clock was set back"
        """,
    )
    said = [event["message"] for event in found]
    assert said[:100] == [f"late {number}" for number in range(1, 101)]
    assert said[100:] == [
        "51 more messages were left out: too many came at once",
        "in time",
        "1 more messages were left out: too many came at once",
        "the clock was set back",
    ]
    assert [event.get("left_out") for event in found[100:]] == [51, None, 1, None]
    assert (tmp_path / "state" / ".said").read_text() == "99 900 0\n"


@pytest.mark.parametrize("kept", [b"", b"1 2", b"\xff\0\n", b"08 9x 7\n", b"9" * 4000])
def test_a_count_that_makes_no_sense_is_begun_anew(kept: bytes, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".said").write_bytes(kept)
    found = spoken(tmp_path, 'report warning "late"; report warning "again"')
    assert [event["message"] for event in found if "left_out" not in event] == ["late", "again"]


def test_where_the_count_cannot_be_kept_messages_are_written(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    assert len(spoken(tmp_path, 'report warning "late"; report warning "again"')) == 2


@pytest.mark.usefixtures("as_root")
def test_reconcile_tells_what_was_left_out_and_speaks_json_to_who_runs_it(site: Site) -> None:
    site.configure(JSON)
    assert site.prolog() == 0
    old(site, "14")
    (site.state / ".said").write_text(f"9 {int(time.time())} 37\n")
    done = site.run("reconcile")
    assert done.returncode == 0 and done.stdout == "" and done.stderr == site.told()
    told, ended = events(site)
    assert (told["left_out"], told["level"]) == (37, "warning")
    assert ended["message"] == "ended job 14, which Slurm no longer knows"
    assert (ended["logger"], ended["level"]) == ("ri2n.slurm.reconcile", "info")
    assert ended["job"] == "14"
    site.configure(JSON + "bridge br/0\n")
    done = site.run("reconcile")
    assert done.returncode == 2
    event = json.loads(done.stderr)
    assert event["level"] == "error" and "ri2n.conf:" in event["message"]


def test_scripts_without_the_host_scripts_drain_no_node(tmp_path: Path) -> None:
    for name in ("prolog", "common.sh"):
        (tmp_path / name).write_text((SCRIPTS / name).read_text())
    done = subprocess.run(["bash", str(tmp_path / "prolog")], env=JOB, check=False)
    assert done.returncode == 0
