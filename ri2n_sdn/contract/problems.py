# SPDX-License-Identifier: Apache-2.0
"""The table of problems: what can be wrong now, how bad that is, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar
from urllib.parse import quote

from ri2n_sdn.contract.said import Kind, Said

__all__ = ["LOSSY_PLACES", "MAX_SHOWN", "PROBLEMS", "Problem", "at_most"]

MAX_SHOWN = 20
"""So many problems of one kind are shown; for the others, their number."""

_Found = TypeVar("_Found")

_ASK_THE_HOST = "run host-status there: it says why"
_CERTIFICATE = "put a new one there; where it is there already, run ri2n reload here"
_CHECK_CABLE = "check its cable and its switch port"
_CHECK_CABLES = "check cables, plugs, switch ports and duplex there, and whether a CPU is too busy"
_CHECK_SWITCH = "check that cable or switch; meanwhile, traffic goes by other VLANs"
_JOBS = "see `ri2n job ls`; its packets go as everybody's"
_ONE_SWITCH = "plug a NIC of each into one switch"
_TWO_CONTROLLERS = "stop one of them, or give both one store with --store"

_ENDED = "{host}: its certificate has ended on {day}, so it cannot connect again"
_OTHER_MAC = "give one of the two another MAC address and run host-up there"
_ONE_WAY = "{cable}: nothing gets through in this direction"
_SAME = "{other} at {other_address} has the same "
_NIC_VLANS = "{host}:{nic} on {switch}, {vlans:vlan}: "

LOSSY_PLACES: Mapping[str, str] = {
    "nic_loses_sent": "what {host}:{nic} sends",
    "nic_loses_received": "what {host}:{nic} receives",
    "cable_loses": "{cable}",
}
"""The places that lose packets, by the code of the problem of such a place."""

_warning, _bad = partial(Kind, "warning"), partial(Kind, "bad")


def _rival(text: str) -> Kind:
    """Another controller of the hosts, without a common store."""
    who = "another controller, {controller}, is connected to the same hosts"
    return _bad(who + text, _TWO_CONTROLLERS, apart=("run",))


def _refused(text: str) -> Kind:
    """A host that is refused: the text says what to do."""
    return _bad("{host} at {address} refused: " + text, apart=("address",))


def _fault(text: str) -> Kind:
    """Something that the controller failed to do, for one host or for the cluster."""
    return _bad(text + ": {error}", "the controller's log says more")


def _lossy(place: str, *apart: str) -> Kind:
    return _bad("{part:.0%} of packets are lost in " + place, _CHECK_CABLES, apart)


PROBLEMS: Mapping[str, Kind] = {
    # The controller
    "no_host": _warning("no host has connected", "run host-up --controller on the hosts"),
    "rival_should_yield": _rival(", and should stand back"),
    "rival_in_charge": _rival(": this one stands back"),
    "rival_was_first": _rival(" and was there first: this one stands back"),
    "nothing_remembered": _warning(
        "nothing is remembered: {error}",
        "the hosts go on; without a memory, the next start takes longer",
    ),
    "not_reloaded": _fault("not reloaded"),
    "jobs_not_kept": _fault("jobs are not kept"),
    "learned_not_stored": _fault("what was learned cannot be stored"),
    "fair_rates_unknown": _fault("what is fair for each pair could not be computed"),
    "slot_tables_undecided": _fault("no slot tables could be decided, so they stay as they are"),
    "jobs_undecided": _fault("jobs cannot be decided on, so paths stay as they are"),
    # Hosts that are refused
    "host_name_taken": _refused(
        _SAME + "name: give one of the two another name with host-up --name"
    ),
    "host_mac_taken": _refused(_SAME + "MAC address {macs}: " + _OTHER_MAC),
    "host_datapath_taken": _refused(_SAME + "datapath ID: " + _OTHER_MAC),
    "host_mac_impossible": _refused(
        "{device} has the MAC address {mac}, which no NIC may have: run host-up there"
    ),
    "host_macs_equal": _refused(
        "{device} and {other_device} have one MAC address, {mac}: give one of them another and run"
        " host-up there"
    ),
    "host_certificate_foreign": _refused("its certificate is for {names}"),
    "host_name_invalid": _bad(
        "{address}: refused, its name {name!a} is not valid: choose another with host-up --name",
        apart=("address",),
    ),
    "more_hosts_refused": _bad("{count} more hosts were refused", "see the log"),
    # Hosts
    "host_away": _bad("{host} is not connected", _ASK_THE_HOST),
    "host_mute": _bad(
        "{host} has not answered for {silent_s:.1f} s: the others go on without it",
        "check whether its ovs-vswitchd is busy or hangs",
    ),
    "host_never_came": _bad(
        "{host} is in cluster.yaml but has never connected",
        "run host-up --controller there, or take it out of cluster.yaml",
    ),
    "host_not_back": _bad(
        "{host} was connected before the controller started anew, and has not come back",
        _ASK_THE_HOST,
    ),
    "more_hosts_not_back": _bad("{count} more hosts have not come back"),
    "certificate_ends": _warning("{host}: its certificate ends on {day}", _CERTIFICATE),
    "certificate_ended": _warning(_ENDED, _CERTIFICATE),
    "certificate_ended_away": _bad(_ENDED, _CERTIFICATE),
    "more_certificates_end": _warning(
        "{count} more hosts have a certificate that ends soon", _CERTIFICATE
    ),
    "host_without_nics": _bad(
        "{host}: none of its NICs works, so its peers cannot reach it",
        "see the problem of each NIC",
    ),
    "host_emptied": _bad(
        "{host}: its tables are emptied again and again", "find out who else changes them"
    ),
    "host_rows_changed": _bad(
        "{host}: somebody else changes its rows again and again",
        "check whether another controller runs",
    ),
    "mac_shared": _bad(
        "{owners:and} have one MAC address, {mac}",
        "give all but one of them another address and run host-up there",
        apart=("mac",),
    ),
    "rows_not_taken_over": _fault("{host}: its rows cannot be taken over"),
    "rows_not_planned": _fault("{host}: its rows cannot be planned, so it keeps those it has"),
    "rows_not_sent": _fault("{host}: its rows cannot be sent"),
    "slot_tables_not_sent": _fault("{host}: its slot tables cannot be sent"),
    "counters_not_read": _fault("{host}: its counters cannot be read"),
    "sent_not_counted": _fault("{host}: what it sends cannot be counted"),
    "description_senseless": _fault("{host}: its description of itself makes no sense"),
    "connections_not_placed": _fault("{host}: its connections cannot be placed"),
    "helper_not_told": _fault("{host}: its helper cannot be told its links"),
    # NICs, cables and networks
    "nic_no_link": _warning("{host}:{nic} has no link", _CHECK_CABLE),
    "nic_hears_nothing": _warning("{host}:{nic}: nothing arrives at it", _CHECK_CABLE),
    "nic_unheard": _warning("{host}:{nic}: nothing that it sends arrives", _CHECK_CABLE),
    "nic_cut": _warning(
        "{host}:{nic}: nothing arrives at it, and nothing that it sends arrives", _CHECK_CABLE
    ),
    **{code: _lossy(place) for code, place in LOSSY_PLACES.items()},
    "one_of_links_loses": _lossy("one of: {places}", "link"),
    "pair_apart": _bad("{host} and {other} have no common network", _ONE_SWITCH, ("other",)),
    "more_pairs_apart": _bad("{count} more pairs of hosts have no common network", _ONE_SWITCH),
    "network_of_one": _warning("network {network} has a single NIC, {host}:{nic}", _CHECK_CABLE),
    "nics_on_other_network": _bad(
        "{nics}: declared on {network}, but found on {found} with NICs of {others}",
        "plug the cable in where cluster.yaml says, or correct cluster.yaml",
        apart=("found",),
    ),
    "nics_cut_off": _bad("{nics}: cut off from the rest of {network}", _CHECK_CABLE),
    "nic_flooded": _warning(
        "{host}:{nic} is flooded with probes of another sender, so the controller does not know"
        " whether it works",
        "find out who sends frames of EtherType 0x88b5 there, perhaps another controller",
    ),
    # Switches of a fat tree
    **{
        code: _warning(text, _CHECK_SWITCH)
        for code, text in (
            ("switch_dead", "{switch}: is dead"),
            ("switch_cut_off", "{switch}: nothing gets through any of its cables"),
            ("cable_dead", "{cable}: dead"),
            ("cable_dead_in_vlans", "{cable}: dead in {vlans:vlan}"),
            ("cable_one_way", _ONE_WAY),
            ("cable_one_way_in_vlans", _ONE_WAY + " in {vlans:vlan}"),
            ("nic_vlans_cut", _NIC_VLANS + "does not work"),
            ("nic_vlans_unheard", _NIC_VLANS + "nothing it sends in it arrives"),
            ("nic_vlans_hear_nothing", _NIC_VLANS + "nothing arrives in it"),
        )
    },
    "nic_without_switch": _warning(
        "{host}:{nic} has no switch in cluster.yaml: it uses VLAN {vlan} alone",
        "add its switch there",
    ),
    # Helpers. While one cannot be used, its host's traffic goes by flows.
    "helper_stopped": _warning(
        "{host}: its helper does not run", "run systemctl start ri2n-reorder there"
    ),
    "helper_ports_wrong": _warning(
        "{host}: its helper cannot be used: the ports of its TAPs have wrong numbers",
        "run host-up there",
    ),
    "helper_silent": _warning(
        "{host}'s helper has reported nothing for {silent_s:.0f} s: its traffic goes by flows",
        "if it hangs, run systemctl restart ri2n-reorder there",
    ),
    # Fast paths. Where one does not work, frames pass the bridge.
    "fast_silent": _bad(
        "{host}'s fast path has reported nothing for {silent_s:.0f} s: its programs may go on"
        " as they were, and nobody knows what they carry",
        "run systemctl restart ri2n-fast there",
    ),
    "fast_refused": _warning(
        "{host}: its kernel refuses the programs of the fast path ({why}), so its frames pass the"
        " bridge",
        "run ri2n-fast probe there: it says why",
    ),
    "fast_no_device": _warning(
        "{host}: its fast path misses the bridge or a NIC, so its frames pass the bridge",
        "run host-doctor there",
    ),
    "fast_filter": _warning(
        "{host}: Open vSwitch copies every frame that passes beside it, which costs CPU time",
        "run systemctl restart ri2n-fast there; host-doctor says more",
    ),
    # Jobs
    "job_refused": _warning("refused: {why}", _JOBS),
    "job_refused_at_host": _warning("{host}: job {job}: {why}", _JOBS),
    "job_order_not_done": _warning("{host}: cannot carry out the order of job {job}: {why}", _JOBS),
    "job_undeclared": _warning("{host}: {why}", _JOBS, ("number",)),
    "more_problems_of_jobs": _warning("{count} more problems of jobs", "see the log"),
    "job_lanes_wrong": _warning("{why}", "its lanes were chosen anew; see `ri2n job show`"),
    "jobs_change_too_often": _warning(
        "{host}: it says too often that its jobs have changed, so it is answered later",
        "find out there what begins and ends jobs, or sends these messages",
    ),
    "more_jobs_change_too_often": _warning("{count} more hosts do, too"),
}
"""The problems by code. A code lasts; a text may be worded better at any time."""


@dataclass(frozen=True)
class Problem(Said):
    """One problem: a code of `PROBLEMS`, what it is about, and the arguments of its sentence."""

    table: ClassVar[Mapping[str, Kind]] = PROBLEMS

    @property
    def id(self) -> str:
        """`CODE:SUBJECT`, such as `nic_no_link:A:eth0`: the same as long as it is the same problem.

        It fits into the path of a URL as it is.
        """
        apart = (str(self.args[name]) for name in self.table[self.code].apart)
        # All but letters, digits and ._-@ become ~HH, so that ids of odd names differ, too.
        named = (
            quote(part, safe="@", errors="surrogatepass").replace("~", "%7E").replace("%", "~")
            for part in (*self.subject.values(), *apart)
        )
        return ":".join((self.code, *named))


def at_most(
    found: Sequence[_Found], problem_of: Callable[[_Found], Problem], code: str
) -> Iterator[Problem]:
    """The problems of the first MAX_SHOWN that were found; one of this code counts the others."""
    yield from map(problem_of, found[:MAX_SHOWN])
    if len(found) > MAX_SHOWN:
        yield Problem(code, args={"count": len(found) - MAX_SHOWN})
