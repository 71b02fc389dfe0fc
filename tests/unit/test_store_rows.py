# SPDX-License-Identifier: Apache-2.0
"""Rows of the store as columns and back, and what is said about wrong ones."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.history import Record
from ri2n_sdn.jobs.model import Job, PathTable, Policy, Reservation, Service
from ri2n_sdn.jobs.moves import Move
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.store.link import SCHEMA, check_targets, encode
from ri2n_sdn.store.rows import (
    HostRow,
    JobRow,
    LanesRow,
    LinksRow,
    NetworkRow,
    PolicyRow,
    Put,
    Remove,
    Row,
    State,
    TokenRow,
)
from ri2n_sdn.store.tables import TABLES, table_of, to_columns

names = st.text("abcXYZ019.:/_-", min_size=1, max_size=12)
rates = st.none() | st.integers(0, 10**12)
policies = st.builds(
    Policy,
    st.sampled_from(["shared", "paths", "exclusive", "isolated"]),
    st.dictionaries(st.none() | st.integers(0, 63), st.lists(names, max_size=3).map(tuple)).map(
        lambda tables: tuple(
            PathTable(dscp, tables[dscp])
            for dscp in sorted(tables, key=lambda dscp: -1 if dscp is None else dscp)
        )
    ),
    st.lists(
        st.builds(
            Service,
            st.sampled_from(["10.0.0.9", "fe80::1"]),
            st.sampled_from(["tcp", "udp"]),
            st.integers(1, 65535),
        ),
        max_size=3,
    ).map(tuple),
    rates,
    rates,
)
times = st.floats(0, 4e9, allow_nan=False)
hosts = st.lists(names, max_size=5).map(tuple)
by_port = st.dictionaries(st.integers(1, 1023), names, max_size=4)
job = (names, names, st.integers(0, 2**31), hosts, policies)
rows = st.one_of(
    st.builds(
        HostRow,
        *(names, names, names, by_port, by_port, st.none() | times),
        st.dictionaries(st.integers(1, 1023), st.integers(0, 2**40), max_size=4),
        by_port,
        st.booleans(),
        names,
    ),
    st.builds(NetworkRow, names, st.frozensets(names)),
    st.builds(LanesRow, names, st.frozensets(names)),
    st.builds(LinksRow, names, names, st.dictionaries(names, st.integers(0, 63))),
    st.builds(
        JobRow,
        st.builds(Job, *job[:5], times, st.none() | times, names),
        names,
        names,
    ),
    st.builds(Move, names, st.integers(0, 2**31), policies, names, times),
    st.builds(Reservation, names, names, hosts, times, times, rates, policies),
    st.builds(PolicyRow, names, policies),
    st.builds(Right, names, st.frozensets(names), rates, rates, st.booleans()),
    st.builds(
        TokenRow,
        names,
        names,
        st.sampled_from(["viewer", "user", "admin"]),
        st.none() | names,
        times,
        st.none() | times,
    ),
    st.builds(Record, *job, times, times, names),
)


@given(rows)
def test_a_row_is_the_same_after_columns(row: Row) -> None:
    table = table_of(row)
    columns = to_columns(row)
    # The IDL gives sets as lists, in another order.
    there = {
        name: sorted(value, reverse=True) if isinstance(value, list) else value
        for name, value in columns.items()
    }
    assert table.from_columns(there) == row
    assert encode(Put(row)).columns is not None


def test_every_field_is_a_column_of_the_schema() -> None:
    schema = json.loads(SCHEMA.read_text())["tables"]
    assert {table.name for table in TABLES} == schema.keys() - {"Connection"}
    for table in TABLES:
        own = {"connections"} if table.name == "Cluster" else set()
        assert set(table.columns) == schema[table.name]["columns"].keys() - own
        parts = {"job": Job, "policy": Policy}
        named = {each.name for each in fields(table.row)}
        for part in parts:
            if part in named:
                named |= {each.name for each in fields(parts[part])}
        assert named - parts.keys() - {"within"} == set(table.columns)
        if table.key and table.name != "History":
            assert schema[table.name]["indexes"] == [list(table.key)]
    assert {each.name for each in fields(State)} - {"cluster", "identity"} == {
        *("hosts", "networks", "links", "jobs", "moves", "lanes"),
        *("reservations", "policies", "rights", "history", "tokens"),
    }


JOB = JobRow(Job("j1", "alice", 20001, ("n1",), Policy(), 0.0))


def job_with(**changed: Any) -> JobRow:
    return JobRow(replace(JOB.job, **changed))


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (job_with(uid="alice"), "uid"),
        (job_with(policy=Policy("mine")), "kind"),  # type: ignore[arg-type]
        (job_with(hosts=("n1", 2)), "hosts"),
        (job_with(policy=Policy(tables=(PathTable(64, ()),))), "tables"),
        (job_with(policy=Policy(min_rate_bps=-1)), "min_rate_bps"),
        (HostRow("A", "0", "m", {0.5: "x"}), "nic_names"),  # type: ignore[dict-item]
    ],
)
def test_a_wrong_value_is_named(row: Row, column: str) -> None:
    with pytest.raises(BadInput, match=f"{table_of(row).name}: {column}: .* cannot be stored"):
        encode(Put(row))


def test_only_the_key_of_a_row_to_remove_counts() -> None:
    assert encode(Remove(job_with(uid="?"))).key == ("Job", ("j1",))


@pytest.mark.parametrize(
    ("change", "value"),
    [("services", {0: "nonsense"}), ("services", {0: "a/tcp/x"})],
)
def test_nonsense_of_another_program_is_a_value_error(change: str, value: object) -> None:
    table = table_of(JOB)
    with pytest.raises(ValueError, match="a row of Job cannot be read"):
        table.from_columns({**to_columns(JOB), change: value})


def test_targets() -> None:
    text = "unix:/run/a.sock,tcp:10.0.0.1:6642,ssl:[fe80::1]:6642,tcp:store.example:1"
    assert check_targets(text) == tuple(text.split(","))
    for bad in ("", "tcp:a", "tcp:a:0", "tcp:a:65536", "unix:", "unix:x", "http:a:1", "tcp:a:1,"):
        with pytest.raises(BadInput, match="--store: "):
            check_targets(bad)
