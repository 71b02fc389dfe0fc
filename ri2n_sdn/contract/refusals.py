# SPDX-License-Identifier: Apache-2.0
"""Why a request is refused: each code with its kind and its sentence, and the answer's form."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from ri2n_sdn.contract.printing import printable
from ri2n_sdn.contract.wording import fill
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError

__all__ = ["KINDS", "REFUSALS", "Form", "Kind", "answer_of", "error_of", "refusal"]

Kind = Literal[
    "bad_input",
    "not_found",
    "conflict",
    "refused",
    "busy",
    "unavailable",
    "not_in_charge",
    "internal",
]
"""What a program can do about a refusal.

`bad_input`: send another request. `not_found`: what it is about does not exist. `conflict`: wait
until something else has changed. `refused`: ask somebody with more rights. `busy`: the same request
may succeed in some seconds. `unavailable`: something that the controller needs is away; try again.
`not_in_charge`: ask the other controller. `internal`: a mistake in the program.
"""

KINDS: tuple[Kind, ...] = get_args(Kind)

_LATER = frozenset({"busy", "unavailable", "not_in_charge", "internal"})
_SUBJECTS = ("host", "nic", "job", "user")


class Form(NamedTuple):
    """The kind of a code, and its sentence as a template; a key is put in front of it."""

    kind: Kind
    text: str


_bad, _gone = partial(Form, "bad_input"), partial(Form, "not_found")
_clash, _no = partial(Form, "conflict"), partial(Form, "refused")
_away, _busy = partial(Form, "unavailable"), partial(Form, "busy")

REFUSALS: Mapping[str, Form] = {
    # ---- What does not exist; `name` is how it was asked for.
    "no_such_job": _gone("{name}: no such job; see `ri2n job ls` and `ri2n job history`"),
    "no_such_reservation": _gone("{name}: no such reservation"),
    "no_such_policy": _gone("{name}: no such policy"),
    "no_such_right": _gone("{name}: has no entry"),
    "no_such_token": _gone("{name}: no such token"),
    "no_such_parameter": _gone("{name}: no such parameter"),
    "no_such_fault": _gone("{name}: no such fault"),
    "no_such_nic": _gone("{name}: no such NIC"),
    "no_such_network": _gone("{name}: no such network"),
    "no_such_switch": _gone("{name}: no such switch"),
    "no_such_cable": _gone("{name}: no such cable"),
    "no_such_table": _gone("{name}: no such table"),
    # ---- The form of a request. These have a key in front.
    "request_not_json": _bad("not a JSON object on one line"),
    "request_not_object": _bad("a request must be a JSON object"),
    "unknown_key": _bad("unknown key {name}"),
    "missing": _bad("is missing"),
    "not_text": _bad("must be a text"),
    "not_flag": _bad("must be true or false"),
    "not_number": _bad("must be a number"),
    "not_rate_number": _bad("must be a number of bit/s"),
    "not_object": _bad("must be an object"),
    "not_object_with": _bad("must be an object with the keys {keys}"),
    "not_one_of": _bad("must be one of {choices}"),
    "value_not_one_of": _bad("{value} must be one of {choices}"),
    "out_of_range": _bad("must be {low} to {high}"),
    "value_out_of_range": _bad("{value} must be from {low} to {high}"),
    "not_user_name": _bad("must be the name of a user"),
    "not_host_name": _bad("must be the name of a host"),
    "not_policy_name": _bad("must be the name of a policy"),
    "not_strategy_name": _bad("must be the name of a strategy"),
    "not_program_name": _bad("must be the name of a program"),
    "not_job_id": _bad("must be the id of a job"),
    "not_policy_kinds": _bad("must be a list of kinds of policies"),
    # ---- Names, numbers and times, as people write them.
    "name_form": _bad(
        "{value} must be 1 to 64 letters, digits and {marks} and begin with a letter or digit"
    ),
    "host_not_name": _bad("{value} is not the name of a host"),
    "user_not_name": _bad("{value} is not the name of a user"),
    "policy_name_is_kind": _bad("{name} is a kind of policies: choose another name"),
    "path_name_form": _bad("{value} must be NETWORK, NETWORK/VLAN, vlan:VLAN, HOST:NIC or NIC"),
    "vlan_too_high": _bad("{value}: a VLAN is at most {high} (0 is untagged)"),
    "rate_form": _bad("{value} must be a number with k, M or G (bit/s), as 400M"),
    "rate_not_whole": _bad("{value} is no whole number of bit/s"),
    "rate_too_high": _bad("{value} must be from 1 bit/s to {most}"),
    "rate_out_of_range": _bad("{value} must be from 1 to {high} bit/s"),
    "rate_above_most": _bad("{low} is above max_rate_bps {high}"),
    "duration_form": _bad("{value} must be a number with s, m, h or d, as 2h"),
    "time_form": _bad("{value} must be a time as 2026-11-27T10:00 (UTC), or as +2h"),
    "time_offset": _bad("{value}: there is no offset {zone}"),
    "time_out_of_range": _bad("{value} is not between the years 1970 and 9999"),
    "end_not_later": _bad("{end} is not after the start {begin}"),
    "table_form": _bad("{value} must be DSCP=NAME,... as in 10=net2"),
    "table_empty": _bad("DSCP {dscp} names no paths"),
    "dscp_form": _bad("a DSCP is a number from 0 to {high}, not {value}"),
    "service_form": _bad(
        "{value} must be ADDRESS/tcp/PORT or ADDRESS/udp/PORT, as 10.0.0.9/tcp/2049 or "
        "[fd77::9]/tcp/2049"
    ),
    "service_not_address": _bad("{value} is not an IP address"),
    "service_brackets": _bad("{value}: only an IPv6 address has brackets"),
    "service_no_host": _bad("{value} is no address of a host"),
    "service_protocol": _bad("the protocol is tcp or udp, not {value}"),
    "service_port": _bad("a port is a number from 1 to 65535, not {value}"),
    "services_need_isolated": _bad("policy {policy} has none (only policy isolated has)"),
    "shared_has_no_paths": _bad("policy shared has no paths of its own (choose policy paths)"),
    "paths_needs_paths": _bad("policy paths must name at least one path"),
    "reservation_of_nothing": _bad(
        "a reservation needs paths of its own or a rate, not shared alone"
    ),
    "none_there": _bad("there is none"),
    "twice": _bad("{what} is there twice"),
    "too_many": _bad("there are more than {most}"),
    "too_many_names": _bad("there are more than {most} names in a table"),
    # ---- The forms of pages, where a key is the label of a field.
    "login_ended": _no("Your login has ended. Log in again."),
    "name_a_host": _bad("name a host"),
    "ports_need_protocol": _bad("only TCP and UDP have ports; choose one, or leave it empty"),
    "address_needs_protocol": _bad("only a flow has one; choose a protocol, or leave it empty"),
    "not_number_up_to": _bad("must be a number from 0 to {high}"),
    "not_whole_number": _bad("must be a whole number"),
    "not_later_than_now": _bad("must be later than now"),
    "not_later_than_begin": _bad("must be later than now, and than its begin"),
    "end_missing": _bad("is missing; a reservation ends, as at +2h"),
    "paths_missing": _bad("are missing; name networks or NICs, as net1,net2"),
    "hosts_missing": _bad("are missing; name them with commas, as n1,n2"),
    "everybody_missing": _bad("is missing; * stands for everybody who has no rights of their own"),
    "least_above_most": _bad("is more than At most"),
    "not_whole_or_no_limit": _bad("must be a whole number, or empty for no limit"),
    "days_form": _bad("must be a whole number from 1 to {high}, or empty for no end"),
    "tables_form": _bad("each line must be DSCP=NAME,... as 10=net2, with a DSCP up to {high}"),
    "not_whole_within": _bad("must be a whole number from {range}"),
    "not_number_within": _bad("must be a number from {range}"),
    # ---- Who asks.
    "as_not_here": _bad("is for the socket of the web process alone"),
    "as_not_object": _bad("must be an object with user, uid and role"),
    "uid_out_of_range": _bad("must be 0 to {high}, or null"),
    "uid_is_root": _no("{user} has uid 0, which needs the role admin"),
    "role_too_low": _no("{op}: needs the role {needed}, and {user} is {role}"),
    "root_only": _no("{what}: only root may change them"),
    "not_yours": _no("{what}: it is of {owner}, and you are {asker}"),
    "connections_full": _busy("you have too many open connections"),
    "watchers_full": _busy("{most} watch already, no more are accepted"),
    # ---- The way to the controller.
    "controller_absent": _away(
        "{path}: no controller listens there; start one with `ri2n controller`"
    ),
    "controller_for_root": _away(
        "{path}: permission denied; the controller's socket is for root: use sudo"
    ),
    "controller_for_group": _away(
        "{path}: permission denied; start the controller with --web-group and the group of this "
        "process"
    ),
    "controller_unreachable": _away("{path}: {why}"),
    "controller_late": _away("{path}: the controller did not answer in {after_s:g} s"),
    "controller_broke_off": _away("{path}: the controller has broken off the stream"),
    "controller_stranger": _away("{path}: what listens there is not a RI2N controller"),
    "controller_away": _away("{why}"),
    "answer_late": _away("the controller did not answer in {after_s:g} s"),
    "answer_too_long": _away("the controller's answer was too long"),
    "answer_wrong": _away("the controller's answer made no sense"),
    # ---- The controller and its store.
    "controller_ends": _away("the controller ends"),
    "store_closed": _away("the store is closed"),
    "store_queue_full": _busy("{store}: too many changes wait for it"),
    "store_away": _away("{problem}"),
    "store_not_acknowledged": _away("{store}: it has not acknowledged a change in time"),
    "not_in_charge": Form("not_in_charge", "this controller is not in charge: {other} is"),
    "store_refuses": _bad("{store} refuses a change: {why}"),
    "row_of_store": _bad("Cluster: the store writes this row itself"),
    "row_not_storable": _bad("{table}: {column}: {value} cannot be stored"),
    "stands_by": Form("not_in_charge", "this controller stands by ({why}): ask the other one"),
    "file_wrong": _bad("{why}"),
    "internal_error": Form("internal", "internal error: {error}"),
    # ---- Parameters.
    "parameter_not_live": _clash(
        "{name}: cannot be changed while the controller runs; see cluster.yaml"
    ),
    "parameter_unknown_choice": _bad("unknown {value}: choose one of {choices}"),
    "parameter_not_whole": _bad("must be a whole number from {low:g} to {high:g}{unit}"),
    "parameter_not_number": _bad("must be a number from {low:g} to {high:g}{unit}"),
    "parameter_span_crossed": _bad(
        "{name}: the shortest HBSPAN would exceed the longest ({low:g} s and {high:g} s)"
    ),
    "strategy_unknown": _bad("unknown strategy {name!r}: choose one of {choices}"),
    # ---- Hosts, pairs and flows.
    "no_such_host": _gone("{name}: no such host"),
    "no_such_host_of": _gone("{name}: no such host; known are {known}"),
    "host_unknown": _bad("no host {host}; known are {known}"),
    "host_not_there": _bad("no host {host}"),
    "same_host": _bad("{host}: source and destination are the same host"),
    "host_connected": _bad("{host}: is connected; run host-down on it first, or turn it off"),
    "host_just_connected": _bad("{host}: has just connected; run host-down on it first"),
    "host_declared": _bad("{host}: cluster.yaml names it; take it out there and run ri2n reload"),
    "host_needed": _bad("{host}: {by} it; end them first, or give --force"),
    "host_has_left": _away("{hosts}: one of them has just left"),
    "host_away_for_rows": _away(
        "{host}: it is not connected, so its rows of placed connections cannot be read"
    ),
    "host_rows_unread": _away("{host}: cannot read its rows of placed connections: {why}"),
    "address_unknown": _bad(
        "no {family} address of {host} is known; give the {end} address of the flow ({option})"
    ),
    "address_ambiguous": _bad(
        "{host} has several {family} addresses, {addresses}; give the {end} address of the flow "
        "({option})"
    ),
    "flow_form": _bad("must have protocol, and may have {keys}"),
    "address_families": _bad("{one} and {other}: one is IPv4, the other IPv6"),
    "address_wrong": _bad("{why}"),
    "no_job_runs": _bad("no job {job} runs; see `ri2n job ls`"),
    "lowest_first": _bad("the lowest rates first are for active pairs alone"),
    "no_path": _gone("{src} {dst}: these hosts have no path"),
    "protocol_missing": _bad("is missing, and a flow has one"),
    "not_of": _bad("must be of {choices}"),
    # ---- VLANs.
    "no_switch_links": _clash("cluster.yaml declares no links between switches"),
    "check_runs": _clash("another check is running"),
    "owner_form": _bad("must be a name of 1 to {most} printable characters"),
    "pairs_form": _bad("must be a list of [sender, receiver, VLAN ID]"),
    "pair_twice": _bad("{src} {dst} is there twice, or is no pair"),
    "table_wrong": _bad("{why}"),
    # ---- Tokens.
    "token_exists": _clash("there is a token {token} already"),
    "token_hash_exists": _clash("there is a token with this hash already"),
    "tokens_full": _clash("there are {most} tokens already"),
    "token_user_missing": _bad(
        "is missing; a token with the role user is for the jobs of one user"
    ),
    "token_hash_form": _bad("must be the SHA-256 of the token, 64 hexadecimal digits"),
    # ---- Notes: what hosts and the controller write to each other.
    "declaration_wrong": _bad("declaration of {host}: {why}"),
    "failure_wrong": _bad("failed order of {host}: {why}"),
    "host_not_among": _bad("the host that declares the job is not among them"),
    "not_printable_ascii": _bad("must be one line of printable ASCII"),
    "note_too_long_for_job": _bad(
        "{job}: its declaration has {size} bytes, more than {most}: name fewer hosts, paths or "
        "services"
    ),
    "key_twice": _bad("key {name} is there twice"),
    "not_a_number": _bad("{value} is no number"),
    "note_too_long": _bad("the note has {size} bytes, more than {most}"),
    "note_not_utf8": _bad("the note is not UTF-8 text"),
    "note_too_deep": _bad("the note is nested too deep"),
    "note_not_json": _bad("the note is not JSON: {why}"),
    "note_not_mapping": _bad("the note is not a mapping of keys, it is {type}"),
    "value_wrong": _bad("{why}"),
    # ---- Jobs, reservations, rights and policies.
    "job_exists": _clash("there is a job {job} already"),
    "jobs_full": _clash("there are {most} jobs already, no more are accepted"),
    "share_full": _clash("{user} has {most} {what} already, no more are accepted"),
    "begun_on_hosts": _clash("{job}: it was begun on its hosts; run job-end --id {id} on {hosts}"),
    "back_and_policy": _bad("says which policy it is, so there can be no other"),
    "order_has_no_other": _clash("{job}: it is an order, so it has no other policy to go back to"),
    "has_declared_policy": _clash("{job}: it has the policy that its hosts declare"),
    "cannot_be_changed": _bad("{keys} cannot be changed"),
    "rate_held_by_hosts": _bad(
        "the hosts of {job} hold it to its rate; run job-begin --change --id {id} there"
    ),
    "not_admitted": _clash("refused: {why}"),
    "over_already": _bad("is over before it begins, or already"),
    "reservation_exists": _clash("there is a reservation {reservation} already"),
    "reservations_full": _clash("there are {most} reservations already"),
    "policy_exists": _clash("there is a policy {policy} already"),
    "policies_full": _clash("there are {most} policies already"),
    "policy_unknown": _bad("there is no policy {policy}; see `ri2n policy ls`"),
    "policy_missing": _bad("is missing, and so is body.named"),
    "user_missing": _bad("is missing, and {name} is for no user"),
    "uid_missing": _bad("is missing, and this machine knows no user {user}"),
    "policy_said_twice": _bad("the named policy says what {keys} would: omit one"),
}
"""The refusals of the controller, by their lasting codes."""


def refusal(code: str, key: str | None = None, /, **args: Any) -> Ri2nError:
    """The error of a code, to be raised: NotAvailable where waiting helps, otherwise BadInput.

    `key` is the key of the request that is wrong. What the error is about are those of `args` that
    are named as in _SUBJECTS.
    """
    form = REFUSALS[code]
    what = fill(form.text, args)
    cls = NotAvailable if form.kind in _LATER else BadInput
    return cls(
        what if key is None else f"{key}: {what}",
        code=code,
        kind=form.kind,
        key=key,
        subject={of: args[of] for of in _SUBJECTS if isinstance(args.get(of), str)},
        values=args,
        what=what,
    )


def answer_of(error: Ri2nError) -> dict[str, Any]:
    """The answer to a request that is refused. `error` is the sentence; no program needs it.

    Texts may repeat parts of the request, which may hold any character: only printable ones stay.
    """
    return {
        "ok": False,
        "code": error.code or error.kind,
        "kind": error.kind,
        "key": error.key,
        "subject": _plain(error.subject),
        "args": _plain(error.values),
        "error": _plain(str(error)),
    }


def _plain(value: Any) -> Any:
    """A JSON value whose texts are printable."""
    if isinstance(value, str):
        return printable(value, None)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return value


def error_of(answer: Mapping[str, Any]) -> Ri2nError:
    """The error that an answer tells of, whatever is in it: another version may have made it."""
    text = str(answer.get("error", "the controller refused without a reason"))
    code, kind, key = answer.get("code"), answer.get("kind"), answer.get("key")
    values, subject = answer.get("args"), answer.get("subject")
    code = code if isinstance(code, str) else ""
    kind = kind if kind in KINDS else "bad_input"
    key = key if isinstance(key, str) else None
    try:
        what = fill(REFUSALS[code].text, values) if isinstance(values, dict) else text
    except (KeyError, ValueError, TypeError):  # of another version
        what = text
    return (NotAvailable if kind in _LATER else BadInput)(
        text,
        code=code,
        kind=kind,
        key=key,
        subject=subject if isinstance(subject, dict) else None,
        values=values if isinstance(values, dict) else None,
        what=what,
    )
