# SPDX-License-Identifier: Apache-2.0
"""One open page: who looks at it, what it is told of changes, and what it may ask for."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from nicegui import Client, ui

from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.operations import Answer, Operation
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.web.age import Age, age_of
from ri2n_sdn.web.auth import ANONYMOUS, Auth
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.gui.words import address
from ri2n_sdn.web.who import Who

__all__ = [
    "LOGIN",
    "Page",
    "Session",
    "Ticker",
    "begin_login",
    "end_login",
    "who_of_login",
]

LOG = logging.getLogger("ri2n.gui")

LOGIN = "login"
"""The key of a login in what is kept of a browser, and of its number in the signed cookie."""

LOGIN_S = 7 * 24 * 3600.0
"""So long a login lasts, unless its token ends earlier."""

PAUSE_S = 1.0
"""Pages are told of new rates and the like so often at most."""

# So long after the last page has gone, the ticker ends at the latest.
WAIT_S = 5.0

Callback = Callable[[], Awaitable[None] | None]


class Page(NamedTuple):
    """A page of the GUI. `build` makes its content; it may be a coroutine function."""

    path: str
    title: str
    icon: str
    build: Callable[[Session], Awaitable[None] | None]


def begin_login(auth: Auth, store: MutableMapping[str, Any], token: str) -> str | None:
    """Begin a login with this token, and return its number; None when the token is not good.

    `store` is what is kept of the browser here. It says which token it was, but not the token. The
    number goes into the browser's signed cookie, and is needed as well. So who has planted a cookie
    before the login has nothing of it, and a logout counts for all tabs.
    """
    facts = auth.session_of_token(token)
    if facts is None:
        return None
    number = secrets.token_urlsafe(32)
    store[LOGIN] = {"number": number, "until_s": time.time() + LOGIN_S, "facts": facts}
    return number


def end_login(store: MutableMapping[str, Any]) -> None:
    """End a browser's login. To end none is no error."""
    store.pop(LOGIN, None)


def who_of_login(auth: Auth, store: Mapping[str, Any], number: str | None) -> Who | None:
    """Who has logged in so, as long as the login and its token last; otherwise None."""
    login = store.get(LOGIN)
    if not number or not login or time.time() >= login["until_s"]:
        return None
    if not hmac.compare_digest(login["number"].encode(), number.encode("utf-8", "replace")):
        return None
    return auth.who_of_session(login["facts"])


class Ticker:
    """Tells the open pages that something has changed: once a second, and of hosts at once.

    There is one for all pages, and it waits in one place, so that 20 pages cost little more than
    one.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._sessions: dict[str, Session] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nobody is told of anything."""
        return self._task is None or self._task.done()

    def add(self, session: Session) -> None:
        """Tell this page from now on, until its browser has gone."""
        client = session.client
        if client.id not in self._sessions:
            self._sessions[client.id] = session
            client.on_delete(lambda: self._sessions.pop(client.id, None))
            client.on_connect(session.refresh)
        if self.idle:
            self._task = asyncio.create_task(self._run(), name="ri2n pages")

    async def _run(self) -> None:
        while self._sessions:
            feed = self._feed
            seq, connected, hosts = feed.seq, feed.connected, feed.state["hosts"]
            old = age_of(feed, time.time()).old
            began_s = time.monotonic()
            for session in list(self._sessions.values()):
                session.tell()
                await asyncio.sleep(0)  # Requests come first.
            # What has failed is shown at once. Rates, which change all the time, wait.
            while (left_s := began_s + PAUSE_S - time.monotonic()) > 0:
                if feed.connected != connected or feed.state["hosts"] is not hosts:
                    break
                await feed.changed(feed.seq, left_s)
            # Figures get old while nothing is said.
            while self._sessions and (feed.seq, age_of(feed, time.time()).old) == (seq, old):
                await feed.changed(seq, WAIT_S)


