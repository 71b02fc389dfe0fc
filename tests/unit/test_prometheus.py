# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes `/metrics`, and answers each expression of rules and dashboards."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn
from fastapi import FastAPI

from ri2n_lab.cluster.sandbox import reserve_port
from ri2n_sdn.web.auth import Auth
from ri2n_sdn.web.metrics import mount
from tests.unit.metrics_state import full_state
from tests.unit.monitoring_files import DASHBOARDS, RULES, expressions_of_panels, rules
from tests.waiting import LONG_S, wait_until

# A host with a name that the controller would not let in.
HOSTILE = "x\"\\\n\r\0\x1b\ud800\u2028{}=,'#"

CONFIG = """
global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: ri2n
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@contextmanager
def web_process() -> Iterator[int]:
    """Serves /metrics of a state that has something of everything."""
    app = FastAPI()
    now_s = time.time()
    state = full_state()
    state["hosts"][HOSTILE] = state["hosts"]["h3"]
    feed = SimpleNamespace(
        state=state, connected=True, since_s=now_s, heard_s=now_s, counters={"streams": 1}
    )
    auth = SimpleNamespace(who_of_bearer=lambda header, address: None)
    mount(app, cast(Any, feed), cast(Auth, auth))
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started, "the web process does not start")
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(LONG_S)


class Prometheus:
    """Asks a running Prometheus."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **arguments: str) -> Any:
        """The data of an answer. Raises OSError when there is none."""
        query = urllib.parse.urlencode(arguments)
        try:
            with urllib.request.urlopen(f"{self._address}{path}?{query}", timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                raise ConnectionError("it is still starting") from None
            raise AssertionError(f"{arguments}: {error.read().decode()}") from None

    def value(self, expression: str) -> list[Any]:
        """The samples of an expression, now."""
        found: list[Any] = self.ask("/api/v1/query", query=expression)["result"]
        return found


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: run `./dev setup`"
    folder = tmp_path_factory.mktemp("prometheus")
    reserved, port = reserve_port()
    with closing(reserved), web_process() as web_port:
        # Every group is evaluated at once, and not only after up to 30 s.
        fast = RULES.read_text("utf-8").replace("interval: 30s", "interval: 200ms")
        (folder / "rules.yaml").write_text(fast)
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(rules=folder / "rules.yaml", port=web_port))
        log = (folder / "log").open("wb")
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            found = Prometheus(port)
            wait_until(
                lambda: scraped(found, process, folder / "log"),
                lambda: (folder / "log").read_text()[-2000:],
            )
            yield found
        finally:
            process.terminate()
            process.wait(LONG_S)
            log.close()


def scraped(prometheus: Prometheus, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether it has scraped several times, and has evaluated all recording rules."""
    assert process.poll() is None, log.read_text()
    try:
        # A rate needs two scrapes; the rules are evaluated after them.
        counts = prometheus.value("count_over_time(ri2n_up[5m])")
        names = {
            sample["metric"]["__name__"] for sample in prometheus.value('{__name__=~".+:.+:.+"}')
        }
    except OSError:
        return False
    wanted = {rule["record"] for rule in rules() if "record" in rule}
    return bool(counts) and int(counts[0]["value"][1]) >= 3 and wanted <= names


def test_prometheus_takes_the_page_without_a_complaint(prometheus: Prometheus) -> None:
    (target,) = prometheus.ask("/api/v1/targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    kinds = {name: each[0]["type"] for name, each in prometheus.ask("/api/v1/metadata").items()}
    assert kinds["ri2n_nic_transmit_bytes"] == "counter" or (
        kinds["ri2n_nic_transmit_bytes_total"] == "counter"
    )
    assert kinds["ri2n_cycle_duration_seconds"] == "histogram"


def test_a_name_that_a_host_has_chosen_harms_nothing(prometheus: Prometheus) -> None:
    found = {each["metric"]["host"] for each in prometheus.value("ri2n_host_connected")}
    assert {"h1", "h2", "h3", "h4"} < found
    (name,) = found - {"h1", "h2", "h3", "h4"}
    assert name.startswith('x"\\\n') and name.endswith("{}=,'#")


def test_promtool_finds_nothing_to_say_about_the_page() -> None:
    with web_process() as port, urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_each_panel_shows_something(path: Path, prometheus: Prometheus) -> None:
    empty = [
        (title, expression)
        for title, expression in expressions_of_panels(path)
        if not prometheus.value(expression)
    ]
    assert empty == []


def test_each_rule_is_evaluated_and_the_right_alerts_are_pending(prometheus: Prometheus) -> None:
    for rule in rules():
        prometheus.value(rule["expr"])
    groups = prometheus.ask("/api/v1/rules")["groups"]
    found = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert {rule["health"] for rule in found.values()} == {"ok"}
    raised = {name for name, rule in found.items() if rule.get("state", "inactive") != "inactive"}
    assert raised >= {"RI2NNicDead", "RI2NHostAway", "RI2NCableDead", "RI2NJobsWait"}
    assert not raised & {"RI2NWebDown", "RI2NControllerUnreachable", "RI2NHostCutOff"}
