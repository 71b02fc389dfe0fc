# SPDX-License-Identifier: Apache-2.0
"""Pictures of all pages of the GUI for the manual: `./dev screenshots [FOLDER [NAME ...]]`.

A real `ri2n web` shows a small cluster that has been made up, so that the pictures can be made
again anywhere.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from ri2n_sdn.contract.fair import fair_entry
from ri2n_sdn.contract.problems import Problem
from tests.sandbox.browser import FakeController, Visit, browsing, serving
from tests.sandbox.gui_answers import ANSWERS
from tests.sandbox.gui_figures import GBIT, switched_state
from tests.unit.test_gui_views import PAIR, parameters
from tests.unit.web_state import NOW_S, event

__all__ = ["SHOTS", "main"]

FOLDER = Path(__file__).parents[1] / "docs" / "gui"
MAX_BYTES = 200_000
WIDTH, HEIGHT, LOW, PHONE_WIDTH = 1200, 900, 560, 390
HOSTS, MANY_HOSTS = 8, 1000
SAMPLES, SAMPLE_S, EVENT_S = 12, 2.1, 40.0
FAIR_BPS = GBIT // (HOSTS - 1)
MANY, OLD = "network-1000", "network-old"

SHOTS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "network": ("/?job=j1", "Job j1 uses", {}),
    "network-dark": ("/?host=h0002", "dead: no link", {"color_scheme": "dark"}),
    "network-phone": ("/", "Hosts", {"viewport": {"width": PHONE_WIDTH, "height": HEIGHT}}),
    MANY: ("/", "1,000", {"viewport": {"width": WIDTH, "height": LOW}}),
    "explain": (
        "/explain?src=h0001&dst=h0006&protocol=tcp&sport=4000&dport=80",
        "this one",
        {},
    ),
    "traffic": ("/traffic", "", {}),
    "jobs": ("/jobs", "j1", {}),
    "events": ("/events", "", {}),
    "settings": ("/settings", "", {}),
    "login": ("/login", "", {}),
    OLD: ("/", "As of", {"viewport": {"width": WIDTH, "height": LOW}}),
}
"""By the file's name: the page, a text that must be there, and options of the browser's window."""


def _state(hosts: int) -> dict[str, Any]:
    state = switched_state(hosts, per_leaf=4 if hosts == HOSTS else 32)
    nic = state["hosts"]["h0002"]["nics"]["eth1"]
    nic |= {"up": False, "alive": False}
    dead = Problem("nic_no_link", {"host": "h0002", "nic": "eth1"})
    state["problems"] = {
        dead.id: {
            **dead.document(),
            "severity": "bad",
            "advice": "look at its cable, and at the port of the switch leaf1-0",
            "rank": 0,
        }
    }
    now: dict[str, Any] = _today(state, time.time() - NOW_S)
    # Events were earlier than now.
    now["events"] = [
        {**event, "time_s": event["time_s"] - (state["events"][-1]["time_s"] - NOW_S) - EVENT_S}
        for event in now["events"]
    ]
    return now


def _today(value: Any, later_s: float) -> Any:
    """The same with all times so much later: a job that is over would make a strange picture."""
    if isinstance(value, list):
        return [_today(each, later_s) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: each + later_s
        if key.endswith("_s") and isinstance(each, float) and each > NOW_S / 2
        else _today(each, later_s)
        for key, each in value.items()
    }


def _change(
    state: Mapping[str, Any], chance: random.Random, part_of_fair: float = 0.97
) -> dict[str, Any]:
    """What a round of the controller changes: what all NICs carry, and each host's part of it."""
    rates = _rates(state, chance, part_of_fair)
    fair = {
        name: fair_entry([("h0001", sum(tx for tx, _ in nics.values()), FAIR_BPS * len(nics))])
        for name, nics in rates.items()
        if name != "h0001"
    }
    controller = {**state["controller"], "sampled_s": time.time()}
    return {"rates": rates, "fair": fair, "controller": controller}


