# SPDX-License-Identifier: Apache-2.0
"""The page of jobs: who has which path until when, and the forms for those who may change it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.answers import OneJob, OnePolicy, OneReservation, OneRight
from ri2n_sdn.contract.documents import EndedJob, Job, JobDetails, Right
from ri2n_sdn.contract.units import page_time
from ri2n_sdn.web.gui import job_views as views
from ri2n_sdn.web.gui.commands import command_of
from ri2n_sdn.web.gui.dialogs import (
    check,
    confirm,
    field,
    form,
    information,
    operation,
    remove,
    side_by_side,
)
from ri2n_sdn.web.gui.frame import frame, head, html, needs_role
from ri2n_sdn.web.gui.job_fields import (
    free_name,
    policy_fields,
    some_hosts,
    user_field,
    values,
)
from ri2n_sdn.web.gui.listing import Answer, Column, Listing, Question, page_of
from ri2n_sdn.web.gui.markup import facts, text
from ri2n_sdn.web.gui.session import Session
from ri2n_sdn.web.gui.words import rate_input, times_hint
from ri2n_sdn.web.who import uid_of

__all__ = ["build"]

MAX_HISTORY = 1000

_ID = Column("id", "Name")
_JOB = Column("id", "Name", link=True)
_USER = Column("user", "User")
_HOSTS = Column("hosts", "Hosts")
_PATHS = Column("paths", "Paths")
_RATES = Column("rates", "Rate per host")
_SINCE = Column("since", "From", time=True)
_UNTIL = Column("until", "Until", time=True)
_STATE = Column("state", "State")


async def build(session: Session) -> None:
    """Build the page."""
    with frame("Jobs", session):
        await session.follow(_Page(session).refresh)


class _Page:
    """The tables of the page, and what their buttons do."""

    def __init__(self, session: Session) -> None:
        self._session = session
        writes, admin = session.who.may("user"), session.who.role == "admin"
        if not writes:
            needs_role(session, "user", "Beginning, moving and ending jobs")
        head("Jobs that run or wait", ("Begin a job", self._begin) if writes else None)
        acts: dict[str, Callable[[str], Awaitable[None] | None]] = {
            **{"details": self._details, "move": self._move},
            **{"back": self._move_back, "end": self._end},
        }
        self._jobs = Listing(
            session,
            "Jobs",
            [_JOB, _USER, _HOSTS, _PATHS, _RATES, _SINCE, _UNTIL, _STATE],
            self._fetch_jobs,
            search="Search jobs",
            begin=session.query.get("search", ""),
            act=lambda action, key: acts[action](key),
            empty=(
                "No job runs or waits.",
                "A job manager begins jobs with job-begin on their hosts. Users and admins begin"
                " jobs here, or with ri2n job begin.",
            ),
        )
        head("Reservations", ("Reserve paths", self._reserve) if writes else None)
        self._reserved = Listing(
            session,
            "Reservations",
            [_ID, _USER, _HOSTS, _PATHS, _RATES, _SINCE, _UNTIL, _STATE],
            lambda asked: page_of(
                views.reservation_rows(session.state, session.who, time.time(), asked.search),
                asked,
            ),
            search="Search reservations",
            act=self._remove_reservation if writes else None,
            empty=(
                "Nothing is reserved.",
                "A reservation keeps paths for jobs to come. Users and admins reserve them here, or"
                " with ri2n reserve add.",
            ),
        )
        head("Jobs that have ended")
        self._history = Listing(
            session,
            "Ended jobs",
            [_ID, _USER, _HOSTS, _PATHS, _SINCE, _UNTIL, Column("why", "Why it ended")],
            self._fetch_history,
            key="key",
            search="Search ended jobs",
            empty=(
                "No job has ended yet.",
                "Jobs appear here when they end. The newest 1,000 are kept.",
            ),
        )
        self._shown: list[Any] = [None] * 5
        self._minute = -1
        self._ended: list[EndedJob] | None = None  # None: to be asked for
        self._known = set[str]()
        head("Named policies", ("Add a policy", self._add_policy) if admin else None)
        self._policies = Listing(
            session,
            "Policies",
            [_ID, _PATHS, _RATES, Column("services", "Services")],
            lambda asked: page_of(views.policy_rows(session.state, session.who), asked),
            act=self._remove_policy if admin else None,
            empty=(
                "No policy has a name.",
                "An admin can name one, for jobs that need the same.",
            ),
        )
        head("Rights of users", ("Set rights", lambda: self._set_right()) if admin else None)
        self._rights = Listing(
            session,
            "Rights",
            [
                Column("user", "User"),
                Column("policies", "Policies"),
                Column("rate", "Highest rate"),
                Column("hosts", "Most hosts"),
                Column("reserve", "May reserve"),
            ],
            lambda asked: page_of(views.right_rows(session.state, session.who), asked),
            act=self._act_right if admin else None,
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
        parts = [state.get(part) for part in ("jobs", "reservations", "policies", "rights")]
        now = [*parts, self._session.age.old]
        minute = int(time.time() // 60)
        same = all(one is other for one, other in zip(now, self._shown, strict=True))
        if same and minute == self._minute:
            return
        self._shown, self._minute = now, minute
        for listing in (self._jobs, self._reserved, self._policies, self._rights):
            await listing.refresh()
        jobs = set(self._session.state["jobs"])
        if self._known - jobs:
            self._ended = None
        if self._ended is None:
            await self._history.refresh()
        self._known = jobs

    def _fetch_jobs(self, asked: Question) -> Answer:
        who, now_s = self._session.who, time.time()
        found = views.jobs_found(self._session.state, asked.search)
        return page_of(
            found,
            asked,
            lambda job: views.job_row(job, who, now_s, old=self._session.age.old),
            order=self._jobs.order,
            key=lambda job: job["id"],
        )

    async def _fetch_history(self, asked: Question) -> Answer:
        session = self._session
        if self._ended is None:
            answer = await session.feed.request(ops.JOB_HISTORY, session.who, limit=MAX_HISTORY)
            self._ended = answer["jobs"]
        return page_of(views.history_rows(self._ended, asked.search), asked)

    # ---- Jobs

    def _begin(self) -> None:
        session = self._session

        def wanted() -> dict[str, Any]:
            filled = values(name, hosts, user, uid, until)
            chosen, now_s = policy.value(), time.time()
            job = views.order_request(
                *filled, policy=chosen, who=session.who, now_s=now_s, uid_of=uid_of
            )
            return {"job": job}

        def command() -> str | None:
            # The command finds the uid of a user by itself, and takes no other one.
            job = wanted()["job"]
            known = session.who.role == "user" or uid_of(job["user"]) == job["uid"]
            return command_of("job_begin", job=job) if known else None

        submit, _ = operation(session, ops.JOB_BEGIN, wanted, _job_said)
        with form("Begin a job", "Begin it", submit, command):
            with side_by_side():
                hosts = field("Hosts", hint=some_hosts(session))
                until = field("Ends", hint=f"{times_hint()}; empty: when somebody ends it")
            with side_by_side():
                user = user_field(session)
                free = free_name(session, session.state["jobs"])
                name = field("Name", value=free, hint="Letters, digits and ._:-")
            policy = policy_fields(session)
            uid = None
            if user is not None:
                with policy.fold:
                    uid = field("Uid", hint="Only for a user whom this machine does not know")

    def _end(self, key: str) -> None:
        ended = f"Job {key} has ended."
        confirm(
            f"End the job {key}?",
            [
                "Its hosts stop marking the user's packets, which then go as everybody's.",
                "The paths of the job are free for others.",
            ],
            "End it",
            *operation(self._session, ops.JOB_END, lambda: {"id": key}, lambda answer: ended),
        )

    def _move(self, key: str) -> None:
        job = self._session.state["jobs"].get(key)
        if job is None:
            return

        def wanted() -> dict[str, Any]:
            return {"id": key, "job": views.policy_request(policy.value())}

        with form(
            f"Move the job {key}",
            "Move it",
            *operation(self._session, ops.JOB_MOVE, wanted, _job_said),
        ):
            html(
                text(
                    f"It has {views.policy_text(job)} now. Its packets change over without a loss."
                ),
                name="p",
            )
            policy = policy_fields(self._session, job)

    def _move_back(self, key: str) -> None:
        confirm(
            f"Move the job {key} back?",
            ["It gets the policy that its hosts declare. Its packets change over without a loss."],
            "Move it back",
            *operation(self._session, ops.JOB_MOVE, lambda: {"id": key, "back": True}, _job_said),
            danger=False,
        )

    async def _details(self, key: str) -> None:
        session = self._session
        answer = await session.ask(ops.JOB_SHOW, id=key)
        if answer is None:
            return
        job = answer["job"]
        known = [
            ("State", _state_of(job)),
            ("User", f"{job['user']} (uid {job['uid']})"),
            ("Policy", views.policy_text(job)),
            ("Lanes", ", ".join(job["lanes"]) or "none of its own"),
            ("From", page_time(job["begin_s"])),
            ("Until", page_time(job["end_s"], "somebody ends it")),
            ("Begun by", "an order" if job["source"] == "order" else "its hosts"),
            ("Hosts", ", ".join(_host_text(job, host) for host in job["hosts"])),
        ]
        if job["moved"]:
            moved = job["moved"]
            known.append(("Moved", f"by {moved['by']} at {page_time(moved['at_s'])}"))
        with information(f"Job {key}") as dialog:
            html(facts(known))
            routes = Listing(
                session,
                "Paths of the job",
                [
                    Column("src", "From"),
                    Column("dst", "To"),
                    Column("dscp", "DSCP"),
                    Column("way", "NICs"),
                    Column("network", "Network"),
                    Column("alive", "State"),
                ],
                lambda asked: page_of(views.route_rows(job["routes"]), asked),
                key="key",
                empty=("It has no paths of its own.", "Its packets go as everybody's."),
            )
        with dialog:
            await routes.refresh()

    # ---- Reservations

    def _reserve(self) -> None:
        session = self._session

        def wanted() -> dict[str, Any]:
            filled = values(name, hosts, user, begins, ends, rate)
            chosen, now_s = policy.value(), time.time()
            made = views.reservation_request(*filled, policy=chosen, who=session.who, now_s=now_s)
            return {"reservation": made}

        def said(answer: OneReservation) -> str:
            made = answer["reservation"]
            return f"Reserved: {made['id']}, until {page_time(made['end_s'])}"

        with form(
            "Reserve paths", "Reserve them", *operation(session, ops.RESERVE_ADD, wanted, said)
        ):
            with side_by_side():
                hosts = field("Hosts", hint=some_hosts(session))
                rate = field("Rate", hint="What each host gets, as 400M; empty: whole lanes")
            with side_by_side():
                begins = field("Begins", hint=f"{times_hint()}; empty: now")
                ends = field("Ends", value="+2h", hint="As in Begins")
            with side_by_side():
                user = user_field(session)
                free = free_name(session, session.state["reservations"])
                name = field("Name", value=free, hint="Letters, digits and ._:-")
            policy = policy_fields(session, kind="exclusive")

    def _remove_reservation(self, action: str, key: str) -> None:
        remove(
            self._session,
            ops.RESERVE_REMOVE,
            f"the reservation {key}",
            ["Its paths are free for others, and jobs that run within it lose them."],
            id=key,
        )

    # ---- Policies and rights

    def _add_policy(self) -> None:
        def wanted() -> dict[str, Any]:
            return {"name": values(name)[0].strip(), "policy": views.policy_request(policy.value())}

        def said(answer: OnePolicy) -> str:
            return f"The policy {answer['policy']['name']} is there."

        with form(
            "Add a policy", "Add it", *operation(self._session, ops.POLICY_ADD, wanted, said)
        ):
            name = field("Name", hint="What jobs will call it")
            policy = policy_fields(self._session, named=False)
            policy.fold.open()

    def _remove_policy(self, action: str, key: str) -> None:
        kept = "Jobs and reservations that have it keep what they have."
        remove(self._session, ops.POLICY_REMOVE, f"the policy {key}", [kept], name=key)

    def _act_right(self, action: str, key: str) -> None:
        if action == "change":
            self._set_right(self._session.state["rights"].get(key))
        elif action == "remove":
            sentences = [
                "The user then has the rights of everybody else, or none but shared paths.",
                "When the last rights are removed, every user may ask for everything.",
            ]
            what = f"the rights of {key}"
            remove(self._session, ops.RIGHTS_REMOVE, what, sentences, many=True, user=key)

    def _set_right(self, old: Right | None = None) -> None:
        """Ask for the rights of a user; `old` are those to begin with."""
        most_hosts = None if old is None else old["max_hosts"]
        most_bps = None if old is None else old["max_rate_bps"]

        def wanted() -> dict[str, Any]:
            kinds = [kind for kind, box in boxes.items() if box.value]
            name, most_rate, most = values(user, rate, hosts)
            right = views.right_request(name, kinds, most_rate, most, bool(reserve.value))
            return {"right": right}

        def said(answer: OneRight) -> str:
            return f"The rights of {answer['right']['user']} are set."

        with form(
            "Set rights", "Set them", *operation(self._session, ops.RIGHTS_SET, wanted, said)
        ):
            user = field(
                "User",
                value="" if old is None else old["user"],
                hint="A name or a uid; * is everybody without rights of their own",
            )
            with ui.element("fieldset").classes("card"):
                html(text("Policies that the user may ask for"), name="legend")
                boxes = {
                    kind: check(
                        f"{kind}: {about}",
                        value=kind == "shared" if old is None else kind in old["policies"],
                    )
                    for kind, about in views.KINDS.items()
                }
            with side_by_side():
                rate = field(
                    "Highest rate",
                    value="0" if most_bps == 0 else rate_input(most_bps),
                    hint="As 400M; 0 for none, empty for no limit",
                )
                hosts = field(
                    "Most hosts",
                    value="" if most_hosts is None else str(most_hosts),
                    hint="Of one job; empty for no limit",
                )
            reserve = check("May reserve paths", value=old is not None and old["reserve"])


def _job_said(answer: OneJob) -> str:
    return f"Job {answer['job']['id']}: {_state_of(answer['job'])}"


def _state_of(job: Job) -> str:
    return f"{job['state']}: {job['why']}" if job["why"] else str(job["state"])


def _host_text(job: JobDetails, host: str) -> str:
    """A host of a job, with its class there, or why it cannot carry the order out."""
    failed = job.get("failed") or {}
    number = job.get("classes", {}).get(host)
    said = f"class {number}" if number is not None else "has not begun it"
    if host in failed:
        said += f", cannot carry out the order: {failed[host]}"
    return f"{host} ({said})"
