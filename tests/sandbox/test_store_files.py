# SPDX-License-Identifier: Apache-2.0
"""The file of the store: older schemas are upgraded, and damage is found before it does harm."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.jobs.model import Job, Policy
from ri2n_sdn.store.files import check_file, prepare_file, schema_version
from ri2n_sdn.store.link import SCHEMA
from ri2n_sdn.store.rows import HostRow, JobRow, Put, TokenRow
from ri2n_sdn.store.server import OwnServer
from ri2n_sdn.store.store import Store
from tests.waiting import LONG_S

SCHEMAS = sorted((Path(__file__).parent / "store_schemas").glob("*.ovsschema"))
ROWS = [
    {"op": "insert", "table": "Host", "row": {"name": "A", "datapath_id": "1", "mac": "m"}},
    {
        "op": "insert",
        "table": "Job",
        "row": {
            **{"id": "j1", "user": "alice", "uid": 7, "kind": "paths"},
            "hosts": ["map", [[0, "A"]]],
        },
    },
    {"op": "insert", "table": "Cluster", "row": {"epoch": 12, "active": "old"}},
]


def make(path: Path, schema: Path) -> None:
    """A database with ROWS, in several records."""
    subprocess.run(["ovsdb-tool", "create", str(path), str(schema)], check=True)
    for row in ROWS:
        argv = ["ovsdb-tool", "transact", str(path), json.dumps(["ri2n", row])]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def read(folder: Path) -> tuple[dict[str, HostRow], dict[str, JobRow], int]:
    """The hosts and jobs that a store has in a folder, and the epoch after it was opened."""
    server = OwnServer(folder)
    server.start()
    store = Store([server.target], name="new")
    try:
        assert store.wait_active(LONG_S)
        store.write(Put(HostRow("B", "2", "n")), Put(TokenRow("t1", 64 * "a", "viewer")))
        assert store.state().tokens["t1"].hash == 64 * "a", "a table that is new"
        return dict(store.state().hosts), dict(store.state().jobs), store.epoch
    finally:
        store.close()
        server.stop()


def test_the_present_schema_is_among_those_that_are_kept() -> None:
    """A schema that has been released never changes; another one has another version."""
    kept = {path.stem: json.loads(path.read_text()) for path in SCHEMAS}
    assert len(kept) > 1
    assert kept[schema_version()] == json.loads(SCHEMA.read_text())
    assert {version: schema["version"] for version, schema in kept.items()} == {
        version: version for version in kept
    }


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.stem)
def test_a_database_of_every_schema_is_read(schema: Path, tmp_path: Path) -> None:
    make(tmp_path / "ri2n.db", schema)
    before = (tmp_path / "ri2n.db").read_bytes()
    hosts, jobs, epoch = read(tmp_path)
    assert hosts["A"] == HostRow("A", "1", "m") and set(hosts) == {"A", "B"}
    job = Job("j1", "alice", 7, ("A",), Policy("paths"), 0.0, source="")  # type: ignore[arg-type]
    assert jobs == {"j1": JobRow(job)}
    assert epoch > 12
    backups = [path for path in tmp_path.iterdir() if path.name == f"ri2n.db.{schema.stem}"]
    assert [path.read_bytes() for path in backups] == (
        [] if schema.stem == schema_version() else [before]
    )
    assert not list(tmp_path.glob("*.new"))


def test_a_killed_upgrade_is_made_again(tmp_path: Path) -> None:
    """What it may leave are a backup and a part of the new file."""
    old = next(path for path in SCHEMAS if path.stem != schema_version())
    make(tmp_path / "ri2n.db", old)
    (tmp_path / f"ri2n.db.{old.stem}").write_text("a part")
    (tmp_path / "ri2n.db.new").write_text("a part")
    before = (tmp_path / "ri2n.db").read_bytes()
    assert "A" in read(tmp_path)[0]
    assert (tmp_path / f"ri2n.db.{old.stem}").read_bytes() == before


def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    later = json.loads(SCHEMA.read_text())
    later["version"] = "99.0.0"
    later["tables"]["Host"]["columns"]["more"] = {"type": "string"}
    (tmp_path / "later").write_text(json.dumps(later))
    path = tmp_path / "ri2n.db"
    make(path, tmp_path / "later")
    before = path.read_bytes()
    with pytest.raises(BadInput, match=r"a later version .* \(schema 99\.0\.0, this one knows"):
        prepare_file(path)
    assert path.read_bytes() == before and not list(tmp_path.glob("ri2n.db?*"))


def test_another_database_is_refused(tmp_path: Path) -> None:
    schema = {"name": "other", "version": "1.0.0", "tables": {}}
    (tmp_path / "other").write_text(json.dumps(schema))
    path = tmp_path / "ri2n.db"
    subprocess.run(["ovsdb-tool", "create", str(path), str(tmp_path / "other")], check=True)
    with pytest.raises(BadInput, match=r"ri2n\.db: is not a database of this program"):
        prepare_file(path)


def test_damage_anywhere_is_found_and_an_unfinished_record_is_none(tmp_path: Path) -> None:
    """Each cut and each flipped byte: only cuts within the last record are no damage."""
    path = tmp_path / "ri2n.db"
    make(path, SCHEMA)
    whole = path.read_bytes()
    last = whole.rindex(b"\nOVSDB JSON ") + 1
    first_end = whole.index(b"\nOVSDB JSON ") + 1
    assert len(whole) - last < len(whole) - first_end
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    for cut in (last, last + 5, last + 40, last + 60, last + 70, len(whole) - 1):
        for tail in (b"", bytes(50)):
            path.write_bytes(whole[:cut] + tail)
            check_file(path)
            prepare_file(path)
            assert path.read_bytes() == whole[:cut] + tail, "nothing is cut off by us"
    for cut in (0, 1, 30, 1000):
        path.write_bytes(whole[: cut or 1])
        with pytest.raises(BadInput, match="is damaged at byte 0: put a backup in its place"):
            prepare_file(path)
    anywhere = [(chosen.randrange(len(whole)), chosen.randrange(8)) for _ in range(300)]
    header = [(place, bit) for place in range(last, whole.index(b"\n", last)) for bit in range(8)]
    for place, bit in anywhere + header:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="is damaged at byte"):
            prepare_file(path)
        assert path.read_bytes() == damaged, "a damaged file stays as it is"


def test_a_store_with_an_unfinished_record_goes_on(tmp_path: Path) -> None:
    make(tmp_path / "ri2n.db", SCHEMA)
    with (tmp_path / "ri2n.db").open("ab") as file:
        file.write(b"OVSDB JSON 500 0123456789012345678901234567890123456789\n{half")
    assert set(read(tmp_path)[0]) == {"A", "B"}
    assert set(read(tmp_path)[0]) == {"A", "B"}


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("thesis")
    with pytest.raises(NotAvailable, match="file: File exists"):
        OwnServer(tmp_path / "file").start()
    with pytest.raises(NotAvailable, match="file/state: Not a directory"):
        OwnServer(tmp_path / "file" / "state").start()
    assert (tmp_path / "file").read_text() == "thesis"


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if "ovsdb" in name else real(name))
    with pytest.raises(NotAvailable, match="ovsdb-server is missing: apt install openvswitch"):
        OwnServer(tmp_path / "state").start()
    assert not (tmp_path / "state").exists()
