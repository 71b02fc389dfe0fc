# SPDX-License-Identifier: Apache-2.0
"""What a host says about its jobs, and what the controller answers, as notes in OpenFlow rows.

A note is JSON in UTF-8. Everything in it may be wrong or hostile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NoReturn, TypeVar, cast

from pydantic import Field, ValidationError

from ri2n_sdn.contract.choices import Kind, Source
from ri2n_sdn.contract.limits import MAX_CLASS
from ri2n_sdn.contract.names import job_id
from ri2n_sdn.contract.printing import cut, one_line, shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.yamlfile import StrictModel, key_path
from ri2n_sdn.jobs.check import check_job
from ri2n_sdn.jobs.model import Job, PathTable, Policy
from ri2n_sdn.jobs.text import parse_service, policy_document

__all__ = [
    "MAX_FAILURE",
    "MAX_NOTE_BYTES",
    "UNKNOWN_CLASS",
    "Answer",
    "Declaration",
    "Failure",
    "read_declaration",
    "read_failure",
    "read_order",
    "write_answer",
    "write_order",
]

MAX_NOTE_BYTES = 16384
"""The largest note that is read or written."""

MAX_WHY = 400
"""The largest number of characters of an answer's line."""

MAX_FAILURE = 200
"""The largest number of characters of a host's line about an order that it cannot carry out."""

UNKNOWN_CLASS = 0
"""The class of a job at a host that has not said it to this controller yet (jobs.believed)."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A job as one host declares it.

    `number` is its class there, 1..MAX_CLASS, or UNKNOWN_CLASS.
    """

    host: str
    number: int
    job: Job


