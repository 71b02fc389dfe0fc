# SPDX-License-Identifier: Apache-2.0
"""The page of events: what is wrong now and what to do, then what has happened, with filters."""

from __future__ import annotations

from nicegui import ui

from ri2n_sdn.web.gui.event_views import SEVERITIES, event_row, events_found, problem_rows
from ri2n_sdn.web.gui.frame import frame, html
from ri2n_sdn.web.gui.listing import Answer, Column, Listing, Question, page_of
from ri2n_sdn.web.gui.markup import text
from ri2n_sdn.web.gui.session import Session

__all__ = ["build"]


async def build(session: Session) -> None:
    """Build the page. `?host=A` shows the events of one host."""
    with frame("Events", session, lists_problems=True):
        heading = html("", name="h2")
        problems = Listing(
            session,
            "Problems",
            [
                Column("what", "Severity"),
                Column("text", "Problem", link=True, wide=True),
                Column("advice", "What to do", wide=True, cure=True),
            ],
            lambda question: page_of(problem_rows(session.state, old=session.age.old), question),
            key="key",
            empty=("No problem is known.", "There is nothing to do."),
        )
        html(text("What has happened"), name="h2")
        listing = _events(session)

        def tell() -> None:
            heading.set_content(text("What was wrong" if session.age.old else "What is wrong now"))

        await session.follow(tell)
        await session.follow(problems.refresh)
        await session.follow(listing.refresh)


def _events(session: Session) -> Listing:
    def fetch(question: Question) -> Answer:
        found = events_found(
            session.state,
            search=question.search,
            host=str(host.value or "").strip(),
            severities=tuple(SEVERITIES) if severity.value == "all" else (severity.value,),
        )
        return page_of(found, question, lambda event: event_row(event, session.state))

    async def choose() -> None:
        session.moved(host=str(host.value or "").strip())
        await listing.restart()

    listing = Listing(
        session,
        "Events",
        [
            Column("time", "Time", time=True),
            Column("what", "Severity"),
            Column("text", "Event", link=True, wide=True),
            Column("advice", "What to do"),
        ],
        fetch,
        key="key",
        search="Search events",
        empty=(
            "No event fits.",
            "Choose another host or severity, or clear the search. The newest 200 events are here;"
            " the controller's log has all.",
        ),
    )
    with listing.bar:
        host = ui.input("Host", value=session.query.get("host", "")[:128], on_change=choose)
        host.props("outlined dense clearable debounce=300 autocomplete=off")
        severity = ui.select(
            {"all": "All", **SEVERITIES},
            value="all",
            label="Severity",
            on_change=listing.restart,
        )
        severity.props("outlined dense")
    return listing
