# SPDX-License-Identifier: Apache-2.0
"""Host scripts of which any change can fail or be the last one, and what must be as before."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from tests.topology_text import parse_topology

from .prepared_host import ALONE, SCRIPTS, Host

# Every change goes through `run`. Here `run` keeps a list, and the change whose number it gets
# fails, or is the last one. That change has been made then, as when ovs-vsctl's time-out is over,
# so that as much as possible must be undone.
RUN = r"""
NUMBER=0
run() {
    local calls=" ${FUNCNAME[*]} "
    CHANGES=$((${CHANGES:-0} + 1))
    NUMBER=$((NUMBER + 1))
    if [[ $calls != *' undo '* || $PROGRAM == host-down ]]; then
        local words=${*//$'\n'/ }
        printf '%s\t%s\t%s\n' "$NUMBER" "${calls%% main *}" "$words" >>"$RI2N_TEST_RECORD"
    fi
    "$@"
    if [[ $PROGRAM == "${RI2N_TEST_KILL-host-up}" && $NUMBER == "${RI2N_TEST_KILL_AT-}" ]]; then
        kill -KILL $$
    fi
    [[ $NUMBER != "${RI2N_TEST_FAIL_AT-}" ]]
}
"""


@dataclass(frozen=True)
class Change:
    """One change that host-up makes."""

    number: int
    step: str
    text: str

    @property
    def kind(self) -> str:
        """What all changes of its kind have in common: it has no names, addresses or numbers."""
        words = [self.step, *self.text.split()]
        if words[1].startswith("write_"):
            return " ".join([*words[:2], Path(words[2]).name])
        return " ".join(re.sub(r"\S*\d\S*", "N", word) for word in words[:8])

    @property
    def may_fail(self) -> bool:
        """Whether host-up goes on without the change.

        A route that is impossible, an offload, the size of TCP's segments, or what the controller
        is told of the addresses does not stop it.
        """
        text = r"ethtool -K|ip -[46] route replace|nft add table inet|load_bundle"
        return bool(re.match(text, self.text))


class Failing:
    """The scripts with RUN, on a host that has not been under RI2N."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.scripts = folder / "scripts"
        self._record = folder / "record"
        shutil.copytree(SCRIPTS, self.scripts)
        with (self.scripts / "common.sh").open("a") as common:
            common.write(RUN)
        files = [folder / name for name in ("key.pem", "cert.pem", "ca.pem")]
        for file in files:
            file.write_text("")
        ssl = [word for file in files for word in (f"--ssl-{file.stem}", str(file))]
        more = ["--helper", "--confirm", "99999", "--controller", "ssl:10.255.0.1:6653", *ssl]
        self.options = [*host.up_arguments, *more]
        self.changes = self.recorded(self.options)

    def recorded(self, options: list[str]) -> list[Change]:
        """The changes that host-up makes with these options."""
        self.command(options, {}).check_returncode()
        lines = [line.split("\t") for line in self._record.read_text().splitlines()]
        return [Change(int(number), calls.split()[-1], text) for number, calls, text in lines]

    def command(
        self, options: list[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """The command of host-up with these options; it writes its changes into the record."""
        self._record.unlink(missing_ok=True)
        environment = {"RI2N_TEST_RECORD": str(self._record), **environment}
        argv = self.host.command("host-up", *options, scripts=self.scripts, environment=environment)
        return self.host.run(*argv, check=False)

    def fails_at(self, change: Change) -> str:
        """What is not as before after a host-up that failed with this change.

        Empty when everything is as before.
        """
        before = self.host.snapshot()
        done = self.command(self.options, {"RI2N_TEST_FAIL_AT": str(change.number)})
        if change.may_fail:
            assert done.returncode == 0, done.stderr
            self.host.script("host-down")
            kill(self.host.watchers())  # as after --confirmed: a watcher would find nothing to do
        else:
            assert (done.returncode, "undone: everything is as before" in done.stderr) == (
                1,
                True,
            ), done.stderr
            assert not (self.host.state / "br-ri2n.undo.log").exists()
        assert f"{change.number}\t" in self._record.read_text(), "host-up did not come that far"
        return differences(before, self.host.snapshot())

    def down(self, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run host-down with RUN."""
        self._record.unlink(missing_ok=True)
        environment = {"RI2N_TEST_RECORD": str(self._record), **environment}
        return self.host.run(
            *self.host.command("host-down", scripts=self.scripts, environment=environment),
            check=False,
        )

    def changes_of_down(self) -> list[Change]:
        """The changes of host-down on a host that is up; the host is down afterwards."""
        self.down({}).check_returncode()
        lines = [line.split("\t") for line in self._record.read_text().splitlines()]
        steps = [
            next(word for word in calls.split() if word not in ("run", "must", "try"))
            for _, calls, _ in lines
        ]
        return [
            Change(int(number), step, text)
            for (number, _, text), step in zip(lines, steps, strict=True)
        ]


def differences(before: dict[str, str], after: dict[str, str]) -> str:
    """The lines that appeared or vanished, each with its part of the snapshot."""
    found = []
    for key in before:
        old, new = before[key].splitlines(), after[key].splitlines()
        found += [f"{key}: gone: {line}" for line in old if line not in new]
        found += [f"{key}: new: {line}" for line in new if line not in old]
    return "\n".join(found)


def kill(pids: list[int]) -> None:
    """End these watchers, each of which leads a session."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.killpg(pid, 15)


@pytest.fixture(scope="module")
def alone() -> Iterator[Lab]:
    """The module's lab of ALONE."""
    with Lab.create(parse_topology(ALONE)) as lab:
        yield lab


@pytest.fixture
def host(alone: Lab) -> Host:
    """Host A of the module's lab as before RI2N, whatever a broken script has left."""
    made = Host(alone)
    kill(made.watchers())
    made.prepare()
    (made.state / "br-ri2n.undo.log").unlink(missing_ok=True)
    return made


@pytest.fixture(scope="module")
def recorded(alone: Lab, tmp_path_factory: pytest.TempPathFactory) -> Failing:
    """The changes that host-up makes on this machine's datapath with all options that it has."""
    made = Host(alone)
    made.prepare()
    return Failing(made, tmp_path_factory.mktemp("failing"))
