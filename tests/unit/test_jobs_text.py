# SPDX-License-Identifier: Apache-2.0
"""What people write: rates, times, services, tables, names; and how it is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.contract.limits import MAX_RATE_BPS, MAX_TIME_S
from ri2n_sdn.contract.names import host_name, job_id, path_name, user_name
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.units import exact_rate, parse_duration, parse_rate, parse_time, time_text
from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.model import PathTable, Service
from ri2n_sdn.jobs.text import (
    parse_dscp_table,
    parse_hosts,
    parse_paths,
    parse_service,
    service_text,
)

NOW = 1795687200.0  # 2026-11-26T10:00:00Z


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("400M", 400_000_000),
        ("2.5G", 2_500_000_000),
        ("64k", 64_000),
        ("9600", 9600),
        ("1Gbit/s", 10**9),
        ("0.001k", 1),
    ],
)
def test_rates(text: str, rate_bps: int) -> None:
    assert parse_rate(text) == rate_bps


@given(st.integers(1, MAX_RATE_BPS))
def test_a_rate_that_is_shown_is_read_back(rate_bps: int) -> None:
    assert parse_rate(exact_rate(rate_bps)) == rate_bps


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-27T10:00", NOW + 86400),
        ("2026-11-27 10:00:30Z", NOW + 86430),
        ("2026-11-27", NOW + 50400),
        ("2026-11-27T10:00+01:00", NOW + 82800),
        ("2026-11-27T10:00-00:30", NOW + 88200),
        ("2028-02-29", 1835395200.0),
        ("+2h", NOW + 7200),
        ("+90", NOW + 90),
        ("+15m", NOW + 900),
        ("+3d", NOW + 259200),
        ("now", NOW),
        ("1790000000", 1790000000.0),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text, NOW) == seconds


@given(st.integers(0, int(MAX_TIME_S)))
def test_a_time_that_is_shown_is_read_back(seconds: int) -> None:
    assert parse_time(time_text(seconds), NOW) == seconds


def test_a_part_of_a_second_is_shown_as_a_whole_one() -> None:
    assert time_text(NOW - 0.5) == "2026-11-26T10:00:00Z"
    assert time_text(None) == "its end"
    assert time_text(1e300) == "9999-12-31T23:59:59Z"


@pytest.mark.parametrize(
    ("text", "service"),
    [
        ("10.0.0.9/tcp/2049", Service("10.0.0.9", "tcp", 2049)),
        ("[fd77::9]/tcp/2049", Service("fd77::9", "tcp", 2049)),
        ("FD77:0:0:0::9/udp/53", Service("fd77::9", "udp", 53)),
    ],
)
def test_services(text: str, service: Service) -> None:
    assert parse_service(text) == service
    assert parse_service(service_text(service)) == service


def test_tables_and_lists_of_names() -> None:
    assert parse_dscp_table("10=net2,net3/12") == PathTable(10, ("net2", "net3/12"))
    assert parse_paths("net1, vlan:12,A:eth1,n1.cluster:p2p1") == (
        "net1",
        "vlan:12",
        "A:eth1",
        "n1.cluster:p2p1",
    )
    assert parse_hosts("n1,n2") == ("n1", "n2")


@pytest.mark.parametrize(
    ("parse", "bad"),
    [
        (
            parse_rate,
            [
                *("", "M", "-1", "0", "400 M", "400m", "1e9", "1.5", "0.0001k", "1T", "٤M", "NaN"),
                "9" * 16 + "G",
                "1" * 99,
            ],
        ),
        (parse_duration, ["", "0", "2w", "-2h", "1.5h", "h", "2h30m", "9" * 13, "+", "²"]),
        (
            lambda text: parse_time(text, NOW),
            [
                *("", "tomorrow", "2026-11-31", "2026-02-29", "2026-13-01", "2026-11-27T25:00"),
                *("2026-11-27T10:60", "2026-11-27T10:00+15:00", "10:00", "26-11-27", "+", "+0"),
                *("2026-11-27T10:00CET", "-1", "1e9", "1960-01-01", "0000-01-01", "9" * 14),
                "+999999999999d",
                "٢026-11-27",
            ],
        ),
        (
            parse_service,
            [
                *("", "10.0.0.9", "10.0.0.9/tcp", "10.0.0.9/icmp/1", "10.0.0.9/tcp/0"),
                *("10.0.0.9/tcp/65536", "10.0.0.9/tcp/-1", "10.0.0/tcp/1", "host/tcp/1"),
                *("[10.0.0.9]/tcp/1", "fe80::1%eth0/tcp/1", "0.0.0.0/tcp/1", "224.0.0.1/udp/1"),
                *("::/tcp/1", "10.0.0.9/tcp/1/2", "10.0.0.9/tcp/ 1", "10.0.0.9/TCP/1", "//"),
            ],
        ),
        (
            parse_dscp_table,
            ["", "net2", "=net2", "10=", "64=net2", "-1=net2", "1e1=net2", "10=a,a", "010=net2"],
        ),
        (
            parse_paths,
            [
                *(
                    "",
                    "a,",
                    ",a",
                    "a b",
                    "net1/",
                    "net1/x",
                    "net1/٤",
                    "net1/4095",
                    "vlan:",
                    "vlan:99999",
                ),
                *("a:b:c", "a/1/2", "-a", "a\n", "net1,net1", "a/1:b", "x" * 64, "é"),
            ],
        ),
        (parse_hosts, ["", "a,", "a,a", "-a", "a b", "a/b", "a\n"]),
        (job_id, ["", "-a", "a b", "a\n", "a@b", "x" * 65, "é", "a/b", "."]),
        (user_name, ["", "a b", "a\n", "-a", "a:b", "x" * 66, "é"]),
        (host_name, ["", "a b", "a:b", "x" * 64]),
        (path_name, ["", "a,b"]),
    ],
)
def test_what_is_wrong_is_one_line(parse: Callable[[str], object], bad: list[str]) -> None:
    for text in bad:
        with pytest.raises(BadInput) as caught:
            parse(text)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 250, text


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    parsers: list[Callable[[str], object]] = [
        *(parse_rate, parse_duration, parse_service, parse_dscp_table, parse_paths, parse_hosts),
        *(job_id, user_name, host_name, path_name, lambda text: parse_time(text, NOW)),
    ]
    for parse in parsers:
        try:
            parse(text)
        except BadInput as error:
            assert str(error).isprintable() and len(str(error)) < 250


@given(st.text())
def test_what_others_wrote_is_shown_safely(text: str) -> None:
    assert shown(text).isascii() and shown(text).isprintable() and len(shown(text)) <= 64


def test_names_that_sites_use() -> None:
    for name in ("slurm-14", "slurm-14.batch", "k8s:ns_pod-0", "0"):
        assert job_id(name) == name
    for name in ("alice", "DOM\\alice", "alice@site.org", "svc$", "20001", "_apt"):
        assert user_name(name) == name
