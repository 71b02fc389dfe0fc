# SPDX-License-Identifier: Apache-2.0
"""A thousand `kill -9` of `ri2n serve` and `ri2n cp` in turn: files are the old or the new ones.

The moments are random. `RI2N_ATTACK_SEED` chooses other moments, `RI2N_ATTACK_KILLS` another number
of each kill for the long run.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from .copy_commands import cp, good, many_blocks, part_of, same, serve, start
from .worlds import PATIENCE_S

SEED = int(os.environ.get("RI2N_ATTACK_SEED", "20261124"))
KILLS_OF_EACH = [
    3,
    pytest.param(int(os.environ.get("RI2N_ATTACK_KILLS", "1000")), marks=pytest.mark.long),
]
BLOCKS = 16
OLD = b"what was there before"
IN_A_ROW = 3
"""Kills in a row, before a copy may end."""


@pytest.mark.timeout(12 * 3600)
@pytest.mark.parametrize("of_each", KILLS_OF_EACH)
def test_a_file_is_the_old_or_the_new_one_whoever_is_killed(tmp_path: Path, of_each: int) -> None:
    generator, pause = random.Random(SEED), threading.Event()
    killed, kills = {"serve": 0, "cp": 0}, 2 * of_each
    served = tmp_path / "served"
    served.mkdir()
    source, target = many_blocks(tmp_path / "source", BLOCKS), served / "target"
    with serve(served) as server:
        began_s = time.monotonic()
        client = start(source, server.at("target"))
        client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 0
        whole_s = min(time.monotonic() - began_s, 5.0)
    began_s, done, complete = time.monotonic(), 0, 0
    target.write_bytes(OLD)
    while done < kills:
        for _ in range(min(IN_A_ROW, kills - done)):
            with serve(served) as server:
                client = start(source, server.at("target"))
                pause.wait(generator.uniform(0.0, whole_s))  # the moment is what is random
                name, victim = ("cp", client) if done % 2 else ("serve", server.process)
                victim.send_signal(signal.SIGKILL)
                killed[name] += 1
                client.communicate(timeout=PATIENCE_S)
            done += 1
            new = target.stat().st_size != len(OLD)
            assert same(source, target) if new else target.read_bytes() == OLD, (
                f"seed {SEED}: after {done} kills"
            )
            if new:
                complete += 1
                target.write_bytes(OLD)
        with serve(served) as server:
            good(cp("--json", source, server.at("target")))
        assert same(source, target), f"seed {SEED}: after {done} kills"
        assert [path.name for path in served.iterdir()] == ["target"] and not part_of(
            served, "target"
        ).exists()
        target.write_bytes(OLD)
    assert killed == {"serve": of_each, "cp": of_each}
    print(
        f"seed {SEED}: {killed} kills in {time.monotonic() - began_s:.0f} s, {complete} came too "
        "late for the file"
    )
