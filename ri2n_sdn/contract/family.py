# SPDX-License-Identifier: Apache-2.0
"""What one family of metrics is, and how its values are found in a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

__all__ = [
    "MAX_NAMES",
    "MAX_NICS",
    "MAX_USERS",
    "Family",
    "Label",
    "Own",
    "State",
    "Values",
    "at",
    "capped",
    "facts",
    "lengths",
    "numbers",
    "said",
]

MAX_USERS = 100
"""So many users have series of their own; what others have is under the user `(others)`."""

MAX_NAMES = 256
"""So many events, handlers and the like have series of their own."""

MAX_NICS = 64
"""So many NICs of a host have series of their own. A host may say that it has a thousand."""

State = Mapping[str, Any]
"""A state of the operation `watch`; its part `own` has the fields of Own."""

Values = Iterable[tuple[tuple[str, ...], float]]
"""The values of the labels, and the value."""


@dataclass(frozen=True)
class Own:
    """What the web process knows of itself and of its connection to the controller.

    `now_s`, `since_s` and `heard_s` are Unix times: now, of the last change of `connected`, and of
    the last line of the controller (None: there was none, or it is not known). So is
    `certificate_ends_s`, when its own certificate ends (None: it has none).
    """

    now_s: float
    connected: bool
    since_s: float
    heard_s: float | None
    version: str
    counters: Mapping[str, int] = field(default_factory=dict)
    certificate_ends_s: float | None = None


class Label(str):
    """A label, with how many values it has, for people.

    As a step of a path, it stands for every key of the map there, or for the first `most`.
    """

    bound: str
    most: int | None

    def __new__(cls, name: str, bound: str, most: int | None = None) -> Label:
        label = super().__new__(cls, name)
        label.bound, label.most = bound, most
        return label


@dataclass(frozen=True)
class Family:
    """One family of metrics.

    * `name` has no suffix; `kind` gives it one.
    * `where` is the path of its values in the state, or what makes them of the state. What is not
      there, or no number, has no series. For a histogram, it gives `le` as the last label, and two
      values more, with `count` and `sum` in its place.
    * `given` are the labels of what `where` makes.
    * `of` makes the value of what stands at the path.
    * `web`: it is there also while the controller is not.
    * `charge`: only a controller in charge measures or decides it. One that stands by has no values
      of it, or those of before.
    * `sampled`: rounds read or decide it, so it is old when there were none for OLD_SAMPLE_S.
    """

    kind: Literal["counter", "gauge", "histogram", "info"]
    about: str
    where: tuple[str, ...] | Callable[[State], Values]
    given: tuple[str, ...] = ()
    of: Callable[[Any], object] | None = None
    name: str = ""
    web: bool = False
    charge: bool = False
    sampled: bool = False

    @property
    def full_name(self) -> str:
        """The name that queries use; that of a histogram gets `_bucket`, `_count` or `_sum`."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of the path, or those that are given."""
        if callable(self.where):
            return self.given
        return tuple(step for step in self.where if isinstance(step, Label))

    @property
    def bound(self) -> str:
        """How many series there are at most, for people: as many as the last label has values."""
        bounds = [label.bound for label in self.labels if isinstance(label, Label)]
        return bounds[-1] if bounds else "15" if self.kind == "histogram" else "1"

    def values(self, state: State) -> Values:
        """Its values in a state."""
        if callable(self.where):
            return self.where(state)
        found = at(state, self.where)
        return numbers(
            found if self.of is None else ((key, self.of(value)) for key, value in found)
        )


def at(state: State, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any]]:
    """What stands at a path, with the values of its labels."""
    found: list[tuple[tuple[str, ...], Any]] = [((), state)]
    for step in path:
        if isinstance(step, Label):
            found = [
                ((*key, name), inner)
                for key, part in found
                for name, inner in islice(part.items(), step.most)
            ]
        else:
            found = [(key, part[step]) for key, part in found if step in part]
    return found


def numbers(found: Iterable[tuple[tuple[str, ...], Any]]) -> Values:
    """What is a number of what was found."""
    # A float has no place for larger integers.
    return (
        (key, float(value))
        for key, value in found
        if isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 1000)
    )


def facts(*path: str, keys: tuple[str, ...]) -> Callable[[State], Values]:
    """The facts that stand at a path as labels; what is not known is empty."""
    return lambda state: (
        ((*key, *(facts.get(each) or "" for each in keys)), 1.0) for key, facts in at(state, path)
    )


def said(*path: str) -> Callable[[State], Values]:
    """The text that stands at a path as a label."""
    return lambda state: [((text,), 1.0) for _, text in at(state, path) if isinstance(text, str)]


def lengths(key: str) -> Callable[[State], Values]:
    """The buckets, the count and the sum of a histogram."""

    def values(state: State) -> Iterator[tuple[tuple[str, ...], float]]:
        for _, lengths in at(state, ("lengths", key)):
            total = 0
            bounds = [f"{float(bound)}" for bound in lengths["bounds_s"]]
            for bound, count in zip([*bounds, "+Inf"], lengths["counts"], strict=False):
                total += count
                yield (bound,), float(total)
            yield ("count",), float(total)
            yield ("sum",), float(lengths["sum_s"])

    return values


def capped(counts: Mapping[str, float], limit: int = MAX_NAMES) -> Values:
    """The counts by name, of `limit` names; those of the others together.

    Names are sorted, so they are the same ones each time.
    """
    names = sorted(counts)
    for name in names[:limit]:
        yield (name,), float(counts[name])
    if len(names) > limit:
        yield ("(others)",), float(sum(counts[name] for name in names[limit:]))
