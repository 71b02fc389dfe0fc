# SPDX-License-Identifier: Apache-2.0
"""Recorded matrices and lists of pairs: what is read, what is refused, and the error messages."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.switches import LinkSpec, SwitchSpec, VlanSpec, switch_graph
from ri2n_sdn.vlan.build import build_trees
from ri2n_sdn.vlan.matrix import (
    TrafficMatrix,
    read_matrix,
    read_pairs,
    write_matrix,
)
from ri2n_sdn.vlan.profile import profile_trees
from tests.unit.vlan.networks import key, vbft

HOSTS = ("A", "B", "C")


def file(folder: Path, text: str) -> Path:
    path = folder / "m.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_with_comments(tmp_path: Path) -> None:
    text = "# a run\n# interval_s=2.5\n\nsender,receiver,bytes\nA,B,1000 # much\n B , A ,0\n"
    matrix = read_matrix(file(tmp_path, text), HOSTS)
    assert matrix.pairs == (("A", "B"), ("B", "A"))
    assert matrix.sent_bytes.tolist() == [1000, 0]
    assert matrix.interval_s == 2.5


def test_json_lines(tmp_path: Path) -> None:
    text = (
        '{"sender": "A", "receiver": "C", "bytes": 7}\n\n{"receiver": "A", "sender": "C", '
        '"bytes": 8}\n'
    )
    matrix = read_matrix(file(tmp_path, text), HOSTS)
    assert matrix.pairs == (("A", "C"), ("C", "A"))
    assert matrix.sent_bytes.tolist() == [7, 8]
    assert matrix.interval_s is None


NAMES = st.text("ABCxyz019", min_size=1, max_size=8)
ENTRIES = st.dictionaries(
    st.tuples(NAMES, NAMES).filter(lambda p: p[0] != p[1]), st.integers(0, 2**63 - 1), max_size=9
)


@given(ENTRIES, st.sampled_from([None, 0.25, 2.0, 3600.0]))
def test_what_is_written_reads_the_same(
    entries: dict[tuple[str, str], int], interval_s: float | None
) -> None:
    matrix = TrafficMatrix(
        tuple(entries), np.array(list(entries.values()), dtype=np.int64), interval_s
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.csv"
        write_matrix(path, matrix)
        again = read_matrix(path)
        text = path.read_text(encoding="utf-8")
        write_matrix(path, again)
        assert path.read_text(encoding="utf-8") == text
    assert again.pairs == matrix.pairs
    assert again.sent_bytes.tolist() == matrix.sent_bytes.tolist()
    assert again.interval_s == interval_s


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "m.csv: is empty; the first line must be sender,receiver,bytes"),
        ("# nothing\n", "m.csv: is empty"),
        (
            "from,to,bytes\n",
            "m.csv:1: the first line must be sender,receiver,bytes, is 'from,to,bytes'",
        ),
        ("sender,receiver,bytes\nA,B\n", "m.csv:2: must have 3 columns"),
        (
            "sender,receiver,bytes\nA,B,-1\n",
            "m.csv:2: bytes: must be a whole number from 0 on, is '-1'",
        ),
        ("sender,receiver,bytes\nA,B,1e3\n", "m.csv:2: bytes: must be"),
        (
            "sender,receiver,bytes\nA,B,9999999999999999999999\n",
            "m.csv:2: bytes: must be a whole number from 0 to",
        ),
        ("sender,receiver,bytes\nA,D,1\n", "m.csv:2: receiver: no host 'D'"),
        ("sender,receiver,bytes\n,B,1\n", "m.csv:2: sender: is empty"),
        ("sender,receiver,bytes\nA,A,1\n", "m.csv:2: A is both sender and receiver"),
        ("sender,receiver,bytes\nA,B,1\n\nA,B,2\n", "m.csv:4: pair A B is in line 2 already"),
        (
            "# interval_s=0\nsender,receiver,bytes\n",
            "m.csv:1: interval_s: must be a number above 0, is '0'",
        ),
        (
            "# interval_s=1\n# interval_s=2\nsender,receiver,bytes\n",
            "m.csv:2: interval_s is there twice",
        ),
        ('{"sender": "A"\n', "m.csv:1: is not JSON"),
        ('{"sender": "A", "receiver": "B", "byte": 1}\n', "m.csv:1: byte: unknown key"),
        ('{"sender": "A", "receiver": "B"}\n', "m.csv:1: bytes: is missing"),
        ('{"sender": 1, "receiver": "B", "bytes": 1}\n', "m.csv:1: sender: must be a host's name"),
        (
            '{"sender": "A", "receiver": "B", "bytes": true}\n',
            "m.csv:1: bytes: must be a whole number",
        ),
        (
            '{"sender": "A", "receiver": "B", "bytes": 1}\n[1]\n',
            "m.csv:2: must be an object with the keys",
        ),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_matrix(file(tmp_path, text), HOSTS)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_matrix(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        read_pairs(tmp_path / "bytes.csv")
    with pytest.raises(BadInput, match="No such file"):
        write_matrix(tmp_path / "none" / "m.csv", TrafficMatrix((), np.zeros(0, dtype=np.int64)))


def test_lists_of_pairs(tmp_path: Path) -> None:
    listed = read_pairs(file(tmp_path, "# CG\nA B\nB A 5e6  # slow\n"), HOSTS)
    assert listed.pairs == (("A", "B"), ("B", "A"))
    assert listed.rate_bps.tolist() == [np.inf, 5e6]
    assert not listed.relative
    ratios = read_pairs(file(tmp_path, "sender,receiver,bytes\nA,B,10\n"), HOSTS)
    assert (ratios.rate_bps.tolist(), ratios.relative) == ([80.0], True)
    rates = read_pairs(file(tmp_path, "# interval_s=2\nsender,receiver,bytes\nA,B,10\n"), HOSTS)
    assert (rates.rate_bps.tolist(), rates.relative) == ([40.0], False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "m.csv: has no pairs"),
        ("A\n", "m.csv:1: must be `sender receiver [rate_bps]`, has 1 words"),
        ("A B fast\n", "m.csv:1: rate_bps: must be a number from 0 on, is 'fast'"),
        ("A B nan\n", "m.csv:1: rate_bps: must be"),
        ("A B inf\n", "m.csv:1: rate_bps: must be"),
        ("A B\nA B 1\n", "m.csv:2: pair A B is in line 1 already"),
        ("A X\n", "m.csv:1: receiver: no host 'X'"),
    ],
)
def test_faults_in_lists_of_pairs(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_pairs(file(tmp_path, text), HOSTS)
    assert words in str(caught.value)


def test_profile_separates_the_pairs_that_sent_much() -> None:
    network = vbft(4, 2)
    pairs = tuple(key(a, a + 4) for a in range(4))
    matrix = TrafficMatrix((*pairs, ("h1", "gone")), np.array([900, 100, 10, 1000, 5000]))
    leaf_of = {f"h{host}": leaf for host, leaf in enumerate(network.leaf)}
    numbers = {host: number for number, host in enumerate(leaf_of, start=1)}
    tree = profile_trees(network.trees, matrix, leaf_of, numbers, 2)
    assert tree.keys() == set(pairs)
    assert tree[pairs[0]] == tree[pairs[1]] != tree[pairs[3]]
    assert profile_trees(network.trees, matrix, {}, numbers, 2) == {}


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("other", [2, 3])
def test_a_recorded_pair_goes_by_the_faster_of_two_upper_switches(slow: int, other: int) -> None:
    rates = [10**9 if up == slow else 10**10 for up in (0, 1)]

    def spec(ends: list[tuple[str, int]]) -> SwitchSpec:
        return SwitchSpec(
            links=tuple(
                LinkSpec(to=to, port=n, rate_bps=rate) for n, (to, rate) in enumerate(ends, start=1)
            )
        )

    leaf = spec([("up0", rates[0]), ("up1", rates[1])])
    ups = {f"up{up}": spec([("leaf0", rates[up]), ("leaf1", rates[up])]) for up in (0, 1)}
    trees = build_trees(switch_graph({"leaf0": leaf, "leaf1": leaf, **ups}), [0, 1], VlanSpec())
    matrix = TrafficMatrix((("A", "B"),), np.array([10**6]))
    (tree,) = profile_trees(trees, matrix, {"A": 0, "B": 1}, {"A": 1, "B": other}, 2).values()
    root = int(np.flatnonzero(trees.depth[tree] == 0)[0])
    assert trees.graph.names[root] == f"up{1 - slow}"
