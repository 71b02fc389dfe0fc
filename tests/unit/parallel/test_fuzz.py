# SPDX-License-Identifier: Apache-2.0
"""A fixed set of fuzzed conversations, greetings and answers.

fuzz.py says what a case is and runs more by hand.
"""

from __future__ import annotations

import pytest

from tests.unit.parallel.fuzz import run_cases

SEED = 20_240_601


@pytest.mark.parametrize("cases", [250, pytest.param(3000, marks=pytest.mark.long)])
def test_fuzzed_peers(cases: int) -> None:
    outcomes = run_cases(iter(range(SEED, SEED + cases)))
    assert outcomes.total() == cases
    kinds = {outcome.partition(":")[0] for outcome in outcomes}
    assert kinds == {"server", "client", "early", "greeting", "answer"}
    for wanted in (
        "server: all well",
        "client: all well",
        "server: waits for more",
        "greeting: status 0",
    ):
        assert outcomes[wanted], f"no case has ended with: {wanted}; {outcomes}"
    assert len(outcomes) > 20, outcomes
