# SPDX-License-Identifier: Apache-2.0
"""The table of events: what may happen, how bad that is, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ri2n_sdn.contract.problems import PROBLEMS
from ri2n_sdn.contract.said import Kind, Said

__all__ = ["EVENTS", "Event"]

_CHECK_CABLE = "check its cable and its switch port"
_CORRECT = "the text says why. Correct that, and try again"
_FAST = "run host-doctor there; meanwhile, all frames pass the bridge"
_HELPER = "run systemctl restart ri2n-reorder on that host"
_OTHERS = "find out who else changes the rows of that host"
_RESTART_FAST = "run systemctl restart ri2n-fast on that host"
_TWO_CONTROLLERS = "stop one of the controllers, or give both one store"

_JOB = "job {job} of {user}"
_NIC = "{host}:{nic}"


_info, _warning, _bad = partial(Kind, "info"), partial(Kind, "warning"), partial(Kind, "bad")

EVENTS: Mapping[str, Kind] = {
    # The controller
    "takes_charge": _info("in charge from now on"),
    "in_charge": _info("in charge of {count} hosts: {hosts}"),
    "stands_by": _info("standing back: {why}"),
    "stands_back": _bad("standing back: {why}", _TWO_CONTROLLERS),
    "rival_met": _bad("another controller, {controller}, has {host}", _TWO_CONTROLLERS),
    "rival_gone": _info("the other controller has gone: this one starts anew"),
    "taken_over": _warning("another controller has taken over: this one starts anew"),
    "host_has_other_master": _warning("{host} has another controller as its master"),
    "not_reloaded": _warning(
        PROBLEMS["not_reloaded"].text,
        "correct the file that the text names, then run ri2n reload",
    ),
    "parameter_set": _info("{parameter} is {value}"),
    "parameter_set_by": _info("{parameter} is {value}: {by} has set it"),
    "path_table_set": _info("{owner} has a path table of {pairs} pairs"),
    "path_table_ended": _info("{owner}'s path table has ended"),
    # Hosts
    **{
        code: _bad(PROBLEMS[code].text, _CORRECT)
        for code in (
            *("host_name_taken", "host_mac_taken", "host_datapath_taken", "host_name_invalid"),
            *("host_mac_impossible", "host_macs_equal", "host_certificate_foreign"),
        )
    },
    "host_connected": _info("{host} connected from {address}, Open vSwitch {ovs}, {nics} NICs"),
    "host_disconnected": _bad("{host} disconnected", "run host-status on that host: it says why"),
    "host_away_long": _info("{host} is forgotten: not connected for {away_s:.0f} s"),
    "host_alone": _info("{host} is forgotten: it shared no network with others"),
    "host_renamed": _info("{host} is forgotten: its name is {name} now"),
    "host_address_lost": _warning("{host} is forgotten: its address belongs to another host"),
    "host_retired": _info("{host} is retired: {by} has asked for it"),
    "rows_repaired": _warning("{host}: rows were missing or unknown, and were repaired", _OTHERS),
    "tables_emptied": _bad("{host}: its tables were emptied", _OTHERS),
    "tables_emptied_again": _bad(
        "{host}: its tables were emptied again, and are made again in {wait_s:g} s", _OTHERS
    ),
    # NICs and networks
    "nic_up": _info("{host}: {nic} is up"),
    "nic_down": _warning("{host}: {nic} is down", _CHECK_CABLE),
    "nic_removed": _warning("{host}: {nic} was removed"),
    "nic_sends_nothing": _warning(f"{_NIC}: nothing it sends arrives", _CHECK_CABLE),
    "nic_receives_nothing": _warning(f"{_NIC}: nothing arrives", _CHECK_CABLE),
    "nic_sends_again": _info(f"{_NIC} sends again"),
    "nic_receives_again": _info(f"{_NIC} receives again"),
    "nic_cut_off": _warning(f"{_NIC} is cut off from the rest of {{network}}", _CHECK_CABLE),
    "nic_moved": _warning(
        f"{_NIC} moved from {{before}} to {{network}}",
        "plug the cable in where cluster.yaml says, or correct cluster.yaml",
    ),
    "networks_joined": _info(f"{{other}} and {{network}} are one network ({_NIC} hears both)"),
    # Switches of a fat tree
    **{
        code: PROBLEMS[code]
        for code in (
            *("switch_dead", "switch_cut_off", "cable_dead", "cable_dead_in_vlans"),
            *("cable_one_way", "cable_one_way_in_vlans"),
            *("nic_vlans_cut", "nic_vlans_unheard", "nic_vlans_hear_nothing"),
        )
    },
    "switch_works_again": _info("{switch}: works again"),
    "cable_works_again": _info("{cable}: works again"),
    "nic_vlans_work_again": _info("{host}:{nic} on {switch}, {vlans:vlan}: works again"),
    # Helpers
    "helper_runs": _info("{host}: its helper runs"),
    "helper_stopped": _warning(PROBLEMS["helper_stopped"].text, _HELPER),
    "helper_silent": _warning(
        "{host}'s helper has stopped reporting: its traffic goes by flows", _HELPER
    ),
    "helper_reports_again": _info("{host}'s helper reports again"),
    "helper_clock_ahead": _warning(
        "{host}: its helper was told its links by a controller whose clock was {ahead_s} s ahead"
        " of this one's",
        "set the clocks of the controllers' machines right",
    ),
    # Fast paths
    "fast_in_force": _info("{host}: its frames may pass beside the bridge"),
    "fast_off": _info("{host}: its fast path is off, so all frames pass the bridge"),
    "fast_refused": _warning("{host}: its kernel refuses the programs of the fast path", _FAST),
    "fast_no_device": _warning("{host}: its fast path misses the bridge or a NIC", _FAST),
    "fast_silent": _bad("{host}: its fast path has stopped reporting", _RESTART_FAST),
    # Jobs
    "job_ordered": _info(f"{_JOB} is ordered on {{hosts}}"),
    "job_begun": _info(f"{_JOB} has begun on {{hosts}}: {{policy}}"),
    "job_changed": _info(f"{_JOB} is {{policy}} now"),
    "job_moved": _info(f"{_JOB}: {{by}} has moved it"),
    "job_moved_back": _info(f"{_JOB}: {{by}} has moved it back"),
    "job_installed": _info("job {job}: installed"),
    "job_installed_in_part": _info("job {job}: installed: {why}"),
    "job_waiting": _warning("job {job}: waiting: {why}"),
    "job_refused": _bad("job {job}: refused: {why}", _CORRECT),
    "job_ended": _info(f"{_JOB} has ended: {{why}}"),
    "job_ended_by": _info(f"{_JOB} has ended: {{by}} has ended it"),
}
"""The events by code. A code lasts; a text may be worded better at any time."""


@dataclass(frozen=True)
class Event(Said):
    """One event: a code of `EVENTS`, what it is about, and the arguments of its sentence."""

    table: ClassVar[Mapping[str, Kind]] = EVENTS
