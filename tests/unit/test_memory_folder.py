# SPDX-License-Identifier: Apache-2.0
"""Where a controller keeps its memory when nobody has said it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ri2n_sdn.apps import memory
from ri2n_sdn.apps.memory import MemoryOptions, open_memory
from ri2n_sdn.errors import NotAvailable


def test_a_service_reaches_its_folder_also_where_host_up_has_closed_the_way_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`DynamicUser=` makes the default folder a link, and host-up keeps /var/lib/ri2n for root."""
    default, private = tmp_path / "lib/ri2n/controller", tmp_path / "lib/private/ri2n/controller"
    monkeypatch.setattr(memory, "DEFAULT_STATE_DIR", default)
    monkeypatch.setattr(memory, "_PRIVATE_STATE_DIR", private)
    used: list[Path] = []

    class Server:
        def __init__(self, folder: Path) -> None:
            used.append(folder)

        def start(self) -> None:
            raise NotAvailable("no server is needed here")

    monkeypatch.setattr(memory, "OwnServer", Server)
    assert open_memory(MemoryOptions(), "x").fault
    private.mkdir(parents=True)
    assert open_memory(MemoryOptions(), "x").fault
    with pytest.raises(NotAvailable):
        open_memory(MemoryOptions(tmp_path), "x")
    assert used == [default, private, tmp_path]
