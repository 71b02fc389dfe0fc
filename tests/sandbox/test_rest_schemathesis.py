# SPDX-License-Identifier: Apache-2.0
"""Schemathesis asks a real web process whatever its OpenAPI document allows, and what it does not.

`RI2N_SCHEMATHESIS_S` says for how many seconds, with each role.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.client import call, web_socket_of
from ri2n_sdn.contract.choices import ROLES
from ri2n_sdn.web.auth import hash_of
from tests.waiting import LONG_S, wait_until

from .web_process import WebProcess, web_process

SECONDS = int(os.environ.get("RI2N_SCHEMATHESIS_S", "300"))
# Its tokens are never asked for by name, since nobody guesses one.
NAMES = {role: f"{role}-of-the-test-{os.getpid()}" for role in ROLES}
ADMIN = {"user": "root", "uid": 0, "role": "admin"}
# What a request of the right form may be refused for is up to the controller, so that is no fault.
EXCLUDED = "positive_data_acceptance"
# A list with too many items may make a body that is too long: 413 refuses it as well.
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A controller with a job, a reservation, a policy and a right."""
    with Sandbox({name: ["n0", "n1"] for name in ("A", "B", "C")}) as made:
        made.start_controller(strategy="max_min")
        made.wait_settled()
        now_s = time.time()
        order: dict[str, Any] = {"user": "nobody", "uid": 65534, "hosts": ["A", "B"]}
        made.ask("job_begin", job={"id": "j1", "policy": "paths", "paths": ["n1"], **order})
        made.ask(
            "reserve_add",
            reservation={
                **{"id": "r1", "user": "nobody", "hosts": ["B", "C"], "rate_bps": 10**7},
                **{"begin_s": now_s + 86_400, "end_s": now_s + 90_000},
            },
        )
        made.ask("policy_add", name="quiet", policy={"policy": "exclusive"})
        made.ask("rights_set", right={"user": "*", "policies": ["shared", "paths", "exclusive"]})
        for role, name in NAMES.items():
            user = {"user": "nobody"} if role == "user" else {}
            made.ask("token_add", name=name, role=role, hash=hash_of(text_of(role)), **user)
        yield made
        assert "Traceback" not in made.log()


@pytest.fixture(scope="module")
def web(sandbox: Sandbox) -> Iterator[WebProcess]:
    with web_process(sandbox.socket, "--requests-per-s", "100000") as made:
        wait_until(lambda: made.get("/api/v1/ready").status == 200, made.log)
        yield made
        assert "Traceback" not in made.log()


def text_of(role: str) -> str:
    return f"{role} " + 43 * "x"


def told(sandbox: Sandbox) -> dict[str, Any]:
    """All that a viewer must not change."""
    return {
        op: call(web_socket_of(sandbox.socket), op, who=ADMIN)
        for op in (
            *("parameters", "token_list", "rights_list", "policy_list", "reserve_list"),
            *("job_history", "vlan_tables"),
        )
    } | {"jobs": sorted(job["id"] for job in sandbox.ask("job_list")["jobs"])}


@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS + 600)
@pytest.mark.parametrize("role", ROLES)
def test_no_request_is_answered_by_a_fault_or_by_what_is_not_documented(
    sandbox: Sandbox, web: WebProcess, role: str, tmp_path: Path
) -> None:
    before = told(sandbox)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    report = tmp_path / "report.json"
    answers = tmp_path / "answers.ndjson"
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
        *("run", f"{web.url}api/v1/openapi.json", "--max-time", str(SECONDS)),
        *("-H", f"Authorization: Bearer {text_of(role)}"),
        *("--phases", "coverage,fuzzing,stateful", "--exclude-checks", EXCLUDED),
        *("--continue-on-failure", "--no-color", "--warnings", "off"),
        *("--generation-database", "none", "--request-timeout", str(LONG_S)),
        *("--report-json-path", str(report), "--report-ndjson-path", str(answers)),
    ]
    hooks = str(Path(__file__).with_name("rest_hooks.py"))
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "rest_hooks",
            "PYTHONPATH": os.pathsep.join([str(Path(hooks).parent), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=2 * SECONDS + 300,
        check=False,
    )
    statuses = statuses_of(answers)
    print(
        f"{role}: {sum(statuses.values())} answers in {SECONDS} s: {dict(sorted(statuses.items()))}"
    )
    print(done.stdout[-600:])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    # It was not refused from the beginning to the end.
    assert statuses[200] and statuses[404] and statuses[422] and not statuses[429], statuses
    assert not [status for status in statuses if status >= 500], statuses
    answer = web.get("/api/v1/me", text_of(role))
    assert answer.status == 200 and answer.json()["role"] == role
    if role == "viewer":
        assert told(sandbox) == before
        assert statuses[403] and not {201, 204} & statuses.keys(), statuses
    else:
        assert {201, 204} & statuses.keys(), statuses


def statuses_of(file: Path) -> Counter[int]:
    """How many answers had which status, from the events of schemathesis."""
    found: Counter[int] = Counter()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("response"), dict) and "status_code" in value["response"]:
                found[int(value["response"]["status_code"])] += 1
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    with file.open() as lines:
        for line in lines:
            walk(json.loads(line))
    return found
