# SPDX-License-Identifier: Apache-2.0
"""The page of traffic: rates, weights and shares over time, per host and per pair."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from nicegui import ui

from ri2n_sdn.contract.answers import PairsPage
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.operations import PAIRS
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.gui import traffic_views as views
from ri2n_sdn.web.gui.charts import Lines, chart_summary, rate_chart, share_chart, thinned
from ri2n_sdn.web.gui.dialogs import check
from ri2n_sdn.web.gui.fair_views import worst_client
from ri2n_sdn.web.gui.frame import frame, html
from ri2n_sdn.web.gui.listing import Answer, Column, Listing, Paced, Question, page_of
from ri2n_sdn.web.gui.markup import tag, text
from ri2n_sdn.web.gui.scene import nics_at
from ri2n_sdn.web.gui.session import Session
from ri2n_sdn.web.gui.words import address, shortened

__all__ = ["build"]

CHART_S = 4.0
"""Charts are drawn anew so often at most: each time they are sent to the browser whole."""

PAIR_S = 2.0
"""The controller is asked for pairs so often at most by one page."""

TITLE_LETTERS = 24
"""Names in a chart's title are no longer."""

_Answers = dict[str, tuple[float, "asyncio.Future[PairsPage]"]]
_ANSWERS: weakref.WeakKeyDictionary[Feed, _Answers] = weakref.WeakKeyDictionary()

_DIRECTIONS = {"tx": "Sent", "rx": "Received"}
_HOSTS = [
    Column("id", "Host", link=True),
    Column("tx", "Sends", number=True),
    Column("rx", "Receives", number=True),
    Column("part", "Part of what is fair", number=True),
    Column("load", "Load of its NICs", number=True),
    Column("nics", "NICs"),
]
_PAIRS = [
    Column("src", "Sender", link=True),
    Column("dst", "Receiver", link=True),
    Column("rate", "Rate", number=True),
    Column("part", "Part of what is fair", number=True),
    Column("shares", "Shares of its paths"),
    Column("state", "State"),
]
_PATHS = [
    Column("way", "From NIC to NIC"),
    Column("network", "Network"),
    Column("weight", "Weight"),
    Column("share", "Share", number=True),
    Column("tx", "Rate", number=True),
    Column("planned", "Planned rate", number=True),
    Column("speed", "NIC's rate", number=True),
    Column("alive", "State"),
]


async def build(session: Session) -> None:
    """Build the page. `?host=A` shows a host, and `?src=A&dst=B` a pair."""
    with frame("Traffic", session):
        html(
            text("Rates count the bits of frames on NICs, as the controller has read them last."),
            name="p",
            classes="muted",
        )
        hosts, pairs = _Hosts(session), _Pairs(session)

        async def refresh() -> None:
            """Show hosts and pairs of one round: pairs are asked for, and hosts follow them."""
            session.shown = await session.feed.sample_at(await pairs.refresh())
            await hosts.refresh()

        # The history goes on while the state stays as it is.
        ui.timer(CHART_S, hosts.draw_if_due, immediate=False)
        await session.follow(Paced(PAIR_S, refresh).refresh)


class _Charts:
    """Two charts, one below the other, and the first one in words."""

    def __init__(self, label: str) -> None:
        self._drawn_s = 0.0
        self._drawn: tuple[str, Sequence[float], Lines] = ("", (), {})
        self._words = html("", name="p").props("role=status")
        with ui.element("div").classes("grid"):
            self._charts = [self._chart(f"{label}: {what}") for what in ("rates", "shares")]

    @staticmethod
    def _chart(label: str) -> ui.echart:
        with ui.element("div").classes("card").props("role=img") as named:
            named.props["aria-label"] = f"{label} over time, as a chart"
            return ui.echart({}, renderer="svg").classes("chart").props("aria-hidden=true")

    @property
    def due(self) -> bool:
        """Whether it is time to draw again."""
        return time.monotonic() - self._drawn_s >= CHART_S

    def say(self, newest: Mapping[str, float | None], *, old: bool) -> None:
        """Tell in words what is drawn, with the newest rates."""
        self._words.set_content(text(chart_summary(*self._drawn, newest, old=old)))

    def draw(
        self,
        what: str,
        times: Sequence[float],
        rates: Lines,
        titles: tuple[str, str],
        shares: Lines | None,
    ) -> None:
        """Draw the rates, and where there are `shares`, their parts of their sums."""
        self._drawn_s = time.monotonic()
        self._drawn = what, times, rates
        for chart, options in zip(
            self._charts,
            (
                rate_chart(titles[0], *thinned(times, rates)),
                share_chart(titles[1], *thinned(times, shares or {})),
            ),
            strict=True,
        ):
            card = chart.parent_slot.parent if chart.parent_slot is not None else chart
            card.visible = chart is self._charts[0] or shares is not None
            chart.options.clear()
            chart.options.update(options)
            chart.update()


