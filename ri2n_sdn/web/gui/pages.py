# SPDX-License-Identifier: Apache-2.0
"""The table of the GUI's pages, in the order of the navigation."""

from __future__ import annotations

from ri2n_sdn.web.gui import events, explain, jobs, network, settings, traffic
from ri2n_sdn.web.gui.session import Page

__all__ = ["PAGES"]

PAGES: tuple[Page, ...] = (
    Page("/", "Network", "hub", network.build),
    Page("/explain", "Explain", "route", explain.build),
    Page("/traffic", "Traffic", "show_chart", traffic.build),
    Page("/jobs", "Jobs", "work", jobs.build),
    Page("/events", "Events", "history", events.build),
    Page("/settings", "Settings", "settings", settings.build),
)
