# SPDX-License-Identifier: Apache-2.0
"""The inputs that the forms about jobs, reservations and policies have in common."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from ri2n_sdn.contract.choices import Kind
from ri2n_sdn.contract.documents import PolicyOf
from ri2n_sdn.web.gui.dialogs import field, side_by_side
from ri2n_sdn.web.gui.frame import html
from ri2n_sdn.web.gui.job_views import KINDS, PolicyForm, policy_text
from ri2n_sdn.web.gui.markup import text
from ri2n_sdn.web.gui.session import Session
from ri2n_sdn.web.gui.words import rate_input

__all__ = [
    "free_name",
    "policy_fields",
    "some_hosts",
    "user_field",
    "values",
]

# What the choice of a named policy has before its name. No kind of policies begins so.
_NAMED = "named "

_NO_NAME = re.compile(r"[^A-Za-z0-9._:-]+|^[^A-Za-z0-9]+")
_STEM_LETTERS = 48


@dataclass
class PolicyFields:
    """The inputs of a form that say which policy.

    `fold` has what is seldom needed; a form may add to it.
    """

    inputs: dict[str, Any]
    fold: ui.expansion

    def value(self) -> PolicyForm:
        """What is in them now. What is not shown does not count."""
        kind = str(self.inputs["kind"].value or "")
        if kind.startswith(_NAMED):
            return PolicyForm(named=kind.removeprefix(_NAMED))
        others = {
            key: str(made.value or "")
            for key, made in self.inputs.items()
            if key != "kind" and made.visible
        }
        return PolicyForm(kind=kind, **others)


def policy_fields(
    session: Session,
    job: PolicyOf | None = None,
    *,
    kind: Kind = "shared",
    named: bool = True,
) -> PolicyFields:
    """Inputs for a policy, filled in with that of `job`.

    The common case is one choice: a kind, or with `named` a policy that has a name. Paths are asked
    for where the kind has some. All else is in a part that unfolds.
    """
    old = job or PolicyOf(
        policy=kind, paths=[], tables=[], services=[], min_rate_bps=None, max_rate_bps=None
    )
    inputs: dict[str, Any] = {}
    choices = {name: f"{name}: {about}" for name, about in KINDS.items()}
    for name, policy in sorted(session.state["policies"].items()) if named else ():
        choices[f"{_NAMED}{name}"] = f"{name} ({policy_text(policy)})"
    with side_by_side():
        chosen = ui.select(choices, value=old["policy"], label="Policy")
        inputs["kind"] = chosen.props("outlined dense").style("width: 100%")
        networks = ", ".join(sorted(session.state["networks"])[:4]) or "net1"
        paths = inputs["paths"] = field(
            "Paths",
            value=", ".join(old["paths"]),
            hint=f"Some of {networks}; or VLANs and NICs, as vlan:12, A:eth0",
        )
    fold = ui.expansion("More: rates, services, paths by DSCP").classes("fold")
    with fold, ui.element("div") as rest:
        _seldom(inputs, old)

    def update() -> None:
        is_named = str(chosen.value or "").startswith(_NAMED)
        paths.visible = not is_named and (chosen.value != "shared" or bool(old["paths"]))
        rest.visible = not is_named
        fold.visible = not is_named or len(fold.default_slot.children) > 1

    chosen.on_value_change(update)
    update()
    return PolicyFields(inputs, fold)


def _seldom(inputs: dict[str, Any], old: PolicyOf) -> None:
    """The inputs of a policy that most leave empty."""
    with side_by_side():
        for key, label, example, rate_bps in (
            ("min_rate", "At least", "400M", old["min_rate_bps"]),
            ("max_rate", "At most", "800M", old["max_rate_bps"]),
        ):
            hint = f"Rate of each host, as {example}"
            inputs[key] = field(label, value=rate_input(rate_bps), hint=hint)
    inputs["services"] = field(
        "Services",
        value=", ".join(old["services"]),
        hint="What an isolated job may reach, as 10.0.0.9/tcp/2049",
    )
    inputs["tables"] = field(
        "Tables",
        value="\n".join(f"{table['dscp']}={','.join(table['paths'])}" for table in old["tables"]),
        hint="Paths of packets with a DSCP, one per line, as 10=net2",
        lines=True,
    )


def user_field(session: Session) -> Any:
    """Whose it will be. A user's own are all that a user has, so there is nothing to fill in."""
    who = session.who
    if who.role == "user" and who.user is not None:
        html(text(f"It will be of {who.user}."), name="p")
        return None
    state = session.state
    known = {each["user"] for each in state["jobs"].values()}
    known |= {each["user"] for each in state["reservations"].values()}
    known |= state["rights"].keys() - {"*"}
    made = field("User", value=who.user or "", hint="Whose it will be")
    made.set_autocomplete(sorted(known)[:100])
    return made


def free_name(session: Session, taken: Container[str]) -> str:
    """A name that is not taken: `alice-1`, or `job-1`."""
    stem = _NO_NAME.sub("", session.who.user or "")[:_STEM_LETTERS] or "job"
    return next(name for number in itertools.count(1) if (name := f"{stem}-{number}") not in taken)


def values(*fields: Any) -> list[str]:
    """What is in inputs. One that is not there is empty."""
    return ["" if each is None else str(each.value or "") for each in fields]


def some_hosts(session: Session) -> str:
    """A hint: how hosts are named, and which there are."""
    hosts = sorted(session.state["hosts"])
    more = f" and {len(hosts) - 4:,} more" if len(hosts) > 4 else ""
    return f"With commas. Known are {', '.join(hosts[:4]) or 'none yet'}{more}"
