# SPDX-License-Identifier: Apache-2.0
"""How fast the first page is, and what it takes: `python -m tests.sandbox.gui_figures [HOSTS]`.

It prints JSON: times in milliseconds from the beginning of the navigation, sizes in bytes. The
browser is new for each run, so nothing is in its cache; `again` is the same page once more.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page

from tests.unit.web_state import cluster_state

from .browser import FakeController, Visit, browsing, serving
from .gui_answers import ANSWERS

__all__ = ["GBIT", "figures", "switched_state"]

GBIT = 10**9
HOSTS_PER_LEAF = 32
RUNS = 3
LIVE_S = 10.0

_TIMES = """
() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const files = performance.getEntriesByType("resource");
  const page = performance.getEntriesByType("navigation")[0];
  return {
    first_paint_ms: Math.round(paint?.startTime ?? -1),
    shown_ms: Math.round(window.shown_ms ?? -1),
    requests: files.length + 1,
    transferred_bytes: files.reduce((sum, file) => sum + file.transferSize, page.transferSize),
    page_bytes: page.decodedBodySize,
  };
}
"""

# Notes when the picture and the table are there.
_WATCH = """
(() => {
  const look = () => {
    if (document.querySelector("svg.net .row") && document.querySelector("table.hosts td"))
      window.shown_ms = performance.now();
    else requestAnimationFrame(look);
  };
  look();
})();
"""


def switched_state(hosts: int, per_leaf: int = HOSTS_PER_LEAF) -> dict[str, Any]:
    """A state of many hosts at leaf switches, each with a cable to each of four spines."""
    state: dict[str, Any] = cluster_state(hosts, 2, jobs=20, events=200)
    for number, host in enumerate(state["hosts"].values()):
        for net, nic in enumerate(host["nics"].values()):
            nic["switch"] = f"leaf{net}-{number // per_leaf}"
    leaves = -(-hosts // per_leaf)
    for net, network in enumerate(state["networks"].values()):
        names = [f"leaf{net}-{leaf}" for leaf in range(leaves)]
        spines = [f"spine{net}-{spine}" for spine in range(4)]
        network["switches"] = names + spines
        state["switches"] |= {name: {"network": f"n{net}"} for name in names + spines}
        state["cables"] |= {
            f"{leaf}/{spine}-{spine}/{leaf}": {
                "ends": [leaf, spine],
                "vlans": [1],
                "ports": [spine, leaf],
                "rate_bps": 10 * GBIT,
                "alive": True,
            }
            for leaf in names
            for spine in spines
        }
    return state


def figures(hosts: int, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Measure the first page with so many hosts, RUNS times."""
    runs, again, live = [], [], {}
    with (
        tempfile.TemporaryDirectory() as folder,
        FakeController(Path(folder), switched_state(hosts), ANSWERS) as controller,
        serving(controller.socket, Path(folder) / "web.log") as url,
    ):
        for number in range(RUNS):
            say(f"run {number + 1} of {RUNS}")
            with browsing() as browser, Visit(browser, url) as visit:
                visit.page.add_init_script(_WATCH)
                runs.append(_visit(visit))
                again.append(_visit(visit))
                if number == RUNS - 1:
                    live = _live(visit, controller)
    return {
        "hosts": hosts,
        "first": _middle(runs),
        "again": _middle(again),
        "live": live,
    }


def _visit(visit: Visit) -> dict[str, Any]:
    page = visit.go("/")
    page.wait_for_function("window.shown_ms")
    return {**page.evaluate(_TIMES), **_memory(page)}


def _memory(page: Page) -> dict[str, int]:
    """The heap of JavaScript, and the number of nodes, after all garbage is gone."""
    cdp: CDPSession = page.context.new_cdp_session(page)
    cdp.send("HeapProfiler.collectGarbage")
    heap = cdp.send("Runtime.getHeapUsage")
    cdp.send("Performance.enable")
    counted = {
        each["name"]: each["value"] for each in cdp.send("Performance.getMetrics")["metrics"]
    }
    cdp.detach()
    return {
        "renderer_private_bytes": _private_bytes(page),
        "js_heap_bytes": round(heap["usedSize"]),
        "js_heap_and_buffers_bytes": round(
            heap["usedSize"]
            + heap.get("embedderHeapUsedSize", 0)
            + heap.get("backingStorageSize", 0)
        ),
        "dom_nodes": round(counted["Nodes"]),
    }


def _private_bytes(page: Page) -> int:
    """What the process that shows the page has for itself alone, the browser's code included."""
    browser = page.context.browser
    assert browser is not None
    cdp = browser.new_browser_cdp_session()
    processes = cdp.send("SystemInfo.getProcessInfo")["processInfo"]
    cdp.detach()
    sizes = []
    for process in processes:
        if process["type"] == "renderer":
            text = Path(f"/proc/{process['id']}/smaps_rollup").read_text(encoding="ascii")
            lines = (line.split() for line in text.splitlines() if line.startswith("Private_"))
            sizes.append(1024 * sum(int(line[1]) for line in lines))
    return max(sizes)


def _live(visit: Visit, controller: FakeController) -> dict[str, Any]:
    """What LIVE_S of changing rates cost the browser, and how soon a dead link is red."""
    page = visit.page
    received: list[int] = []
    cdp = page.context.new_cdp_session(page)
    cdp.send("Network.enable")
    cdp.on(
        "Network.webSocketFrameReceived",
        lambda event: received.append(len(event["response"]["payloadData"])),
    )
    visit.go("/")
    page.wait_for_function("window.shown_ms")
    received.clear()
    before = _memory(page)
    random_rates = random.Random(1)
    done = threading.Event()

    def change() -> None:
        while not done.wait(0.5):
            rates = {
                name: {nic: [random_rates.randrange(GBIT), 0] for nic in host["nics"]}
                for name, host in controller.state["hosts"].items()
            }
            controller.change({"rates": rates})

    thread = threading.Thread(target=change)
    thread.start()
    try:
        page.wait_for_timeout(LIVE_S * 1000)
        seconds = []
        for name in list(controller.state["hosts"])[:5]:
            host = controller.state["hosts"][name]
            nics = {**host["nics"], "eth0": {**host["nics"]["eth0"], "up": False}}
            began_s = time.monotonic()
            controller.change({"hosts": {name: {**host, "nics": nics}}})
            page.wait_for_selector("[id^=net-l].some-dead, [id^=net-l].dead", state="attached")
            seconds.append(time.monotonic() - began_s)
            controller.change({"hosts": {name: host}})
            page.wait_for_selector("[id^=net-l].some-dead, [id^=net-l].dead", state="detached")
    finally:
        done.set()
        thread.join()
    after = _memory(page)
    return {
        "received_bytes_each_s": round(sum(received) / (LIVE_S + sum(seconds) * 2)),
        "js_heap_growth_bytes": after["js_heap_bytes"] - before["js_heap_bytes"],
        "red_after_s": {
            "middle": round(statistics.median(seconds), 2),
            "worst": round(max(seconds), 2),
        },
    }


def _middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: round(statistics.median(run[key] for run in runs)) for key in runs[0]}


if __name__ == "__main__":
    result = figures(
        int(sys.argv[1]) if len(sys.argv) > 1 else 1000,
        lambda text: print(text, file=sys.stderr),
    )
    print(json.dumps(result, indent=2))
