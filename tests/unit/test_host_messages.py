# SPDX-License-Identifier: Apache-2.0
"""What the host scripts say: each message is one line, as text or JSON, whatever is in it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import LONG_S

from .commands import REPOSITORY

SCRIPTS = REPOSITORY / "ovs-host-scripts"
HOSTILE = (
    b'eth0\n{"level": "error"}\r\x1b[2J"q" \\b \xff \xc2\x9b \xe2\x80\xae'
    b"$(touch pwned)`touch pwned`;]\x7f\t."
)
ESCAPED = (
    r'eth0\n{"level": "error"}\x0d\x1b[2J"q" \b \xff \xc2\x9b \xe2\x80\xae'
    r"$(touch pwned)`touch pwned`;]\x7f\x09."
)
SERVICES = ("host-up", "host-down", "host-watch", "host-metrics")


class Script:
    """Runs lines of bash as a script of ours, `host-x`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "hostile").write_bytes(HOSTILE)

    def run(self, text: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[bytes]:
        script = self.folder / "host-x"
        head = f'set -euo pipefail\nsource "{SCRIPTS}/common.sh"\nHOSTILE=$(cat hostile)\n'
        script.write_text(head + text)
        done = subprocess.run(
            ["bash", script.name],
            cwd=self.folder,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", **env},
            check=False,
        )
        assert done.returncode == code, done
        return done

    def events(self, text: str, code: int = 0) -> list[dict[str, Any]]:
        """Run it with the log as JSON: each line is an event, and nothing else is written."""
        done = self.run(f"LOG_FORMAT=json; begin_log\n{text}", code)
        assert done.stdout == b"" and done.stderr.isascii()
        return [json.loads(line) for line in done.stderr.splitlines()]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_an_event_has_the_keys_of_the_controllers_log(script: Script) -> None:
    said = 'say "up"\nwarn "late" "again"\ncomplain no\n(fail broken) || true\ndie "bad"\n'
    events = script.events(said, 2)
    assert [(event["level"], event["message"]) for event in events] == [
        ("info", "up"),
        ("warning", "late again"),
        ("error", "no"),
        ("error", "broken"),
        ("error", "bad"),
    ]
    assert [event["where"] for event in events] == [f"host-x:{line}" for line in range(5, 10)]
    for event in events:
        assert event["logger"] == "ri2n.host-x"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"])


def test_as_text_it_is_what_it_was(script: Script) -> None:
    done = script.run('begin_log\nsay up\nwarn late\nsay "für $HOSTILE"\ndie bad\n', 2)
    assert done.stdout.decode().splitlines() == ["up", "f\\xc3\\xbcr " + ESCAPED]
    assert done.stderr.decode() == "host-x: warning: late\nhost-x: bad\n"
    assert script.run("say für").stdout.decode() == "für\n"


def test_no_text_breaks_a_line_or_is_carried_out(script: Script) -> None:
    lines = 'say "$HOSTILE"\nHOLD_S=9\nsay "$HOSTILE"\nsay "$HOSTILE"\ntell_held_back all\n'
    events = script.events(lines)
    assert [event["message"] for event in events] == [
        *(ESCAPED, ESCAPED),
        f"1 more like this: {ESCAPED}",
    ]
    assert not (script.folder / "pwned").exists()


def test_every_byte_comes_through_as_itself_or_as_an_escape(script: Script) -> None:
    every = bytes(range(1, 256))
    (script.folder / "hostile").write_bytes(every + b".")
    wanted = "".join(
        chr(byte) if 32 <= byte < 127 else r"\n" if byte == 10 else f"\\x{byte:02x}"
        for byte in every
    )
    assert script.events('warn "$HOSTILE"')[0]["message"] == wanted + "."


def test_a_long_message_is_cut_off(script: Script) -> None:
    event = script.events('printf -v text "%9000s" end\nwarn "$text"')[0]
    assert event["message"].endswith("... (808 bytes more)") and len(event["message"]) < 8300


def test_what_other_programs_say_are_messages_too(script: Script) -> None:
    lines = "printf 'ovs-vsctl: no\\nhost-up: it is bad\\njob-end: warning: %s\\nlast' q >&2"
    events = script.events(lines)
    assert [(event["level"], event["message"]) for event in events] == [
        ("warning", "ovs-vsctl: no"),
        ("error", "host-up: it is bad"),
        ("warning", "job-end: warning: q"),
        ("warning", "last"),
    ]
    assert all("where" not in event for event in events)


def test_a_message_that_comes_again_is_counted_and_told_later(script: Script) -> None:
    # A variable that was unset loses what is special about it: the clock stands still.
    events = script.events(
        """
        unset EPOCHSECONDS; EPOCHSECONDS=1000 HOLD_S=300
        for each in 1 2 3 4; do warn "no NIC"; tell_held_back; done
        say "another"
        EPOCHSECONDS=1299; tell_held_back; warn "no NIC"
        EPOCHSECONDS=1300; tell_held_back; warn "no NIC"
        EPOCHSECONDS=5; tell_held_back; warn "no NIC" # the clock was set back
        """
    )
    assert [event["message"] for event in events] == [
        *("no NIC", "another", "4 more like this: no NIC", "no NIC", "no NIC"),
    ]
    assert events[2]["left_out"] == 4 and events[2]["level"] == "warning"


def test_many_different_messages_are_held_back_as_well(script: Script) -> None:
    events = script.events(
        """
        unset EPOCHSECONDS; EPOCHSECONDS=1000 HOLD_S=300
        for each in {1..500}; do warn "job $each"; done
        EPOCHSECONDS=1300; tell_held_back; warn "job 500"
        """
    )
    assert len(events) == 102
    assert events[100]["message"] == "400 other messages were left out: too many came at once"
    assert events[100]["left_out"] == 400 and events[101]["message"] == "job 500"


def test_the_environment_chooses_it_and_who_relays_the_lines_gets_text(script: Script) -> None:
    done = script.run("begin_log\nwarn late", RI2N_LOG_FORMAT="json")
    assert json.loads(done.stderr)["message"] == "late"
    done = script.run("begin_log\nwarn late", RI2N_LOG_FORMAT="json", RI2N_LOG_RELAYED="yes")
    assert done.stderr == b"host-x: warning: late\n"


def test_nobody_reads_what_it_says(script: Script) -> None:
    for form in ("text", "json"):
        done = script.run(
            f"LOG_FORMAT={form}; begin_log\nexec >/dev/full 4>/dev/full 2>/dev/full\n"
            "say a; warn b; touch done"
        )
        assert done.stderr == b"" and (script.folder / "done").exists()
        (script.folder / "done").unlink()


EXAMINE = f"source {SCRIPTS}/examine.sh\n"


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_string_of_json_is_one_whatever_bytes_a_name_has(script: Script, locale: str) -> None:
    texts = {
        HOSTILE: ESCAPED,
        **{
            text.encode(): text
            for text in ('f\u00fcr "\u20ac" \\', "\U0001f600 ok", "\u00e9" * 4000)
        },
        # Bytes alone, too few of them, longer forms than needed, halves of pairs, and too large.
        **{
            bad + b".": "".join(f"\\x{byte:02x}" for byte in bad) + "."
            for bad in (b"\xff", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")
        },
    }
    for content, wanted in texts.items():
        (script.folder / "hostile").write_bytes(content)
        done = script.run(f'{EXAMINE}quote "$HOSTILE"', LC_ALL=locale)
        assert json.loads(done.stdout.decode()) == wanted
    # Where a long text is cut off, half a character is left.
    (script.folder / "hostile").write_bytes(b"a" + "\u00e9".encode() * 5000)
    done = script.run(f'{EXAMINE}quote "$HOSTILE"', LC_ALL=locale)
    assert json.loads(done.stdout.decode()).endswith(" bytes more)")


def test_what_host_doctor_finds_is_json_whatever_bytes_a_name_has(script: Script) -> None:
    doctor = (SCRIPTS / "host-doctor").read_text()
    show = re.search(r"^print_json\(\) \{\n.*?^\}\n", doctor, flags=re.M | re.S)
    assert show is not None
    lines = 'finding bad NICs "NIC $HOSTILE is down" "look at $HOSTILE"\nprint_json\n'
    done = script.run(f"{EXAMINE}{show[0]}{lines}")
    (found,) = json.loads(done.stdout.decode())["findings"]
    assert found == {
        **{"check": "NICs", "verdict": "bad"},
        **{"seen": f"NIC {ESCAPED} is down", "advice": f"look at {ESCAPED}"},
    }


@pytest.mark.parametrize("name", SERVICES)
def test_a_form_that_there_is_not_is_refused(name: str, tmp_path: Path) -> None:
    # Without the refusal, the script would find no Open vSwitch, and leave this machine alone.
    where = {"db": f"unix:{tmp_path}/none.sock", "state-dir": str(tmp_path / "state")}
    config = tmp_path / "host.conf"
    lines = [*(f"{key} {value}" for key, value in where.items()), "nic no-such-nic"]
    config.write_text("\n".join(lines) + "\n")
    argv = [str(SCRIPTS / name), "--log-format", "xml"]
    if name in ("host-up", "host-watch"):
        argv += ["--config", str(config)]
    else:
        argv += [word for key, value in where.items() for word in (f"--{key}", value)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LONG_S)
    assert done.returncode == 2
    assert done.stderr == f"{name}: log-format xml: must be text or json\n"


def test_host_conf_chooses_it_and_the_command_line_comes_first(tmp_path: Path) -> None:
    config = tmp_path / "host.conf"
    config.write_text("log-format json\nnic eth0\nnic eth0\n")
    argv = [str(SCRIPTS / "host-up"), "--config", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    event = json.loads(done.stderr)
    assert (event["level"], event["message"]) == ("error", "--nic eth0 is given twice")
    argv += ["--log-format", "text"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stderr == "host-up: --nic eth0 is given twice\n"


def test_host_up_hands_it_on_to_the_helper_and_to_services_without_host_conf(
    script: Script,
) -> None:
    upper = (SCRIPTS / "host-up").read_text()
    tell = re.search(r"^tell_services\(\) \{\n.*?^\}\n", upper, flags=re.M | re.S)
    assert tell is not None
    text = f"source {SCRIPTS}/helper.sh\n{tell[0]}STATE=$PWD DATAPATH=netdev HELPER=yes FAST=no\n"
    text += "tell_services\nhelper_options 1500\n"
    done = script.run(text, RI2N_LOG_FORMAT="json")
    assert done.stdout == b"--gro off --mtu-wire 1500 --log-format json\n"
    assert (script.folder / "log").read_text() == "RI2N_LOG_FORMAT=json\n"
    done = script.run(text)
    assert done.stdout == b"--gro off --mtu-wire 1500\n" and not (script.folder / "log").exists()
    for unit in ("ri2n-host-metrics.service", "ri2n-unconfirmed.service"):
        assert "\nEnvironmentFile=-/var/lib/ri2n/br-ri2n/log\n" in (SCRIPTS / unit).read_text()


def test_all_messages_of_services_go_through_one_function() -> None:
    """Nothing but common.sh writes to standard error by itself."""
    direct = re.compile(r"(echo|printf)\b.*>&2")
    wrong = [
        f"{path.name}: {line.strip()}"
        for path in SCRIPTS.iterdir()
        if path.is_file() and path.name != "common.sh"
        for line in path.read_text().splitlines()
        if direct.search(line)
    ]
    assert not wrong
