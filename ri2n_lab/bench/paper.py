# SPDX-License-Identifier: Apache-2.0
"""What the papers measured, beside our rows, on Gigabit Ethernet.

Table 6 and figures 10..13 of the RI2N++ paper, on figure 4's topologies: goodput in MB/s, 112.2
MB/s a link; RI2N+ and RI2N++ are per cent of RI2N's on the same topology. Figures 7 and 8 of the
VFREC-Net paper: shares of Flat. Tables 2 to 4 and section 4.4 of the paper on per-user path
switching: what it costs to choose a user's path.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BORDER_PAPER",
    "PAPER",
    "PAPER_LINK_MBYTE_S",
    "VBFT_PAPER",
    "BorderRow",
    "PaperRow",
    "paper_share",
]

PAPER_LINK_MBYTE_S = 112.2


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's tables: RI2N in MB/s, RI2N+ and RI2N++ in per cent of it.

    The weights are those of link 1 to link 0, as the paper prints them.
    """

    ri2n_mbyte_s: float
    plus_percent: float | None = None
    plus_plus_percent: float | None = None
    weights_plus: str = ""
    weights_plus_plus: str = ""
    links: int = 2


PAPER = {
    "a": PaperRow(112.2, links=1),
    "b": PaperRow(223.1, 100.0, 97.9, "B 1.0", "B 1.0"),
    "c": PaperRow(213.8, 100.0, 100.4, "1.0", "1.0"),
    "d": PaperRow(142.9, 113.2, 133.9, "C 2", "C 5.0"),
    "e": PaperRow(211.2, 99.6, 100.9, "1.0", "1.0"),
    "f": PaperRow(160.6, 113.1, 112.2, "C 1.5, D 1.5", "C 2.2, D 2.2"),
    "g": PaperRow(195.7, 99.7, 101.6, "C 1.0", "C 2.1"),
    "h": PaperRow(120.4, 127.8, 159.9, "C 3", "C 10.6"),
}


def paper_share(topology: str, strategy: str) -> float | None:
    """The paper's total as a share of the optimum.

    None where it has no figure (max_min, other topologies).
    """
    row = PAPER.get(topology)
    percent = (
        {
            "round_robin": 100.0,
            "ri2n_plus": row.plus_percent,
            "ri2n_plus_plus": row.plus_plus_percent,
        }
        if row
        else {}
    ).get(strategy)
    if row is None or percent is None:
        return None
    return row.ri2n_mbyte_s * percent / 100 / (row.links * PAPER_LINK_MBYTE_S)


VBFT_PAPER = {
    # Section 4.1.3: 120 and 240 MB/s, one and two links of Flat's eight; VBFT(4, 4) is "the same as
    # Flat".
    ("bisection", "tree-2"): "0.12",
    ("bisection", "tree-4"): "0.25",
    ("bisection", "vbft-4-4"): "1.0",
    # Section 4.2, of IS, which exchanges by all-to-all: VBFT(4, 4) is 1.85 times Tree (n = 4) and
    # 1.14 times Flat.
    ("alltoall", "tree-4"): "IS 0.62",
    ("alltoall", "vbft-4-4"): "IS 1.14",
}
"""{(pattern, topology): share of Flat}, as far as the VFREC-Net paper's text has figures.

With the cyclic rule.
"""


@dataclass(frozen=True)
class BorderRow:
    """What a way to choose a user's path cost in the paper on per-user path switching.

    `all_flows_mbps` is what all flows through the load balancer get together, whatever their
    number; `npb_times` is how many times as long NPB's programs took as without.
    """

    what: str
    rtt_ms: float
    tcp_mbps: float
    npb_times: str
    all_flows_mbps: float | None = None


BORDER_PAPER = (
    # Tables 2 to 4 and section 4.4. A performance of 97 to 99 % is 1.01 to 1.03 times the time, 90
    # % (IS) is 1.11 and 70 to 80 % are 1.25 to 1.43. The load balancer's programs are compared with
    # a router in its place.
    BorderRow("the paper, no rules", 0.119, 938, "1"),
    BorderRow("the paper, rules in the node, 10 users", 0.141, 938, "1.01 to 1.03"),
    BorderRow("the paper, rules in the node, 100 users", 0.168, 913, "up to 1.11"),
    BorderRow(
        "the paper, load balancer at the border, 0 to 100 users", 0.201, 914, "1.25 to 1.43", 953
    ),
)
"""The figures of the paper on per-user path switching, on Gigabit Ethernet."""
