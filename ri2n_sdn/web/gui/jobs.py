"""The page of jobs: who has which path until when, and the forms for those who may change it."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from ri2n_sdn.web.gui.dialogs import change, check, confirm, field, form, information
from ri2n_sdn.web.gui.frame import frame, html, needs_role
from ri2n_sdn.web.gui.job_views import (
    KINDS,
    JobForm,
    PolicyForm,
    ReservationForm,
    RightForm,
    history_rows,
    job_row,
    jobs_found,
    move_request,
    order_request,
    policy_request,
    policy_rows,
    policy_text,
    reservation_request,
    reservation_rows,
    right_request,
    right_rows,
    route_rows,
)
from ri2n_sdn.web.gui.listing import Answer, Column, Listing, Question, page_of
from ri2n_sdn.web.gui.markup import tag, text
from ri2n_sdn.web.gui.session import Session
from ri2n_sdn.web.gui.words import rate_input, time_text

__all__ = ["build"]

MAX_HISTORY = 1000

_ID = Column("id", "Name")
_USER = Column("user", "User", phone=False)
_HOSTS = Column("hosts", "Hosts", phone=False)
_PATHS = Column("paths", "Paths")
_RATES = Column("rates", "Rate of each host", phone=False)
_SINCE = Column("since", "From", phone=False)
_UNTIL = Column("until", "Until")
_STATE = Column("state", "State", phone=False)


async def build(session: Session) -> None:
    """Build the page."""
    with frame("Jobs", session):
        page = _Page(session)
        session.live(page.refresh)
        await page.refresh()


class _Page:
    """The tables of the page, and what their buttons do."""

    def __init__(self, session: Session) -> None:
        self._session = session
        writes, admin = session.who.may("user"), session.who.role == "admin"
        if not writes:
            needs_role(session, "user", "Beginning, moving and ending jobs")
        self._head("Jobs", ("Begin a job", self._begin) if writes else None)
        self._jobs = Listing(
            session,
            "Jobs",
            [_ID, _USER, _HOSTS, _PATHS, _RATES, _SINCE, _UNTIL, _STATE],
            self._fetch_jobs,
            search="Search jobs",
            act=self._act_job,
            empty=(
                "No job is here.",
                "Users begin jobs by job-begin on a host, or here.",
            ),
        )
        self._head("Reservations", ("Reserve paths", self._reserve) if writes else None)
        self._reserved = Listing(
            session,
            "Reservations",
            [_ID, _USER, _HOSTS, _PATHS, _RATES, _SINCE, _UNTIL, _STATE],
            lambda asked: page_of(
                reservation_rows(session.state, session.who, time.time(), asked.search),
                asked,
            ),
            search="Search reservations",
            act=self._remove_reservation if writes else None,
            empty=(
                "Nothing is reserved.",
                "A reservation keeps paths for jobs to come.",
            ),
        )
        self._head("Jobs that have ended", None)
        self._history = Listing(
            session,
            "Ended jobs",
            [_ID, _USER, _HOSTS, _PATHS, _SINCE, _UNTIL, Column("why", "Why it ended")],
            self._fetch_history,
            key="key",
            search="Search ended jobs",
            empty=("No job has ended yet.", "The newest 1,000 are kept."),
        )
        self._shown: list[Any] = [None] * 4
        self._minute = -1
        self._ended: list[dict[str, Any]] | None = None  # None: to be asked for
        self._known = set[str]()
        self._head("Named policies", ("Add a policy", self._add_policy) if admin else None)
        self._policies = Listing(
            session,
            "Policies",
            [_ID, _PATHS, _RATES, Column("services", "Services", phone=False)],
            lambda asked: page_of(policy_rows(session.state, session.who), asked),
            act=self._remove_policy if admin else None,
            empty=(
                "No policy has a name.",
                "An admin can name one, for jobs that need the same.",
            ),
        )
        self._head("Rights of users", ("Set rights", self._set_right) if admin else None)
        self._rights = Listing(
            session,
            "Rights",
            [
                Column("user", "User"),
                Column("policies", "Policies"),
                Column("rate", "Highest rate", phone=False),
                Column("hosts", "Most hosts", phone=False),
                Column("reserve", "May reserve", phone=False),
            ],
            lambda asked: page_of(right_rows(session.state, session.who), asked),
            act=self._remove_right if admin else None,
            empty=(
                "No rights are set.",
                "So every user may ask for everything. An admin can set rights.",
            ),
        )

    async def refresh(self) -> None:
        """Show what is new. The history is asked for only when a job has gone."""
        state = self._session.state
        # These maps stay the same objects until something in them changes. What a row says of the
        # time left changes each minute.
        now = [state.get(part) for part in ("jobs", "reservations", "policies", "rights")]
        minute = int(time.time() // 60)
        same = all(one is other for one, other in zip(now, self._shown, strict=True))
        if same and minute == self._minute:
            return
        self._shown, self._minute = now, minute
        for listing in (self._jobs, self._reserved, self._policies, self._rights):
            await listing.refresh()
        jobs = set(self._session.state.get("jobs", {}))
        if self._known - jobs:
            self._ended = None
        if self._ended is None:
            await self._history.refresh()
        self._known = jobs

    @staticmethod
    def _head(title: str, button: tuple[str, Callable[[], None]] | None) -> None:
        html(text(title), name="h2")
        if button is not None:
            ui.button(button[0], on_click=button[1]).props("no-caps unelevated")

    def _fetch_jobs(self, asked: Question) -> Answer:
        who, now_s = self._session.who, time.time()
        found = jobs_found(self._session.state, asked.search)
        return page_of(found, asked, lambda job: job_row(job, who, now_s))

    async def _fetch_history(self, asked: Question) -> Answer:
        session = self._session
        if self._ended is None:
            answer = await session.feed.request("job_history", session.who, limit=MAX_HISTORY)
            self._ended = answer["jobs"]
        return page_of(history_rows(self._ended, asked.search), asked)

    # ---- Jobs

    def _begin(self) -> None:
        session = self._session

        async def submit() -> str:
            job = order_request(
                JobForm(*_values(name, hosts, user, uid, until)),
                policy.value(),
                session.who,
                time.time(),
                _uid_of,
            )
            made = (await change(session, "job_begin", job=job))["job"]
            return f"Job {made['id']}: {_state_of(made)}"

        with form("Begin a job", "Begin it", submit):
            name = field("Name", hint="Letters, digits and ._:-")
            hosts = field("Hosts", hint=_some_hosts(session))
            user, uid = _owner_fields(session, with_uid=True)
            until = field("Ends", hint="As +2h or 2026-11-27T10:00 (UTC); empty: by hand")
            policy = _policy_fields(session)

    async def _act_job(self, action: str, key: str) -> None:
        if action == "details":
            await self._details(key)
        elif action == "move":
            self._move(key)
        elif action == "back":
            self._move_back(key)
        elif action == "end":
            self._end(key)

    def _end(self, key: str) -> None:
        async def submit() -> str:
            await change(self._session, "job_end", id=key)
            return f"Job {key} has ended."

        confirm(
            f"End the job {key}?",
            [
                "Its hosts stop marking the user's packets, which then go as everybody's.",
                "The paths of the job are free for others.",
            ],
            "End it",
            submit,
        )

    def _move(self, key: str) -> None:
        job = self._session.state.get("jobs", {}).get(key)
        if job is None:
            return

        async def submit() -> str:
            answer = await change(
                self._session, "job_move", id=key, job=move_request(policy.value())
            )
            return f"Job {key}: {_state_of(answer['job'])}"

        with form(f"Move the job {key}", "Move it", submit):
            html(
                text(f"It has {policy_text(job)} now. Its packets change over without a loss."),
                name="p",
            )
            policy = _policy_fields(self._session, job)

    def _move_back(self, key: str) -> None:
        async def submit() -> str:
            answer = await change(self._session, "job_move", id=key, back=True)
            return f"Job {key}: {_state_of(answer['job'])}"

        confirm(
            f"Move the job {key} back?",
            ["It gets the policy that its hosts declare. Its packets change over without a loss."],
            "Move it back",
            submit,
            danger=False,
        )

    async def _details(self, key: str) -> None:
        session = self._session
        answer = await session.ask("job_show", id=key)
        if answer is None:
            return
        job = answer["job"]
        facts = [
            ("State", _state_of(job)),
            ("User", f"{job['user']} (uid {job['uid']})"),
            ("Policy", policy_text(job)),
            ("Lanes", ", ".join(job["lanes"]) or "none of its own"),
            ("From", time_text(job["begin_s"])),
            ("Until", time_text(job["end_s"], "somebody ends it")),
            ("Begun by", "an order" if job["source"] == "order" else "its hosts"),
            ("Hosts", ", ".join(_host_text(job, host) for host in job["hosts"])),
        ]
        if job["moved"]:
            moved = job["moved"]
            facts.append(("Moved", f"by {moved['by']} at {time_text(moved['at_s'])}"))
        with information(f"Job {key}") as dialog:
            rows = (text(tag("dt", name, class_="muted"), tag("dd", said)) for name, said in facts)
            html(tag("dl", *rows))
            routes = Listing(
                session,
                "Paths of the job",
                [
                    Column("src", "From"),
                    Column("dst", "To"),
                    Column("dscp", "DSCP", phone=False),
                    Column("way", "NICs"),
                    Column("network", "Network", phone=False),
                    Column("alive", "State"),
                ],
                lambda asked: page_of(route_rows(job), asked),
                key="key",
                empty=("It has no paths of its own.", "Its packets go as everybody's."),
            )
        with dialog:
            await routes.refresh()

    # ---- Reservations

    def _reserve(self) -> None:
        session = self._session

        async def submit() -> str:
            wanted = reservation_request(
                ReservationForm(*_values(name, hosts, user, begins, ends, rate)),
                policy.value(),
                session.who,
                time.time(),
            )
            await change(session, "reserve_add", reservation=wanted)
            return f"Reserved: {wanted['id']}, until {time_text(wanted['end_s'])}"

        with form("Reserve paths", "Reserve them", submit):
            name = field("Name", hint="Letters, digits and ._:-")
            hosts = field("Hosts", hint=_some_hosts(session))
            user, _ = _owner_fields(session, with_uid=False)
            begins = field("Begins", hint="As +2h or 2026-11-27T10:00 (UTC); empty: now")
            ends = field("Ends", hint="As +2h or 2026-11-27T10:00 (UTC)")
            rate = field("Rate", hint="What each host gets, as 400M; empty: whole lanes")
            policy = _policy_fields(session, kind="exclusive")

    def _remove_reservation(self, action: str, key: str) -> None:
        async def submit() -> str:
            await change(self._session, "reserve_remove", id=key)
            return f"The reservation {key} is removed."

        confirm(
            f"Remove the reservation {key}?",
            ["Its paths are free for others, and jobs that run within it lose them."],
            "Remove it",
            submit,
        )

    # ---- Policies and rights

    def _add_policy(self) -> None:
        async def submit() -> str:
            wanted = policy_request(policy.value())
            await change(
                self._session,
                "policy_add",
                name=str(name.value or "").strip(),
                policy=wanted,
            )
            return f"The policy {name.value} is there."

        with form("Add a policy", "Add it", submit):
            name = field("Name", hint="What jobs will call it")
            policy = _policy_fields(self._session, named=False)

    def _remove_policy(self, action: str, key: str) -> None:
        async def submit() -> str:
            await change(self._session, "policy_remove", name=key)
            return f"The policy {key} is removed."

        confirm(
            f"Remove the policy {key}?",
            ["Jobs and reservations that have it keep what they have."],
            "Remove it",
            submit,
        )

    def _set_right(self) -> None:
        async def submit() -> str:
            kinds = [kind for kind, box in boxes.items() if box.value]
            name, most_bps, most = _values(user, rate, hosts)
            right = right_request(RightForm(name, kinds, most_bps, most, bool(reserve.value)))
            await change(self._session, "rights_set", right=right)
            return f"The rights of {right['user']} are set."

        with form("Set rights", "Set them", submit):
            user = field(
                "User",
                hint="A name or a uid; * is everybody without rights of their own",
            )
            with ui.element("fieldset").classes("card"):
                html(text("Policies that the user may ask for"), name="legend")
                boxes = {
                    kind: check(f"{kind}: {about}", value=kind == "shared")
                    for kind, about in KINDS.items()
                }
            rate = field("Highest rate", hint="As 400M; 0 for none, empty for no limit")
            hosts = field("Most hosts", hint="Of one job; empty for no limit")
            reserve = check("May reserve paths")

    def _remove_right(self, action: str, key: str) -> None:
        async def submit() -> str:
            await change(self._session, "rights_remove", user=key)
            return f"The rights of {key} are removed."

        confirm(
            f"Remove the rights of {key}?",
            [
                "The user then has the rights of everybody else, or none but shared paths.",
                "When the last rights are removed, every user may ask for everything.",
            ],
            "Remove them",
            submit,
        )


@dataclass
class _PolicyFields:
    """The inputs of a form that say which policy."""

    inputs: dict[str, Any]

    def value(self) -> PolicyForm:
        """What is in them now."""
        return PolicyForm(**{key: str(made.value or "") for key, made in self.inputs.items()})


def _policy_fields(
    session: Session,
    job: dict[str, Any] | None = None,
    *,
    kind: str = "shared",
    named: bool = True,
) -> _PolicyFields:
    """Inputs for a policy, filled in with that of `job`."""
    old = job or {}
    inputs: dict[str, Any] = {}
    names = sorted(session.state.get("policies", {}))
    if named and names:
        choice = {"": "none: as below", **{name: name for name in names}}
        inputs["named"] = ui.select(choice, value="", label="Named policy").props("outlined dense")
        inputs["named"].style("width: 100%")
    kinds = {kind: f"{kind}: {about}" for kind, about in KINDS.items()}
    chosen = ui.select(kinds, value=old.get("policy", kind), label="Policy").props("outlined dense")
    inputs["kind"] = chosen.style("width: 100%")
    networks = ", ".join(sorted(session.state.get("networks", {}))[:8]) or "net1"
    inputs["paths"] = field(
        "Paths",
        value=", ".join(old.get("paths", ())),
        hint=f"Networks, VLANs or NICs, as net1/12, vlan:12 or A:eth0. Networks: {networks}",
    )
    inputs["min_rate"] = field(
        "At least",
        value=rate_input(old.get("min_rate_bps")),
        hint="Rate of each host, as 400M",
    )
    inputs["max_rate"] = field(
        "At most",
        value=rate_input(old.get("max_rate_bps")),
        hint="Rate of each host, as 800M",
    )
    with ui.expansion("More: services, and paths by DSCP").style("width: 100%"):
        inputs["services"] = field(
            "Services",
            value=", ".join(old.get("services", ())),
            hint="What an isolated job may reach, as 10.0.0.9/tcp/2049",
        )
        inputs["tables"] = field(
            "Tables",
            value="\n".join(
                f"{table['dscp']}={','.join(table['paths'])}" for table in old.get("tables", ())
            ),
            hint="Paths of packets with a DSCP, one per line, as 10=net2",
            lines=True,
        )
    return _PolicyFields(inputs)


def _owner_fields(session: Session, *, with_uid: bool) -> tuple[Any, Any]:
    """Whose it will be. A user's own are all that a user has, so there is nothing to fill in."""
    who = session.who
    if who.role == "user" and who.user is not None:
        html(text(f"It will be of {who.user}."), name="p")
        return None, None
    user = field("User", value=who.user or "", hint="Whose it will be")
    hint = "Only for a user whom this machine does not know"
    return user, field("Uid", hint=hint) if with_uid else None


def _values(*fields: Any) -> list[str]:
    """What is in inputs. One that is not there is empty."""
    return ["" if each is None else str(each.value or "") for each in fields]


def _uid_of(user: str) -> int | None:
    """The uid of a user of this machine."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None


def _some_hosts(session: Session) -> str:
    hosts = sorted(session.state.get("hosts", {}))
    more = f" and {len(hosts) - 6:,} more" if len(hosts) > 6 else ""
    return f"With commas. Known are {', '.join(hosts[:6]) or 'none yet'}{more}"


def _state_of(job: dict[str, Any]) -> str:
    return f"{job['state']}: {job['why']}" if job["why"] else str(job["state"])


def _host_text(job: dict[str, Any], host: str) -> str:
    """A host of a job, with its class there, or why it cannot carry the order out."""
    failed = job.get("failed") or {}
    number = job.get("classes", {}).get(host)
    said = f"class {number}" if number is not None else "has not begun it"
    if host in failed:
        said += f", cannot carry out the order: {failed[host]}"
    return f"{host} ({said})"