@dataclass(frozen=True, slots=True)
class Answer:
    """What the controller says of a declared job.

    `state` is installed, waiting or refused, `why` is one line.
    """

    id: str
    state: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An order that one host cannot carry out, and why, in one line of printable ASCII."""

    host: str
    id: str
    why: str


ModelT = TypeVar("ModelT", bound=StrictModel)

# A value that is not of the right type never reaches jobs.check, which says what else must hold.
_Text = Annotated[str, Field(max_length=256)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Table(StrictModel):
    dscp: _Whole
    paths: Annotated[list[_Text], Field(max_length=1024)]


class _Job(StrictModel):
    """The keys of a declaration and of an order."""

    v: Annotated[int, Field(ge=1, le=1)]
    id: _Text
    user: _Text
    uid: _Whole
    hosts: Annotated[list[_Text], Field(max_length=4096)]
    policy: _Text
    begin_s: _Number
    paths: Annotated[list[_Text], Field(max_length=1024)] = Field(default_factory=list)
    tables: Annotated[list[_Table], Field(max_length=1024)] = Field(default_factory=list)
    services: Annotated[list[_Text], Field(max_length=1024)] = Field(default_factory=list)
    min_rate_bps: _Whole | None = None
    max_rate_bps: _Whole | None = None
    end_s: _Number | None = None
    source: _Text = "host"


class _Declaration(_Job):
    number: Annotated[int, Field(alias="class", ge=1, le=MAX_CLASS)]


class _Order(_Job):
    order: Literal[True]


class _Failure(StrictModel):
    v: Annotated[int, Field(ge=1, le=1)]
    id: _Text
    failed: Literal[True]
    why: Annotated[str, Field(min_length=1, max_length=MAX_FAILURE)]


def read_declaration(host: str, note: bytes) -> Declaration:
    """The job that a host declares in the note of a row of table 248.

    Raises BadInput with one line that begins with the host's name and the key that is wrong.
    """
    try:
        read = _validated(_Declaration, note)
        job = _job(read)
        if host not in job.hosts:
            raise refusal("host_not_among", "hosts")
        return Declaration(host, read.number, job)
    except BadInput as error:
        raise refusal("declaration_wrong", host=host, why=str(error)) from None


def read_failure(host: str, note: bytes) -> Failure:
    """What a host says in the note of a row of table 248 about an order that it cannot carry out.

    Raises BadInput with one line that begins with the host's name and the key that is wrong.
    """
    try:
        read = _validated(_Failure, note)
        job_id(read.id)
        if not (read.why.isascii() and read.why.isprintable()):
            raise refusal("not_printable_ascii", "why")
        return Failure(host, read.id, read.why)
    except BadInput as error:
        raise refusal("failure_wrong", host=host, why=str(error)) from None


def read_order(note: bytes) -> Job:
    """The job that the controller orders in the note of a row of table 247.

    Raises BadInput with one line that begins with the key that is wrong.
    """
    return _job(_validated(_Order, note))


def write_order(job: Job) -> bytes:
    """The note of an order, without padding. Raises BadInput when it is too long."""
    return _written({**_document(job), "order": True}, job.id)


def write_answer(answer: Answer) -> bytes:
    """The note of an answer, without padding; a line that is too long is cut."""
    why = cut(one_line(answer.why), MAX_WHY)
    return _written({"id": answer.id, "state": answer.state, "why": why}, answer.id)


def _document(job: Job) -> dict[str, object]:
    """The JSON of a job; keys without a value are left out."""
    document: dict[str, object] = {
        "v": 1,
        "id": job.id,
        "user": job.user,
        "uid": job.uid,
        "hosts": list(job.hosts),
        **policy_document(job.policy.canonical()),
        "begin_s": _plain(job.begin_s),
        "end_s": None if job.end_s is None else _plain(job.end_s),
        "source": job.source,
    }
    return {key: value for key, value in document.items() if value not in (None, [])}


def _plain(time_s: float) -> float | int:
    """A time without a part of a second as a whole number, which bash can read, too."""
    return int(time_s) if time_s == int(time_s) else time_s


def _written(document: Mapping[str, object], name: str) -> bytes:
    note = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    if len(note) > MAX_NOTE_BYTES:
        raise refusal("note_too_long_for_job", job=name, size=len(note), most=MAX_NOTE_BYTES)
    return note


def _job(read: _Job) -> Job:
    tables = [PathTable(None, tuple(read.paths))] if read.paths else []
    tables += [PathTable(table.dscp, tuple(table.paths)) for table in read.tables]
    policy = Policy(
        cast(Kind, read.policy),
        tuple(tables),
        tuple(parse_service(text, "services") for text in read.services),
        read.min_rate_bps,
        read.max_rate_bps,
    )
    job = Job(
        read.id,
        read.user,
        read.uid,
        tuple(read.hosts),
        policy,
        read.begin_s,
        read.end_s,
        cast(Source, read.source),
    )
    check_job(job)
    return replace(job, hosts=tuple(sorted(job.hosts)), policy=policy.canonical())


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise refusal("key_twice", name=shown(key))
        result[key] = value
    return result


def _no_constant(text: str) -> NoReturn:
    raise refusal("not_a_number", value=text)


def _validated(model: type[ModelT], note: bytes) -> ModelT:
    """What a note without its padding says. Raises BadInput."""
    if len(note) > MAX_NOTE_BYTES:
        raise refusal("note_too_long", size=len(note), most=MAX_NOTE_BYTES)
    try:
        document = json.loads(
            note.rstrip(b"\0").decode(), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except UnicodeDecodeError:
        raise refusal("note_not_utf8") from None
    except RecursionError:
        raise refusal("note_too_deep") from None
    except ValueError as error:  # JSONDecodeError, and an integer with thousands of digits
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
        raise refusal("note_not_json", why=reason) from None
    if not isinstance(document, dict):
        raise refusal("note_not_mapping", type=type(document).__name__)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    loc = list(first["loc"])
    if first["type"] == "extra_forbidden":
        # Such a key may be anything.
        raise refusal("unknown_key", name=key_path([*loc[:-1], shown(loc[-1])]))
    if first["type"] == "missing":
        raise refusal("missing", key_path(loc))
    raise refusal("value_wrong", key_path(loc), why=first["msg"])
