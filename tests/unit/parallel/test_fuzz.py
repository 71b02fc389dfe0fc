"""A fixed set of fuzzed conversations, greetings and answers; fuzz.py says what a case is and runs more by hand."""

from __future__ import annotations

from tests.unit.parallel.fuzz import run_cases

CASES = 600
SEED = 20_240_601


def test_fuzzed_peers() -> None:
    outcomes = run_cases(iter(range(SEED, SEED + CASES)))
    assert outcomes.total() == CASES
    kinds = {outcome.partition(":")[0] for outcome in outcomes}
    assert kinds == {"server", "client", "early", "greeting", "answer"}
    for wanted in ("server: all well", "client: all well", "server: waits for more", "greeting: status 0"):
        assert outcomes[wanted], f"no case has ended with: {wanted}; {outcomes}"
    assert len(outcomes) > 20, outcomes
