"""What the papers measured, beside our rows, on Gigabit Ethernet.

Table 6 and figures 10..13 of the RI2N++ paper, on figure 4's topologies: goodput in MB/s, 112.2
MB/s a link; RI2N+ and RI2N++ are per cent of RI2N's on the same topology. Figures 7 and 8 of the
VFREC-Net paper: shares of Flat.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAPER", "PAPER_LINK_MBYTE_S", "VBFT_PAPER", "PaperRow", "paper_share"]

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
