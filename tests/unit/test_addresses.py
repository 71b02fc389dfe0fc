# SPDX-License-Identifier: Apache-2.0
"""Addresses of the control network: which count as one, and IPv4 in its usual notation."""

from __future__ import annotations

import pytest

from ri2n_sdn.addresses import crowd_of, plain_address


@pytest.mark.parametrize(
    ("address", "crowd"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_what_counts_as_one_address(address: str, crowd: str) -> None:
    assert crowd_of(address) == crowd


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_who_listens_on_both_families_sees_ipv4_in_its_own_notation(
    address: str, plain: str
) -> None:
    assert plain_address(address) == plain
