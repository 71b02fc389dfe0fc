# SPDX-License-Identifier: Apache-2.0
"""Runs in the controller that `ri2n bench cycle` measures.

Its rounds are written down, and one changes all tables on demand.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from ri2n_sdn.apps.telemetry import Round, TelemetryApp, Watcher
from ri2n_sdn.fabric.model import PairKey
from ri2n_sdn.weights.loop import PairDecision

__all__ = ["watch"]


class _Rounds(Watcher):
    def __init__(self, rounds: Path, turn: Path) -> None:
        self._rounds, self._turn = rounds.open("a", buffering=1), turn

    def decided(self, choices: dict[PairKey, PairDecision]) -> dict[PairKey, PairDecision]:
        if not self._turn.exists():
            return choices
        self._turn.unlink()
        return {
            pair: replace(choice, slots=choice.slots[1:] + choice.slots[:1])
            for pair, choice in choices.items()
        }

    def ended(self, measured: Round) -> None:
        self._rounds.write(json.dumps(asdict(measured)) + "\n")


def watch(rounds: str, turn: str) -> None:
    """Write a line for each round into the file `rounds`.

    When there is a file `turn`, it is removed, and the next round turns every active pair's table
    by one slot, as if all weights had changed.
    """
    TelemetryApp.watcher = _Rounds(Path(rounds), Path(turn))