class _Hosts:
    """The table of hosts, and the charts of the one that is chosen."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._host = session.query.get("host", "")[:128]
        html(text("Hosts"), name="h2")
        self._worst = html("", name="p").props("role=status tabindex=-1")
        with ui.element("div").classes("bar"):
            self._direction = ui.select(
                dict(_DIRECTIONS), value="tx", label="Direction", on_change=self._turn
            )
            self._direction.props("outlined dense").style("min-width: 10em")
            self._all = ui.button(
                "Show all hosts together", on_click=lambda: self._choose("show", "")
            )
            self._all.props("flat no-caps")
        self._charts = _Charts("Host")
        self._table = Listing(
            self._session,
            "Hosts",
            _HOSTS,
            self._fetch,
            search="Search hosts",
            sorts=views.HOST_SORTS,
            act=self._choose,
            empty=(
                "No host fits.",
                "Clear the search. If no host has joined yet, run host-up --controller on each.",
            ),
        )

    @property
    def _state(self) -> Documents:
        """The state of the round that the pairs are of."""
        session = self._session
        return session.state if session.shown is None else session.shown

    def _fetch(self, question: Question) -> Answer:
        state = self._state
        names = views.host_names(state, question.sort, question.search)
        old = self._session.age.old
        return page_of(
            names,
            question,
            lambda name: views.host_row(state, name, old=old),
            order=self._table.order,
        )

    async def refresh(self) -> None:
        """Show what is new."""
        state = self._state
        self._worst.set_content(text(worst_client(state, old=self._session.age.old)))
        await self._table.refresh()
        self.draw_if_due()
        self._say()

    def draw_if_due(self) -> None:
        """Draw anew, unless that was done just now."""
        if self._charts.due and self._session.allowed:
            self._draw()

    def _choose(self, action: str, host: str) -> None:
        self._host = host
        self._session.moved(host=host)
        self._draw()
        self._say()
        _reveal(self._worst)

    def _turn(self) -> None:
        """Show the other direction."""
        self._draw()
        self._say()

    def _say(self) -> None:
        """Tell the rates of the state that the rows are made of."""
        self._charts.say(
            views.newest_rates(self._state, self._host, str(self._direction.value)),
            old=self._session.age.old,
        )

    def _draw(self) -> None:
        """Draw the rates of the NICs of the chosen host, or of all hosts together."""
        history = self._session.feed.history
        way = attrgetter(f"{self._direction.value}_bps")
        nics = nics_at(self._state["hosts"], self._host)
        word = _DIRECTIONS[str(self._direction.value)].lower()
        self._all.visible = bool(self._host)
        shown = shortened(self._host, TITLE_LETTERS)
        if nics:
            series = {nic: history.series(self._host, nic) for nic in nics}
            found = {
                nic: dict(zip(each.time_s, way(each), strict=True)) for nic, each in series.items()
            }
            times = sorted(set().union(*found.values()))
            rates = {nic: [at.get(time_s) for time_s in times] for nic, at in found.items()}
            what, title = (f"{name} has {word}" for name in (self._host, shown))
        else:
            total = history.total()
            times, rates = total.time_s, {views.ALL: way(total)}
            what = title = f"All hosts have {word}"
        titles = (f"{title}: rates", f"{title}: shares of the NICs")
        self._charts.draw(what, times, rates, titles, rates if nics else None)


class _Pairs:
    """The table of pairs, and the paths, weights and charts of the one that is chosen."""

    def __init__(self, session: Session) -> None:
        self._session = session
        src, dst = (session.query.get(key, "")[:128] for key in ("src", "dst"))
        self._pair = (src, dst) if src and dst else None
        self._answer: PairsPage | None = None
        self._samples = views.PairSamples()
        self._paths: list[dict[str, Any]] = []
        html(text("Pairs of hosts"), name="h2")
        with ui.element("section") as self._detail:
            self._detail.props("tabindex=-1").props["aria-label"] = "The chosen pair"
            self._title = html("", name="h3")
            self._path_table = Listing(
                self._session,
                "Paths",
                _PATHS,
                lambda question: page_of(self._paths, question),
                key="key",
                empty=(
                    "This pair has no path.",
                    "Plug a NIC of each host into one switch.",
                ),
            )
            self._charts = _Charts("Pair")
        self._detail.visible = False
        self._table = Listing(
            self._session,
            "Pairs",
            _PAIRS,
            self._fetch,
            key="key",
            sorts=views.PAIR_SORTS,
            act=self._choose,
            empty=(
                "No pair is active.",
                "A pair is active when one of its hosts sends to the other. Start some traffic, or"
                " tick “Also pairs that are idle”.",
            ),
        )
        with self._table.bar:
            self._host = ui.input("Of this host alone", on_change=self._table.restart)
            self._host.props("outlined dense clearable debounce=400 autocomplete=off")
            self._every = check("Also pairs that are idle")
            self._every.on_value_change(self._table.restart)

    async def _fetch(self, question: Question) -> Answer:
        request = views.pair_request(
            sort=question.sort,
            host=str(self._host.value or "").strip(),
            active=not self._every.value,
            offset=question.offset,
            limit=question.limit,
        )
        self._answer = answer = await _asked(self._session, **request)
        return Answer(views.pair_rows(answer["pairs"]), int(answer["total"]))

    async def refresh(self) -> float | None:
        """Show what is new, and tell of which round it is; None when there is no answer."""
        self._answer = None
        await self._table.refresh()
        await self._sample()
        return self._answer.get("sampled_s") if self._answer is not None else None

    async def _choose(self, action: str, key: str) -> None:
        src, _, dst = key.partition(" ")
        self._pair, self._samples = (src, dst), views.PairSamples()
        self._session.moved(src=src, dst=dst)
        await self._sample()
        _reveal(self._detail)

    async def _sample(self) -> None:
        """Show the chosen pair. It is asked for when it is on another page of the table."""
        if self._pair is None:
            return
        src, dst = self._pair
        session = self._session
        shown = [
            pair
            for pair in (self._answer["pairs"] if self._answer is not None else ())
            if (pair["src"], pair["dst"]) == (src, dst)
        ]
        try:
            if self._answer is not None and shown:
                answer: PairsPage = {**self._answer, "pairs": shown}
            else:
                answer = await _asked(session, src=src, dst=dst, offset=0, limit=1)
        except (BadInput, NotAvailable) as error:
            self._detail.visible = True
            self._title.set_content(text(f"{src} to {dst}: {error}"))
            return
        if self._pair != (src, dst):
            return
        pairs = answer["pairs"]
        self._paths = views.path_rows(pairs[0]) if pairs else []
        self._detail.visible = True
        why = tag("a", "Explain", href=address("/explain", src=src, dst=dst))
        self._title.set_content(text(f"{src} to {dst} ", why))
        await self._path_table.refresh()
        if not pairs:
            return
        pair = " to ".join(shortened(name, TITLE_LETTERS // 2) for name in (src, dst))
        first = not self._samples.times
        sampled_s = answer.get("sampled_s")
        self._samples.add(time.time() if sampled_s is None else sampled_s, pairs[0])
        if first or self._charts.due:
            self._charts.draw(
                f"{src} to {dst}",
                self._samples.times,
                self._samples.rates,
                (f"{pair}: rates of the paths", f"{pair}: weights of the paths"),
                self._samples.weights,
            )
        newest = {name: values[-1] for name, values in self._samples.rates.items()}
        self._charts.say(newest, old=session.age.old)


async def _asked(session: Session, **request: Any) -> PairsPage:
    """The answer of the operation `pairs`; pages that ask for the same share it for PAIR_S.

    All roles may see it, so it does not matter in whose name it was asked for.
    """
    answers = _ANSWERS.setdefault(session.feed, {})
    key = repr(sorted(request.items()))
    now_s = time.monotonic()
    for old in [each for each, (asked_s, _) in answers.items() if now_s - asked_s >= PAIR_S]:
        del answers[old]
    if key not in answers:
        asking = asyncio.ensure_future(session.feed.request(PAIRS, session.who, **request))
        # Who waits for it hears of a failure. There may be nobody any more.
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        answers[key] = (now_s, asking)
    return await asyncio.shield(answers[key][1])


def _reveal(element: ui.element) -> None:
    """Move the browser, and the focus of those who use a keyboard, to what was asked for."""
    found = f"document.getElementById('{element.html_id}')"
    ui.run_javascript(f"{found}?.scrollIntoView(); {found}?.focus({{preventScroll: true}})")
