# SPDX-License-Identifier: Apache-2.0
"""`ri2n demo` as README.md has it: every strategy, a web page, and Ctrl-C removes everything."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ri2n_lab.cli.demo_tries import KEYS
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.fast_paths import find_fast_program
from ri2n_lab.cluster.helpers import find_program
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.shipped import find_topology
from tests.waiting import wait_until

from .conftest import PATIENCE_S
from .test_lab import remains

ADDRESS = r"(http://127\.0\.0\.1:\d+/)login#token=(\S+)"
DEMO = ("env", "--default-signal=INT", sys.executable, "-m", "ri2n_sdn.cli.main", "demo")


def lab_of(stderr: str) -> str:
    found = re.search(r"building lab (\S+):", stderr)
    assert found, stderr
    return found[1]


def test_every_strategy_is_shown_and_nothing_stays() -> None:
    argv = [*DEMO, "--seconds", "1", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert list(shown["strategies"]) == ["round_robin", "ri2n_plus", "ri2n_plus_plus", "max_min"]
    assert 0 < shown["rates_factor"] <= 1
    for row in shown["strategies"].values():
        assert isinstance(row["cpus_short"], bool) and 0 <= row["cpus"]["idle"] <= 1
        assert set(row["clients"]) == {"B", "C", "D"} and min(row["clients"].values()) > 0
    assert remains(lab_of(done.stderr)) == []


def test_nothing_can_be_tried_without_a_demo(tmp_path: Path) -> None:
    for words, said in (
        (("--try", "cut"), "no demo waits for anything to try"),
        (("--try", "cut", "--lab", "absent"), "no demo waits for anything to try"),
        (("--try", "juggle"), "--try: unknown 'juggle'; choose from cut, controller, job"),
    ):
        done = subprocess.run(
            [*DEMO, *words],
            env={**os.environ, "RI2N_LAB_ROOT": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        assert said in done.stderr


def answer_of(url: str, token: str | None = None) -> str:
    """What a browser or a script gets."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def said_until(demo: subprocess.Popen[str], wanted: str) -> str:
    """What the demo says on stderr, up to the line that has `wanted`."""
    assert demo.stderr is not None
    said = ""
    for line in demo.stderr:
        said += line
        if wanted in line:
            return said
    raise AssertionError(said)


def end(demo: subprocess.Popen[str]) -> None:
    """Let a demo of a test that has failed remove its lab, too."""
    demo.terminate()
    try:
        demo.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        demo.kill()


def end_by_ctrl_c(demo: subprocess.Popen[str], said: str, url: str, code: int) -> None:
    """Interrupt the demo, which must remove everything and exit with `code`."""
    assert demo.stderr is not None
    name = lab_of(said)
    assert remains(name)
    demo.send_signal(signal.SIGINT)
    said += demo.stderr.read()
    assert demo.wait(PATIENCE_S) == code and "Traceback" not in said, said
    assert remains(name) == []
    with pytest.raises(urllib.error.URLError):
        answer_of(url)


def test_the_web_page_is_live_and_ctrl_c_removes_everything() -> None:
    with subprocess.Popen(
        DEMO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as demo:
        try:
            said = said_until(demo, "now traffic")
            found = re.search(f"watch it live:\n{ADDRESS}$", said, re.MULTILINE)
            assert found and max(map(len, said.splitlines())) <= 80, said
            assert "RI2N" in answer_of(found[1])
            wait_until(lambda: "\nri2n_hosts 4.0" in answer_of(f"{found[1]}metrics"), said)
            end_by_ctrl_c(demo, said, found[1], 130)
        finally:
            end(demo)


@pytest.mark.long
def test_the_demo_ends_with_the_address_of_its_web_page_and_commands_that_work() -> None:
    """As README.md has it: the address has a login, and the commands work in another terminal.

    Another lab, and a variable that names another controller, are there, too. Traffic goes on, so
    that there is something to see.
    """
    with (
        Lab.create(find_topology("fig4/a")),
        subprocess.Popen(
            DEMO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as demo,
    ):
        try:
            said = said_until(demo, "Open http")
            found = re.fullmatch(f"Open {ADDRESS}", said.splitlines()[-1])
            assert found, said
            url, token = found[1], found[2]
            metrics = f"{url}metrics"

            def good() -> bool:
                try:
                    return "\nri2n_hosts 4.0" in answer_of(metrics, token)
                except urllib.error.HTTPError:
                    return False  # the web process has not heard of the new token yet

            wait_until(good, said)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                answer_of(metrics, f"{token}x")

            def sent() -> float:
                text = answer_of(metrics)
                lines = re.findall(r"^ri2n_nic_transmit_bytes_total{.*} (\S+)$", text, re.M)
                return sum(map(float, lines))

            before = sent()
            wait_until(lambda: sent() > before + 10e6, lambda: answer_of(metrics))
            run_printed(said)
            # The controller was killed, and the login is good until the demo ends.
            wait_until(good, lambda: answer_of(metrics))
            end_by_ctrl_c(demo, said, url, 0)  # it had shown everything
        finally:
            end(demo)


def run_printed(said: str) -> None:
    """Run each command that the demo has printed, in another folder than the demo's."""
    printed = re.findall(r"^  (\S.*)$", said.partition("In another terminal:")[2], re.MULTILINE)
    tries = [command for command in printed if " --try " in command]
    assert len(printed) >= 11 and len(tries) == len(KEYS), said
    for command in printed:
        if cannot_do(command):
            continue
        shown = "top " in command
        first = run_as_typed(f"{command} --count 2" if shown else command)  # it never ends
        assert first, command
        if command in tries and " controller" not in command:
            again = run_as_typed(command)
            assert again and again != first, (command, first)


def cannot_do(command: str) -> bool:
    """Whether a try would install a compiler, or needs what the kernel refuses."""
    try:
        if command.endswith(" --try fast"):
            probe = [str(find_fast_program()), "probe"]
            return bool(subprocess.run(probe, capture_output=True, check=False).returncode)
        return command.endswith(" --try helpers") and not find_program()
    except NotAvailable:
        return True


def run_as_typed(command: str) -> str:
    """What a command says. A try that is refused says until when to wait: then it is repeated."""
    environment = {**os.environ, "RI2N_SOCKET": "/nonexistent", "COLUMNS": "80"}
    said: list[str] = []

    def done() -> bool:
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        said.append(ended.stdout)
        assert "Traceback" not in ended.stderr, (command, ended)
        # With 1, `status` and `doctor` warn: of CPUs that are short, for example.
        allowed = (0, 1) if re.search(r" (status|doctor) ", command) else (0,)
        waits = "wait until" in ended.stderr
        assert ended.returncode in allowed or (" --try " in command and waits), (command, ended)
        return ended.returncode in allowed

    wait_until(done, lambda: (command, said))
    return said[-1]
