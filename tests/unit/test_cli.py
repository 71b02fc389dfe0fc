# SPDX-License-Identifier: Apache-2.0
"""The command line: bad input gives one line on stderr and exit code 2; answers are complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from ri2n_sdn import __version__
from ri2n_sdn.cli import status
from ri2n_sdn.cli.common import console, run_guarded
from ri2n_sdn.cli.config import kind_of
from ri2n_sdn.cli.labs import Asked
from ri2n_sdn.cli.options import Group
from ri2n_sdn.cli.views import helper_table, path_table, status_view
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.units import table_rate
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError
from ri2n_sdn.shipped import find_topology
from ri2n_sdn.weights import strategies
from tests.unit.commands import REPOSITORY, ri2n

NOBODY = "/nonexistent/controller.sock"
BAD_INPUT: list[tuple[tuple[str, ...], str | Callable[[], Ri2nError]]] = [
    (("nosuchcommand",), "nosuchcommand"),
    (("status", "--nosuchoption"), "--nosuchoption"),
    (("controller", "--listen", "6653"), "HOST:PORT"),
    (("controller", "--listen", "127.0.0.1:65536"), "65535"),
    (("controller", "--listen", "127.0.0.1:six"), "HOST:PORT"),
    (("controller", "--strategy", "fastest"), "'fastest'"),
    (("controller", "--log-level", "loud"), "'loud'"),
    (("controller", "--log-format", "xml"), "'xml'; choose from text, json"),
    (("controller", "--tls-key", "/nonexistent"), "--tls-cert"),
    (
        (
            "controller",
            "--tls-key",
            "/nonexistent",
            "--tls-cert",
            "/nonexistent",
            "--tls-ca",
            "/nonexistent",
        ),
        "no such file",
    ),
    (("controller", "--config", "/nonexistent.yaml"), "/nonexistent.yaml: No such file"),
    (("status", "--socket", NOBODY), partial(refusal, "controller_absent", path=NOBODY)),
    (("top", "--socket", NOBODY), partial(refusal, "controller_absent", path=NOBODY)),
    (("explain", "A", "--socket", "/nonexistent"), "dst"),
    (("explain", "A", "B", "--socket", "/nonexistent", "--proto", "tulip"), "'tulip'"),
    (("explain", "A", "B", "--socket", "/nonexistent", "--sport", "70000"), "65535"),
    (("explain", "A", "B", "--socket", "/nonexistent", "--sport", "7"), "--proto is missing"),
    (("explain", "A", "B", "--hash", "md5"), "'md5'"),
    (("explain", "A", "B", "--datapath", "fast"), "'fast'"),
    (("doctor", "--host", "A"), "only with --lab"),
    (("doctor", "--lab", "nosuchlab"), "nosuchlab"),
    (("lab", "up", "nosuchtopology"), "nosuchtopology"),
    (("lab", "up", "../../etc/passwd"), "../../etc/passwd"),
    (("lab", "up", "fig4/d", "--strategy", "fastest"), "'fastest'"),
    (("lab", "down", "nosuchlab"), "nosuchlab"),
    (("lab", "down", "x", "--all-mine"), "not both"),
    (("lab", "exec", "A", "--", "true"), "no lab"),
    (("lab", "fault", "nic_down"), "no lab"),
    (("bench", "fig4", "--topologies", "z"), "z: no such file"),
    (("bench", "fig4", "--topologies", ","), "--topologies: is empty"),
    (("bench", "fig4", "--strategies", "max_min,fastest"), "'fastest'"),
    (("bench", "fig4", "--mode", "pocket"), "'pocket'"),
    (("bench", "fig4", "--autonomous", "max_min"), "--mode packet"),
    (("bench", "fig4", "--plain", "B"), "--mode packet"),
    (("bench", "fig4", "--mode", "packet", "--plain", "Z", "--topologies", "d"), "--plain: Z"),
    (
        ("bench", "fig4", "--ping", "--topologies", "mixed", "--clients", "nobody"),
        "--clients: nobody",
    ),
    (("bench", "fig4", "--seconds", "0"), "--seconds"),
    (("bench", "fig4", "--topologies", "mixed", "--pattern", "quiet"), "'quiet'"),
    (("bench", "fig4", "--drop", "oldest,newest"), "'oldest,newest'"),
    (("bench", "fig4", "--json", "/nonexistent/rows.json"), "/nonexistent/rows.json"),
    (("bench", "failover", "--fault", "earthquake"), "'earthquake'"),
    (("bench", "failover", "--fault", "helper_killed"), "'helper_killed'"),
    (("bench", "stream", "--links", "100,fast"), "--links 100,fast"),
    (("bench", "stream", "--links", ",".join(["100"] * 9)), "at most 8"),
    (("bench", "stream", "--cc", "vegas"), "'vegas'"),
    (("bench", "stream", "--proto", "sctp"), "'sctp'"),
    (("bench", "demand", "--stops", "Z"), "--stops Z"),
    (("bench", "demand", "--topology", "fig4/b"), "--stops B"),
    (("bench", "helper", "--what", "abacus"), "'abacus'"),
    (("bench", "failover", "--topology", "fig4/a"), "two common networks"),
    (("bench", "fig9", "--topology", "fig4/d"), "B's NIC eth1"),
    (("bench", "vbft", "--topologies", "nosuch"), "nosuch: no such file"),
    (("bench", "vbft", "--topologies", "d", "--pattern", "gather"), "'gather'"),
    (
        ("bench", "vbft", "--topologies", "d", "--pattern", "cg"),
        "--pattern cg: needs at least 14 hosts",
    ),
    (("bench", "vbft", "--topologies", "d", "--tables", "profile"), "'profile'"),
    (("bench", "vbft", "--topologies", "fig4/b,fig4/c"), "topology c: its hosts are others"),
    (
        ("bench", "vbft", "--topologies", "d", "--pattern", "shift", "--engine", "iperf3"),
        "--engine iperf3: only with",
    ),
    (
        ("bench", "vbft", "--engine", "mpi", "--kernel", "virtual"),
        "--engine mpi: only with --kernel host",
    ),
    (("bench", "jobs", "--policies", "anarchy"), "'anarchy'"),
    (("bench", "jobs", "--mode", "pocket"), "'pocket'"),
    (("bench", "rules", "--counts", "0,many"), "--counts many"),
    (("bench", "rules", "--counts", "20001"), "from 0 to 20000"),
    (("bench", "rules", "--over", "carrier pigeon"), "'carrier pigeon'"),
    (("demo", "--topology", "nosuch"), "nosuch"),
    (("demo", "--seconds", "0"), "--seconds"),
]


@pytest.mark.parametrize(
    ("arguments", "words"), BAD_INPUT, ids=[" ".join(a)[:60] for a, _ in BAD_INPUT]
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], words: str | Callable[[], Ri2nError]
) -> None:
    done = ri2n(*arguments)
    assert done.returncode == 2, done
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("ri2n: ")
    assert (words if isinstance(words, str) else str(words())) in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1", "must be a mapping"),
        ("name: [", "expected"),
        ("name: d\nname: e\n", "duplicate key"),
        ("strategy: fastest\n", "strategy: unknown strategy 'fastest'"),
        ("slots: 48\n", "slots: must be 16, 32, 64, 128 or 256"),
        ("hosts: {A: {nics: {eth0: {rate_bps: 0}}}}\nslots: 64\n", "hosts.A.nics.eth0.rate_bps"),
        ("name: d\nswitches: {s0: {}}\nhosts: {A: {nics: []}}\n", "hosts.A.nics"),
        ("name: d\nswitches: {s0: {}}\nhosts: {A: {}}\n", "hosts.A.nics: is missing"),
        (
            "name: d\nswitches: {s0: {}}\ncolour: red\nhosts: {A: {nics: []}}\n",
            "colour: unknown key",
        ),
        ("&a [*a]\n", "mapping"),
    ],
)
def test_check_config_names_the_file_and_the_key(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(text, encoding="utf-8")
    done = ri2n("check-config", str(file))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert str(file) in done.stderr and words in done.stderr


ALL_WRONG = {
    "strategy: fastest\nslots: 48\ncolour: red\nhosts: {A: {nics: {eth0: {rate_bps: 0}}}}\n": (
        *("strategy: unknown strategy 'fastest'", "slots: must be", "hosts.A.nics.eth0.rate_bps: "),
        "colour: unknown key",
    ),
    "switches: {s0: {links: [{to: s9, port: 1, rate_bps: 5}]}}\n"
    "hosts: {A: {nics: {eth0: {switch: s7}, eth1: {switch: s8}}}}\n": (
        *("switches.s0.links[0].to: no switch 's9'", "hosts.A.nics.eth0.switch: no switch 's7'"),
        "hosts.A.nics.eth1.switch: no switch 's8'",
    ),
    "name: d\nswitches: {s0: {links: [{to: s0, port: 1, rate_bps: 5}, "
    "{to: s1, port: 2, rate_bps: 5}]}, s1: {}}\n"
    "hosts: {sw: {nics: []}, A: {nics: [{name: lo, switch: s7, rate_bps: 4}]}}\n": (
        *("hosts.sw: this name is reserved", "hosts.sw.nics: a host needs", "hosts.A.nics[0].name"),
        *("hosts.A.nics[0].switch: no switch 's7'", "switches.s0.links[0].to: a switch cannot"),
        "switches.s0.links: port 2 is wired to s1, but s1 has no such link",
    ),
}


@pytest.mark.parametrize(("text", "said"), ALL_WRONG.items(), ids=("keys", "cluster", "topology"))
def test_check_config_says_all_errors(text: str, said: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(text, encoding="utf-8")
    done = ri2n("check-config", str(file))
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, "", len(said)), done.stderr
    for line, words in zip(lines, said, strict=True):
        assert line.startswith(f"ri2n: {file}: {words}")
    told = json.loads(ri2n("check-config", "--json", str(file)).stdout)
    assert [f"ri2n: {error}" for error in told["errors"]] == lines
    if "strategy" in text:  # what reads a file to use it says the first error alone
        refused = ri2n("controller", "--config", str(file)).stderr
        assert refused == f"{lines[0]} (and {len(said) - 1} more)\n"


def test_check_config_of_binary_rubbish_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "rubbish"
    file.write_bytes(bytes(range(256)) * 8)
    done = ri2n("check-config", str(file))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_check_config_takes_both_kinds_and_tells_them_apart(tmp_path: Path) -> None:
    topology = ri2n("check-config", "--json", "topologies/fig4/d.yaml")
    assert json.loads(topology.stdout)["kind"] == "topology"
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "strategy: ri2n_plus\nhosts: {A: {nics: {eth0: {rate_bps: 1000}}}}\n", encoding="utf-8"
    )
    assert kind_of(cluster) == "cluster.yaml"
    done = ri2n("check-config", str(cluster))
    assert done.returncode == 0 and "good cluster.yaml" in done.stdout, done.stderr


def test_a_lone_nic_is_a_warning_not_an_error(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(
        "name: t\nswitches: {s0: {}, s1: {}}\nhosts:\n"
        "  A: {nics: [{name: eth0, switch: s0, rate_bps: 1000000}, {name: eth1, switch: s1, "
        "rate_bps: 1000000}]}\n"
        "  B: {nics: [{name: eth0, switch: s0, rate_bps: 1000000}]}\n",
        encoding="utf-8",
    )
    done = ri2n("check-config", str(file))
    assert done.returncode == 0 and "only NIC" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("lab", "down", "nosuchlab"), ("check-config", "--json", "topologies/fig4/d.yaml")],
    ids=" ".join,
)
def test_the_command_itself_does_what_these_tests_see(arguments: tuple[str, ...]) -> None:
    """The other tests run it in their own process (tests.unit.commands)."""
    done = subprocess.run(
        [sys.executable, "-m", "ri2n_sdn.cli.main", *arguments],
        env={**os.environ, "COLUMNS": "200", "RI2N_LAB_ROOT": "/nonexistent/ri2n-labs"},
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    inside = ri2n(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (
        inside.returncode,
        inside.stdout,
        inside.stderr,
    )


NUMBERS = [
    ("top", "--interval"),
    *(("host", "rollout", "true", option) for option in ("--settle", "--calm", "--limit")),
    ("host", "replace", "A", "--wait"),
    ("job", "begin", "--wait"),
    ("vlan", "record", "-o", "x", "--seconds"),
    ("web", "--requests-per-s"),
]


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "-1", "x"])
@pytest.mark.parametrize("arguments", NUMBERS, ids=" ".join)
def test_a_number_that_nobody_can_wait_for_is_one_line(
    arguments: tuple[str, ...], value: str
) -> None:
    done = ri2n(*arguments, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and arguments[-1] in done.stderr


def test_a_folder_of_the_environment_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's unit names a folder; who wants a common store need not take it away there."""
    from ri2n_sdn.apps import launcher

    options: list[Any] = []
    monkeypatch.setattr(launcher, "run", options.append)
    assert ri2n("controller", "--store", "none", RI2N_STATE_DIR="/folder").returncode == 0
    assert options[-1].memory.store == "none" and options[-1].memory.state_dir is None
    assert ri2n("controller", RI2N_STATE_DIR="/folder").returncode == 0
    assert str(options[-1].memory.state_dir) == "/folder" and options[-1].memory.store is None
    refused = ri2n("controller", "--store", "none", "--state-dir", "/a", RI2N_STATE_DIR="/b")
    assert refused.returncode == 2 and "--store: cannot be combined" in refused.stderr
    assert len(options) == 2


