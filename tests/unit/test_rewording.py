# SPDX-License-Identifier: Apache-2.0
"""Whatever sentences say, programs see the same.

The files of SEEN_BY_PROGRAMS (conftest.py) always run with other sentences. Here, what is seen with
two choices of sentences is compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from ri2n_sdn.cli import status as status_command
from ri2n_sdn.cli.labs import Asked
from ri2n_sdn.contract.events import EVENTS, Event
from ri2n_sdn.contract.metrics import Own
from ri2n_sdn.contract.problems import PROBLEMS, Problem
from ri2n_sdn.contract.state import difference
from ri2n_sdn.web import metrics
from ri2n_sdn.web.age import Age
from ri2n_sdn.web.gui.banner import banner
from ri2n_sdn.web.gui.event_views import event_row, events_found, problem_rows
from ri2n_sdn.web.gui.setting_views import audit_rows
from ri2n_sdn.web.shape import checked
from tests.unit.conftest import SEEN_BY_PROGRAMS
from tests.unit.said_examples import reworded, state_of
from tests.unit.web_app import bearer, made_app, run, serving
from tests.unit.web_state import NOW_S, FakeFeed, cluster_state

# What people read, and nobody else.
_SENTENCES = ("text", "advice")


def plain(value: Any) -> Any:
    """A document without its sentences."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items() if key not in _SENTENCES}
    return [plain(each) for each in value] if isinstance(value, list) else value


def answers(state: Any) -> dict[str, Any]:
    """What REST answers about a state."""
    faults = list(state["problems"])
    paths = ["faults?limit=200", "faults?severity=bad&limit=200", "events?limit=200", "check"]
    app = made_app(FakeFeed(state), requests_per_s=1e6)

    async def ask() -> list[httpx.Response]:
        async with serving(app) as client:
            return [
                await client.get(f"/api/v1/{path}", headers=bearer("viewer"))
                for path in (*paths, *(f"faults/{fault}" for fault in faults))
            ]

    given = run(ask())
    assert {each.status_code for each in given} == {200}
    return {str(each.url): plain(each.json()) for each in given}


def seen_by_programs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """All that does not depend on a sentence, of a cluster of which everything is said."""
    state: Any = {**cluster_state(jobs=2), **state_of()}
    state["hosts"] = {"A": state["hosts"]["h0001"], "B": state["hosts"]["h0002"]}
    state["cables"] = {}  # a check sends no probes
    good, dropped = checked(state)
    assert dropped == 0 and good == state
    listed = [{"id": key, **each} for key, each in state["problems"].items()]
    exit_codes = {}
    for severity in ("", "warning", "bad"):
        answer = {"problems": [each for each in listed if each["severity"] == severity]}
        monkeypatch.setattr(status_command, "call", lambda *_, answer=answer: answer)
        exit_codes[severity] = status_command.status(Asked(folder / "any.sock", as_json=True))
    capsys.readouterr()
    shown = str(banner(state, connected=True, why=None, age=Age(None, False)))
    return {
        "watch": plain(difference({**state, "problems": {}, "events": []}, state)),
        "exit codes": exit_codes,
        "rows": plain(problem_rows(state) + [event_row(each, state) for each in state["events"]]),
        "audit": audit_rows(state["events"]),
        "of A": [each["seq"] for each in events_found(state, host="A")],
        "bad": [each["seq"] for each in events_found(state, severities=("bad",))],
        "colours": [shown.count(f'class="line {each}"') for each in ("bad", "warning", "good")],
        "links": [part.partition('"')[0] for part in shown.split('<a href="')[1:]],
        "metrics": metrics.page(metrics.families(state, Own(NOW_S, True, 0.0, 0.0, "1")), True),
        "REST": answers(state),
    }


@pytest.mark.parametrize("seed", range(5))
def test_rewording_a_sentence_changes_nothing_for_programs(
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    random = Random(seed)
    before = seen_by_programs(tmp_path, monkeypatch, capsys)
    texts = json.dumps(state_of())
    monkeypatch.setattr(Problem, "table", reworded(PROBLEMS, random))
    monkeypatch.setattr(Event, "table", reworded(EVENTS, random))
    assert json.dumps(state_of()) != texts, "the sentences are others"
    after = seen_by_programs(tmp_path, monkeypatch, capsys)
    assert after.keys() == before.keys()
    for what, was in before.items():
        assert after[what] == was, f"{what}, seed {seed}"
    assert before["exit codes"] == {"": 0, "warning": 1, "bad": 2} and len(before["audit"]) == 4
    assert before["links"] and all(before["colours"][:2])


# What these files of programs' interfaces are about.
_OTHERS = {
    **dict.fromkeys(("test_problems", "test_manual", "test_contract_readers"), "the sentences"),
    "test_rewording": "other sentences of its own",
    **dict.fromkeys(("test_docs", "test_debian", "test_switch_files"), "files, not answers"),
    **dict.fromkeys(
        ("test_bench_jobs", "test_bench_parallel", "test_bench_report_files"), "the lab"
    ),
    **dict.fromkeys(("test_bench_web", "test_guest_agent", "test_plan"), "the lab"),
    "test_fair": "figures",
}
_INTERFACE = re.compile(
    r"^from (ri2n_sdn\.(web|cli|client|apps\.local_api|apps\.watch\w*|contract\.metrics)\b|"
    r"tests\.unit\.(commands import .*\bri2n\b|web_app|web_state|rest_controller))",
    re.MULTILINE,
)


def test_all_files_about_what_programs_see_run_with_other_sentences() -> None:
    names = {path.stem: path for path in Path(__file__).parent.rglob("test_*.py")}
    seen = {name for name in names if any(fnmatch(name, each) for each in SEEN_BY_PROGRAMS)}
    assert all(any(fnmatch(name, each) for name in names) for each in SEEN_BY_PROGRAMS)
    about = {
        name for name, path in names.items() if _INTERFACE.search(path.read_text(encoding="utf-8"))
    }
    assert about - seen == set(_OTHERS), "a file is in SEEN_BY_PROGRAMS, or here with its reason"
