"""The table of the GUI's pages, in the order of the navigation."""

from __future__ import annotations

from ri2n_sdn.web.gui import explain, network
from ri2n_sdn.web.gui.session import Page

__all__ = ["PAGES"]

PAGES: tuple[Page, ...] = (
    Page("/", "Network", "hub", network.build),
    Page("/explain", "Explain", "route", explain.build),
)