@dataclass(eq=False)
class Session:
    """One open page in one browser.

    * `query`: the arguments of the page's address.
    * `pages`: all pages, for the navigation.
    * `store`, `number`: what is kept of the browser, and the number in its cookie.
    * `cluster`: what the cluster is called.
    * `manual`: the address of the documentation that is served with the pages; empty without one.
    * `shown`: the state whose figures the page shows. None: the newest.
    """

    feed: Feed
    auth: Auth
    ticker: Ticker
    client: Client
    path: str
    query: Mapping[str, str]
    pages: Sequence[Page]
    store: Mapping[str, Any] = field(default_factory=dict)
    number: str | None = None
    _callbacks: list[Callback] = field(default_factory=list)
    cluster: str = ""
    manual: str = ""
    shown: Documents | None = None
    _seen: tuple[int, bool] | None = None
    _logged_in: bool = False
    _failed: bool = False
    _telling: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._logged_in = self.logged_in
        self._seen = self._news

    @property
    def age(self) -> Age:
        """How old the figures of the page are: one age for all of them."""
        age = age_of(self.feed, time.time())
        if self.shown is None:
            return age
        return age._replace(read_s=self.shown["controller"].get("sampled_s", age.read_s))

    @property
    def _news(self) -> tuple[int, bool]:
        return self.feed.seq, self.age.old

    @property
    def who(self) -> Who:
        """Who looks at the page now: the holder of the token, or an anonymous viewer."""
        return who_of_login(self.auth, self.store, self.number) or ANONYMOUS

    @property
    def logged_in(self) -> bool:
        """Whether somebody has logged in, and may be here still."""
        return who_of_login(self.auth, self.store, self.number) is not None

    @property
    def allowed(self) -> bool:
        """Whether they may see the page. Without tokens, everybody on this machine may."""
        return self.logged_in or self.auth.anonymous(self.client.ip) is not None

    @property
    def state(self) -> Documents:
        """The state of the cluster, as it is known now. Empty before the first connection."""
        return self.feed.state

    @property
    def here(self) -> str:
        """The address of the page as it is now, from the path on."""
        query = {key: value for key, value in self.query.items() if value}
        return address(self.path, **query) if query else self.path

    def moved(self, **query: str) -> None:
        """Let the browser's address say what is shown now, so that it can be kept or sent on.

        Arguments that are not given stay as they are; an empty one goes.
        """
        before = self.here
        self.query = {**self.query, **query}
        if self.here != before:
            ui.navigate.history.replace(self.here)

    def turn_to_login(self) -> None:
        """Leave the page for the login, which leads back to it."""
        self.client.open(f"/login?ended=1&next={quote(self.here)}")

    def live(self, callback: Callback) -> None:
        """Call this back when something has changed: once a second, or at once if it is a host.

        The callback runs in the page's context, so that it may change elements. It is not called
        while the browser is away, nor after the page was closed. It is not called at once.
        """
        self._callbacks.append(callback)
        self.ticker.add(self)

    async def follow(self, callback: Callback) -> None:
        """Call this at once, and back as `live` does."""
        self.live(callback)
        result = callback()
        if inspect.isawaitable(result):
            await result

    def accepts_events(self) -> bool:
        """Whether the page still does what its browser asks for. If not, it turns to the login.

        To be asked before each event. Browsers may send events long after the login has ended, and
        what a page shows then is for nobody.
        """
        if self.logged_in or (not self._logged_in and self.allowed):
            return True
        self.turn_to_login()
        return False

    def tell(self) -> None:
        """Have `refresh` called in a task, and again as long as there is news.

        No page waits for another one, which may wait for a controller that does not answer.
        """
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name="ri2n page")

    async def _tell(self) -> None:
        await self.refresh()
        while self._seen != self._news and self.client.has_socket_connection:
            await asyncio.sleep(PAUSE_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Call all callbacks if something has changed since they were called last."""
        if self._seen == self._news or not self.client.has_socket_connection:
            return
        self._seen = self._news
        with self.client:
            if self.has_ended():
                return
            for callback in self._callbacks:
                try:
                    result = callback()
                    if inspect.isawaitable(result):
                        await result
                except Exception:  # One broken part of a page must not stop the others.
                    if not self._failed:
                        LOG.exception("%s: a part of the page is not up to date", self.path)
                    self._failed = True

    async def ask(
        self,
        op: Operation[Answer],
        *,
        refused: Callable[[str], None] | None = None,
        **arguments: object,
    ) -> Answer | None:
        """The controller's answer to a request in the name of who looks at the page.

        None after a refusal, whose words `refused` shows; without it, the page does. If the login
        has ended meanwhile, the page turns to the login instead.
        """
        if self.has_ended():
            return None
        try:
            return await self.feed.request(op, self.who, **arguments)
        except (BadInput, NotAvailable) as error:
            with self.client:
                if refused is not None:
                    refused(str(error))
                    return None
                ui.notify(
                    str(error), type="negative", multi_line=True, close_button="Close", timeout=0
                )
            return None

    def has_ended(self) -> bool:
        """Whether a login that there was has ended. The page turns to the login then."""
        if not self._logged_in or self.logged_in or not self.feed.connected:
            return False
        self.turn_to_login()
        return True