def test_help_and_version() -> None:
    done = ri2n("--help")
    assert done.returncode == 0
    for command in (
        "controller",
        "lab",
        "bench",
        "status",
        "top",
        "explain",
        "doctor",
        "check-config",
        "demo",
    ):
        assert command in done.stdout
    assert ri2n("--version").stdout == f"ri2n {__version__}\n"
    assert ri2n().returncode == 2


def test_the_contract_lists_every_strategy() -> None:
    """The contract has a list of its own, because the strategies' modules take long to import."""
    assert tuple(strategies.STRATEGIES) == STRATEGIES


@pytest.mark.parametrize("command", ["controller", "explain", "doctor", "demo", "top"])
def test_every_command_explains_itself(command: str) -> None:
    done = ri2n(command, "--help")
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 6


def test_ctrl_c_is_130_without_a_word_and_a_gone_reader_is_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert run_guarded(interrupted) == 130
    assert capsys.readouterr() == ("", "")
    done = subprocess.run(
        f"{sys.executable} -m ri2n_sdn.cli.main --help | true",
        shell=True,
        capture_output=True,
        cwd=REPOSITORY,
        check=True,
    )
    assert done.stderr == b""


def test_errors_of_ours_become_one_line_whatever_they_contain(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise NotAvailable("first\nsecond  third")

    assert run_guarded(fail) == 2
    assert capsys.readouterr().err == "ri2n: first second third\n"


def test_a_bug_stays_a_bug() -> None:
    def bug() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_guarded(bug)


def test_rates_for_people() -> None:
    rates = [None, 0, 999, 1500, 95.64e6, 10e9]
    assert [table_rate(rate) for rate in rates] == [
        *("-", "0 bit/s", "999 bit/s", "1.5 kbit/s", "95.6 Mbit/s", "10.0 Gbit/s"),
    ]


def test_topologies_are_found_by_their_short_names() -> None:
    assert {find_topology(name).name for name in ("d", "fig4/d", "fig4/d.yaml")} == {"d"}
    with pytest.raises(BadInput, match="no such file"):
        find_topology("../setup")


# ---- explain and status, from recorded answers


def explained(alive: bool = True) -> Any:
    def path(nic: str, network: str, up: bool) -> dict[str, object]:
        return {
            **{
                "own": nic,
                "peer": nic,
                "network": network,
                "vlan": None,
                "alive": up,
                "share": 0.5,
                "slots": 32,
            },
            **{"tx_bps": 1e6, "rx_bps": 1e6, "rate_bps": None},
        }

    return {
        **{
            "ok": True,
            "src": "B",
            "dst": "A",
            "kind": "managed",
            "reason": "the pair carries traffic",
        },
        "slots": [["eth0", "eth0", None], ["eth1", "eth1", None]] * 32,
        "paths": [path("eth0", "n1", True), path("eth1", "n2", alive)],
    }


def striped() -> Any:
    """The answer of `explain` for a pair with two helpers, one of which has reported one link."""
    report = {
        **{
            "heard": True,
            "usable": False,
            "striping": True,
            "sent": 70_001,
            "received": 2,
            "lost": 3,
            "repeated": 4,
        },
        **{"skew_s": 0.0015, "rtt_s": 0.00025, "rate_bps": 9e7, "demand_bps": None},
    }
    answer: dict[str, Any] = explained()
    first, second = answer["paths"]
    paths = [{**first, "link": 0, "helper": report}, {**second, "link": 1, "helper": None}]
    return {**answer, "striped": True, "reason": "both helpers run", "paths": paths}


def shown(what: object) -> str:
    printer = console()
    with printer.capture() as captured:
        printer.print(what)
    return captured.get()


def test_what_helpers_report_is_shown_of_striped_pairs_alone() -> None:
    text = shown(*helper_table([striped()]))
    assert "0: eth0 -> eth0" in text and "1: eth1" not in text
    assert "70001" in text and "1.50 ms" in text and "0.25 ms" in text and "NO" in text
    assert list(helper_table([explained()])) == []


@pytest.mark.parametrize(
    ("variable", "width"), [(None, 160), ("80", 160), ("0", 160), ("wide", 160), ("400", 400)]
)
def test_a_table_in_a_pipe_is_wide_enough_whatever_columns_says(
    variable: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", variable)
    assert console().width == width


def answer_of(*, settled: bool = True, **parts: Any) -> Any:
    """The answer to `status` of a controller whose state has these parts, and no pairs."""
    about = {"settled": settled, "in_charge": True, "strategy": "max_min", "hbspan_s": 0.25}
    state = {"controller": about, "hosts": {}, "rates": {}, "problems": {}, "counters": {}, **parts}
    return {"ok": True, "uptime_s": 1.0, "state": state, "jobs": {}, "pairs": []}


def test_status_marks_striped_pairs_and_helpers() -> None:
    host: dict[str, Any] = {"address": None, "ovs": "3.1.0", "connected": True, "nics": {}}
    for runs, mark in ((True, "B (helper)"), (False, "B (helper down)")):
        answer = answer_of(hosts={"B": {**host, "helper": {"running": runs, "reports": False}}})
        answer["pairs"] = [{**striped(), "active": True}]
        text = shown(status_view(answer, 1.5e9))
        assert mark in text and "B -> A striped" in text and "70001" in text


def test_status_says_what_each_pair_gets_of_what_is_fair_and_how_old_that_is() -> None:
    answer = answer_of()
    paths = explained()["paths"]
    answer["pairs"] = [
        {**{"src": src, "dst": "A", "active": True, "striped": False, "paths": paths}, **rates}
        for src, rates in (
            ("B", {"tx_bps": 30e6, "fair_bps": 60_000_000}),
            ("C", {"tx_bps": 5e6, "fair_bps": None}),
            ("D", {}),  # of an earlier controller
        )
    ]
    assert "rates not read yet" in shown(status_view(answer, 1.5e9))
    answer["sampled_s"] = 1.5e9 - 0.4
    text = shown(status_view(answer, 1.5e9))
    (of_b,) = (line for line in text.splitlines() if "B -> A" in line)
    assert "60.0 Mbit/s" in of_b and "50.0 %" in of_b
    for pair in ("C -> A", "D -> A"):
        (line,) = (line for line in text.splitlines() if pair in line)
        assert "%" not in line and line.count("-") >= 3
    assert "rates 0.4 s old" in text


def test_a_path_has_its_planned_rate_and_that_of_its_nics() -> None:
    first, second = explained()["paths"]
    paths: list[Any] = [
        {**first, "rate_bps": 4e7, "speed_bps": 10**8},
        {**second, "speed_bps": 10**9},
    ]
    text = shown(path_table(paths)).splitlines()
    assert "planned" in text[1] and "NIC rate" in text[1]
    assert "40.0 Mbit/s" in text[3] and "100.0 Mbit/s" in text[3]
    assert text[4].split()[-5:-3] == ["-", "│"] and "1.0 Gbit/s" in text[4]


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    nic = {"network": "n1", "speed_bps": 10**8, "up": True, "alive": True}
    host = {
        **{"address": "[red]", "ovs": "3[/bold]", "connected": True, "helper": None},
        "nics": {"eth[/]0": nic},
    }
    problem = {"severity": "warning", "text": "B: [/] is odd", "advice": ""}
    answer = answer_of(
        hosts={"B": host}, rates={"B": {"eth[/]0": [1500, 0]}}, problems={"odd": problem}
    )
    text = shown(status_view(answer, 1.5e9))
    assert "eth[/]0" in text and "[red]" in text and "3[/bold]" in text and "1.5 kbit/s" in text
    assert text.index("B: [/] is odd") < text.index("eth[/]0"), "what is wrong comes first"


def test_status_of_an_empty_controller_can_be_shown_and_another_version_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert status_view(answer_of(settled=False), 1.5e9) is not None
    monkeypatch.setattr(status, "call", lambda *_: {"ok": True})
    with pytest.raises(NotAvailable, match="another version"):
        status.status(Asked(Path("any.sock")))


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(help="How wide.")]
    height: int = 2


@dataclass(frozen=True)
class Box(Size):
    lid: bool = False


def test_the_fields_of_a_dataclass_are_options_at_the_place_of_the_parameter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    group = Group("Boxes.", add_completion=False)

    @group.command()
    def make(name: str, *, first: int = 1, box: Box, last: int = 9) -> None:
        """Make a box."""
        print(name, first, box, last)

    command = typer.main.get_command(group)
    assert [each.name for each in command.params] == [
        *("name", "first", "width", "height", "lid", "last")
    ]
    assert command.help == "Make a box."
    command(["a", "--width", "3", "--lid", "--last", "8"], standalone_mode=False)
    assert capsys.readouterr().out == f"a 1 {Box(3, 2, True)} 8\n"
    assert run_guarded(lambda: command(["a"], standalone_mode=False)) == 2
    make("b", box=Box(1))
    assert capsys.readouterr().out == f"b 1 {Box(1)} 9\n"
