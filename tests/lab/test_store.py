# SPDX-License-Identifier: Apache-2.0
"""A lab's controller has a memory of its own, which is removed with the lab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from tests.lab.conftest import kill_controller
from tests.lab.packets import flawless

LabOf = Callable[..., Lab]


def servers(folder: Path) -> list[int]:
    """The processes whose command names a database in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"{folder}/ri2n.db".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_controller_remembers_its_lab_until_the_lab_is_removed(
    lab_of: LabOf, wait_until: Callable[..., None]
) -> None:
    lab = lab_of("fig4/b")
    folder = lab.run_dir / ".memory"
    undeclared = lab.run_dir / "empty.yaml"  # so that only the memory says who is missing
    undeclared.write_text("{}")
    lab.start_controller(config=undeclared)
    networks = lab.wait_ready()["networks"]
    assert (folder / "ri2n.db").exists()
    wait_until(
        lambda: b'"Network"' in (folder / "ri2n.db").read_bytes().partition(b"\nOVSDB")[2],
        "the networks are not stored",
    )
    (first,) = servers(folder)
    stream = Stream(lab, "A", "B", seconds=3.0)
    kill_controller(lab)
    wait_until(lambda: servers(folder) != [first], "the store's server outlives its controller")
    lab.start_controller(config=undeclared)
    status = lab.wait_ready()
    flawless(stream.result())
    assert status["networks"] == networks
    assert status["counters"].get("flow_mods", 0) == 0, "a plan without a host deletes rows"
    wait_until(
        lambda: not call(lab.controller_socket, "status")["problems"],
        lambda: str(call(lab.controller_socket, "status")["problems"]),
    )
    lab.down()
    assert not folder.exists() and not servers(folder)
