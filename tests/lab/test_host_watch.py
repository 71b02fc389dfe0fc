# SPDX-License-Identifier: Apache-2.0
"""host-watch runs host-up when devices of its file are not those that host-up took.

Else it leaves a host alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import WaitUntil

SCRIPTS = Path(__file__).resolve().parents[2] / "ovs-host-scripts"

LINK = (
    "{index}: {name}: <BROADCAST,UP> mtu 1500 state UP \\\\    link/ether {mac} brd "
    "ff:ff:ff:ff:ff:ff"
)
NUMBERS = {"eth0": 3, "eth1": 4, "box1": 9}
# The fake `ip` notes each question for the links, so a test knows when the watcher has looked. The
# watcher has a reason to look ten times per second.
FAKES = {
    "ip": """
        if [[ $* == *monitor* ]]; then while sleep 0.1; do echo .; done; fi
        echo . >>"$HERE/looks"; cat "$HERE/links"
    """,
    "systemctl": '[[ $* == "is-failed --quiet ri2n-host" && -e $HERE/boot-failed ]]',
    "host-up": """
        echo "$*" >>"$HERE/runs"
        [[ -e $HERE/refuse ]] || { echo "br-x: up"; exit 0; }
        printf 'ovs-vsctl: \\033[2J"\\377\\n' >&2
        echo "host-up: --nic eth1: there is no such NIC" >&2
        exit 2
    """,
}


class Watched:
    """A host's folder: host.conf, saved state, and programs that print what the test has set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "host.conf"
        self.state = folder / "state" / "br-x"
        names = (
            "common.sh",
            "addresses.sh",
            "limits.sh",
            "jobs.sh",
            "jobs-declare.sh",
            "jobs-watch.sh",
        )
        for name in ("host-watch", *names):
            shutil.copy(SCRIPTS / name, folder)
        for name, text in FAKES.items():
            fake = folder / name
            fake.write_text(f"#!/bin/bash\nHERE={folder}\n{text}\n")
            fake.chmod(0o755)
        lines = [
            "nic eth0",
            "nic -  # a number that is kept free",
            "  nic\teth1",
            "extra-mac 0e:00:00:00:00:01@box1",
            "bridge br-x",
            f"state-dir {folder}/state",
        ]
        self.config.write_text("\n".join(lines) + "\n")
        self.links(**NUMBERS)
        self.process: subprocess.Popen[bytes] | None = None

    def links(self, **numbers: int) -> None:
        lines = [
            LINK.format(index=index, name=name, mac=f"02:00:00:00:00:{index:02x}")
            for name, index in numbers.items()
        ]
        new = self.folder / "links.new"
        new.write_text("\n".join(lines) + "\n")
        new.rename(self.folder / "links")

    def taken(self, **numbers: int) -> None:
        self.state.mkdir(parents=True)
        for name, index in numbers.items():
            if name.startswith("eth"):
                (self.state / f"nic.{name}").mkdir()
                (self.state / f"nic.{name}" / "index").write_text(f"{index}\n")
            else:
                (self.state / f"guest.{name}").write_text(f"{index}\n")

    def start(self) -> None:
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [self.folder / "host-watch", "--config", self.config],
                env={"PATH": f"{self.folder}:/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def events(self) -> list[dict[str, Any]]:
        """The messages; each line of the log is one, once it has its end."""
        lines = (self.folder / "log").read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def count(self, name: str) -> int:
        path = self.folder / name
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    try:
        yield watched
    finally:
        if watched.process:
            watched.process.terminate()
            watched.process.wait()


def left_alone(host: Watched, wait_until: WaitUntil, looks: int = 3) -> None:
    before = host.count("looks")
    wait_until(lambda: host.count("looks") >= before + looks, "it does not look", 60)
    assert host.count("runs") == 0


def is_taken(host: Watched, wait_until: WaitUntil) -> None:
    """The device is taken once, and not again."""
    wait_until(lambda: host.count("runs"), "host-up was not run", 60)
    looks = host.count("looks")
    wait_until(lambda: host.count("looks") >= looks + 2, "it does not look", 60)
    assert (host.folder / "runs").read_text() == f"--config {host.config} --skip-missing\n"


def test_what_host_up_has_taken_is_left_alone(host: Watched, wait_until: WaitUntil) -> None:
    host.taken(**NUMBERS)
    host.start()
    left_alone(host, wait_until)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("how", ["replaced", "new"])
def test_what_came_before_it_looked_is_taken(
    name: str, how: str, host: Watched, wait_until: WaitUntil
) -> None:
    before = {other: index for other, index in NUMBERS.items() if other != name}
    host.taken(**before, **({name: 77} if how == "replaced" else {}))
    host.start()
    is_taken(host, wait_until)


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_replaced_while_it_looks_is_taken(
    name: str, host: Watched, wait_until: WaitUntil
) -> None:
    host.taken(**NUMBERS)
    host.start()
    left_alone(host, wait_until)
    host.links(**(NUMBERS | {name: 77}))
    is_taken(host, wait_until)


def test_a_host_without_a_bridge_is_left_alone(host: Watched, wait_until: WaitUntil) -> None:
    host.start()
    left_alone(host, wait_until)


def test_a_host_whose_boot_failed_is_brought_up(host: Watched, wait_until: WaitUntil) -> None:
    (host.folder / "boot-failed").touch()
    host.start()
    is_taken(host, wait_until)


def test_what_was_refused_is_tried_again(host: Watched, wait_until: WaitUntil) -> None:
    (host.folder / "refuse").touch()
    host.taken(eth0=3, box1=9)
    host.start()
    wait_until(lambda: host.count("runs") >= 3, "it gives up", 60)
    (host.folder / "refuse").unlink()
    runs = host.count("runs")
    wait_until(lambda: host.count("runs") > runs, "it gives up", 60)
    looks, runs = host.count("looks"), host.count("runs")
    wait_until(lambda: host.count("looks") >= looks + 3, "it does not look", 60)
    assert host.count("runs") <= runs + 1, "it goes on after the first success"


def test_its_messages_are_json_and_those_that_come_again_are_held_back(
    host: Watched, wait_until: WaitUntil
) -> None:
    with host.config.open("a") as config:
        config.write("log-format json\n")
    (host.folder / "refuse").touch()
    host.taken(eth0=3, box1=9)
    host.start()
    wait_until(lambda: host.count("runs") >= 3, "it gives up", 60)
    assert host.process is not None
    host.process.terminate()
    host.process.wait()
    runs = host.count("runs")
    wait_until(lambda: len(host.events()) >= 6, host.events, 60)
    events = host.events()
    assert {event["logger"] for event in events} == {"ri2n.host-watch"}
    devices = "devices: eth0 3 02:00:00:00:00:03; eth1 4 02:00:00:00:00:04; "
    devices += "box1 9 02:00:00:00:00:09"
    first = [
        ("info", devices),
        ("warning", r'ovs-vsctl: \x1b[2J"\xff'),
        ("error", "host-up: --nic eth1: there is no such NIC"),
    ]
    assert [(event["level"], event["message"]) for event in events[:3]] == first
    # At its end it says how often each came, also where host-up was ended with it.
    again = [event["left_out"] for event in events[3:]]
    assert [event["message"] for event in events[3:]] == [
        f"{count} more like this: {text}" for count, (_, text) in zip(again, first, strict=True)
    ]
    assert runs - 2 <= min(again) and max(again) <= runs