def _rates(state: Mapping[str, Any], chance: random.Random, part: float) -> dict[str, Any]:
    """Rates at which all hosts send to the first one, some less than is fair."""
    sent = {
        name: {
            nic: round(FAIR_BPS * (part - 0.1 * (place % 3)) * chance.uniform(0.97, 1.03))
            for nic, facts in host["nics"].items()
            if facts["up"]
        }
        for place, (name, host) in enumerate(state["hosts"].items())
    }
    sent["h0001"] = dict.fromkeys(sent["h0001"], FAIR_BPS // 50)
    sums = {nic: sum(nics.get(nic, 0) for nics in sent.values()) for nic in sent["h0001"]}
    return {
        name: {
            nic: [tx_bps, min(sums[nic], 0.98 * GBIT) if name == "h0001" else tx_bps // 40]
            for nic, tx_bps in nics.items()
        }
        for name, nics in sent.items()
    }


def _pairs(request: dict[str, Any]) -> dict[str, Any]:
    names = [f"h{number:04d}" for number in range(1, 9)]
    pairs = [
        {**PAIR, "src": source, "dst": target, "tx_bps": (8 - place) * 110e6}
        for place, (source, target) in enumerate(itertools.pairwise(names))
    ]
    return {"pairs": pairs, "total": len(pairs), "offset": request.get("offset", 0)}


def _answers() -> dict[str, Any]:
    return {
        **ANSWERS,
        "pairs": _pairs,
        "parameters": {"parameters": parameters()},
        "token_list": {
            "tokens": [
                {"name": name, "role": role, "user": user, "created_s": 1.79e9, "expires_s": None}
                for name, role, user in (
                    *(("carol", "admin", None), ("alice", "user", "alice")),
                    ("grafana", "viewer", None),
                )
            ]
        },
        "job_history": {"jobs": []},
    }


def main(folder: Path, names: Collection[str] = ()) -> int:
    """Make the pictures with these names in a folder, or all. Returns how many are too large."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {name: shot for name, shot in SHOTS.items() if not names or name in names}
    with tempfile.TemporaryDirectory() as made, browsing() as browser:
        if few := {name: shot for name, shot in wanted.items() if name != MANY}:
            _make(browser, folder, Path(made), HOSTS, few)
        if many := {name: shot for name, shot in wanted.items() if name == MANY}:
            _make(browser, folder, Path(made), MANY_HOSTS, many)
    files = sorted(folder.glob("*.png"))
    for file in files:
        print(f"{file}: {file.stat().st_size} bytes")
    return sum(file.stat().st_size > MAX_BYTES for file in files)


def _make(
    browser: Browser,
    folder: Path,
    made: Path,
    hosts: int,
    shots: Mapping[str, tuple[str, str, dict[str, Any]]],
) -> None:
    chance = random.Random(5)
    with (
        FakeController(made, _state(hosts), _answers()) as controller,
        serving(controller.socket, made / f"{hosts}.log") as url,
    ):
        for number in range(SAMPLES if hosts == HOSTS else 1):  # so that there are lines over time
            if number == SAMPLES // 3:
                controller.change({"events": [*controller.state["events"], *_happens()]})
            part = 0.97 if number >= SAMPLES // 3 else 0.7
            controller.change(_change(controller.state, chance, part))
            time.sleep(SAMPLE_S)
        for name, (path, text, options) in shots.items():
            role = "admin" if path in ("/jobs", "/settings") else None
            if name == OLD:
                controller.stop()
            else:
                controller.change(_change(controller.state, chance))
            _shoot(Visit(browser, url, **_window(options)), path, text, role, folder / name)


def _happens() -> list[dict[str, Any]]:
    """Events of this moment."""
    made = event(201, "parameter_set_by", parameter="strategy", value="max_min", by="carol")
    return [{**made, "time_s": time.time()}]


def _window(options: Mapping[str, Any]) -> dict[str, Any]:
    size = {"width": WIDTH, "height": HEIGHT}
    return {"viewport": size, "color_scheme": "light", "reduced_motion": "reduce", **options}


def _shoot(visit: Visit, path: str, text: str, role: str | None, file: Path) -> None:
    with visit:
        if role is not None:
            visit.log_in(role)
        page = visit.go(path)
        if text:
            page.get_by_text(text).last.wait_for()
        page.evaluate("document.fonts.ready")
        page.wait_for_timeout(1500)  # Charts are drawn bit by bit.
        page.screenshot(path=file.with_suffix(".png"))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER, sys.argv[2:]))
