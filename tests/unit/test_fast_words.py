# SPDX-License-Identifier: Apache-2.0
"""What people are told of fast paths: in tables, in the details of a host, and in a line."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from ri2n_sdn.cli.views import status_view
from ri2n_sdn.contract.choices import FAST_FILTERS, FAST_PEERS, FAST_STATES, FastState
from ri2n_sdn.contract.documents import Fast
from ri2n_sdn.contract.fast_words import fast_text, fast_word
from ri2n_sdn.web.gui.hosts_table import details
from tests.unit.web_state import NOW_S, cluster_state


def fast(state: FastState = "in_force", **more: Any) -> Fast:
    whole: Any = {"state": state, "filter": "in_force", "peers": {}, "dropped": 0, **more}
    made: Fast = whole
    return made


def test_each_state_has_a_word_and_a_line_of_its_own() -> None:
    for said in (fast_word, fast_text):
        assert len({said(fast(state)) for state in FAST_STATES}) == len(FAST_STATES)


def test_peers_are_counted_by_how_they_are_reached_and_none_are_left_out() -> None:
    line = fast_text(fast(peers={peer: count for count, peer in enumerate(FAST_PEERS, 11)}))
    assert all(f"{count} " in line for count in range(11, 11 + len(FAST_PEERS)))
    assert "12" not in fast_text(fast(peers={"carried": 11}))
    assert fast_text(fast()) != fast_text(fast(peers={"carried": 11}))


def test_what_is_not_well_stands_in_the_line() -> None:
    lines = {fast_text(fast(filter=each)) for each in FAST_FILTERS}
    assert len(lines) == 2, "only a filter that is missing is said"
    assert "77 frames" in fast_text(fast(dropped=77))


@pytest.mark.parametrize("state", FAST_STATES)
def test_status_has_the_word_beside_the_host(state: FastState) -> None:
    shown = cluster_state(hosts=3)
    names = sorted(shown["hosts"])
    shown["hosts"][names[1]]["fast"] = fast(state)
    answer: Any = {
        **{"state": shown, "pairs": [], "uptime_s": 1.0, "jobs": {}, "sampled_s": NOW_S},
    }
    out = io.StringIO()
    Console(file=out, width=200).print(status_view(answer, NOW_S))
    (line,) = (line for line in out.getvalue().splitlines() if f" {names[1]} (" in line)
    assert f"({fast_word(fast(state))})" in line
    assert f"{names[2]} (" not in out.getvalue()


def test_details_of_a_host_have_the_line() -> None:
    shown = cluster_state(hosts=3)
    names = sorted(shown["hosts"])
    found = fast(peers={"carried": 2}, dropped=3)
    shown["hosts"][names[1]]["fast"] = found
    assert fast_text(found) in str(details(shown, names[1]))
    assert fast_text(found) not in str(details(shown, names[2]))
