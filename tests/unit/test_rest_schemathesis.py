# SPDX-License-Identifier: Apache-2.0
"""Schemathesis, for moments: a few requests to each operation, right and wrong ones.

`tests/sandbox/test_rest_schemathesis.py` asks a real process for minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode

from tests.unit.rest_controller import RealFeed, controller
from tests.unit.web_app import bearer, made_app

EXAMPLES = 2
NAMES = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance"),
)


@pytest.fixture(scope="module")
def feed() -> Iterator[RealFeed]:
    with controller() as made:
        yield made


def may_be_wrong(operation: Any) -> bool:
    """Whether a request can have a wrong form: any text is a right part of a path.

    Schemathesis would look for a wrong one until it gives up, for a third of this test's time.
    """
    texts = (
        each.location.name == "PATH"
        and {**each.definition["schema"], "title": ""} == {"type": "string", "title": ""}
        for each in operation.iter_parameters()
    )
    return bool(list(operation.body)) or not all(texts)


def test_each_operation_answers_what_is_documented(feed: RealFeed) -> None:
    app = made_app(feed, requests_per_s=1e6, host_names=("testserver",))
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)
    checks = [CHECKS.get_one(name) for name in NAMES]
    tried, asked = set(), Counter[GenerationMode]()
    results: list[Any] = list(schema.get_all_operations())
    for operation in [result.ok() for result in results]:
        if operation.path.endswith("stream"):
            continue  # test_rest_streams.py has them; the long test asks for them, too
        modes = [GenerationMode.POSITIVE]
        if may_be_wrong(operation):
            modes.append(GenerationMode.NEGATIVE)
        for mode in modes:

            @hypothesis.settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                case.call_and_validate(headers=bearer("admin"), checks=checks)
                tried.add(case.operation.label)

            try:
                ask()
                asked[mode] += 1
            except hypothesis.errors.Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE, operation.label  # none was found
    assert len(tried) > 55 and asked[GenerationMode.NEGATIVE] > 40, asked
