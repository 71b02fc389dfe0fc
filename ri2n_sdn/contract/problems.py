"""The table of problems: what can be wrong now, how bad that is, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from ri2n_sdn.contract.said import Kind, Said

__all__ = ["LOSSY_PLACES", "PROBLEMS", "Problem"]

_ASK_THE_HOST = "run host-status there: it says why"
_CERTIFICATE = "put a new one there; where it is there already, run ri2n reload here"
_CHECK_CABLE = "check its cable and its switch port"
_CHECK_CABLES = "check cables, plugs, switch ports and duplex there, and whether a CPU is too busy"
_CHECK_SWITCH = "check that cable or switch; meanwhile, traffic goes by other VLANs"
_JOBS = "see `ri2n job ls`; its packets go as everybody's"
_ONE_SWITCH = "plug a NIC of each into one switch"
_SEE_LOG = "the controller's log says more"
_TWO_CONTROLLERS = "stop one of them, or give both one store with --store"

_REFUSED = "{host} at {address} refused: "
_SAME = _REFUSED + "{other} at {other_address} has the same "
_OTHER_MAC = "give one of the two another MAC address and run host-up there"
_RIVAL = "another controller, {controller}, is connected to the same hosts"
_LOST = "{part:.0%} of packets are lost in "

LOSSY_PLACES: Mapping[str, str] = {
    "nic_loses_sent": "what {host}:{nic} sends",
    "nic_loses_received": "what {host}:{nic} receives",
    "cable_loses": "{cable}",
}
"""The places that lose packets, by the code of the problem of such a place."""


def _fault(text: str) -> Kind:
    """Something that the controller failed to do, for one host or for the cluster."""
    return Kind("bad", text + ": {error}", _SEE_LOG)


PROBLEMS: Mapping[str, Kind] = {
    # The controller
    "no_host": Kind("warning", "no host has connected", "run host-up --controller on the hosts"),
    "rival_should_yield": Kind(
        "bad", _RIVAL + ", and should stand back", _TWO_CONTROLLERS, ("run",)
    ),
    "rival_in_charge": Kind("bad", _RIVAL + ": this one stands back", _TWO_CONTROLLERS, ("run",)),
    "rival_was_first": Kind(
        "bad", _RIVAL + " and was there first: this one stands back", _TWO_CONTROLLERS, ("run",)
    ),
    "nothing_remembered": Kind(
        "warning",
        "nothing is remembered: {error}",
        "the hosts go on; without a memory, the next start takes longer",
    ),
    "not_reloaded": _fault("not reloaded"),
    "jobs_not_kept": _fault("jobs are not kept"),
    "learned_not_stored": _fault("what was learned cannot be stored"),
    "slot_tables_undecided": _fault("no slot tables could be decided, so they stay as they are"),
    "jobs_undecided": _fault("jobs cannot be decided on, so paths stay as they are"),
    # Hosts that are refused; each text says what to do
    "host_name_taken": Kind(
        "bad",
        _SAME + "name: give one of the two another name with host-up --name",
        apart=("address",),
    ),
    "host_mac_taken": Kind("bad", _SAME + "MAC address {macs}: " + _OTHER_MAC, apart=("address",)),
    "host_datapath_taken": Kind("bad", _SAME + "datapath ID: " + _OTHER_MAC, apart=("address",)),
    "host_mac_impossible": Kind(
        "bad",
        _REFUSED + "{device} has the MAC address {mac}, which no NIC may have: run host-up there",
        apart=("address",),
    ),
    "host_macs_equal": Kind(
        "bad",
        _REFUSED + "{device} and {other_device} have one MAC address, {mac}: give one of them"
        " another and run host-up there",
        apart=("address",),
    ),
    "host_certificate_foreign": Kind(
        "bad", _REFUSED + "its certificate is for {names}", apart=("address",)
    ),
    "host_name_invalid": Kind(
        "bad",
        "{address}: refused, its name {name!a} is not valid: choose another with host-up --name",
        apart=("address",),
    ),
    "more_hosts_refused": Kind("bad", "{count} more hosts were refused", "see the log"),
    # Hosts
    "host_away": Kind("bad", "{host} is not connected", _ASK_THE_HOST),
    "host_mute": Kind(
        "bad",
        "{host} has not answered for {silent_s:.1f} s: the others go on without it",
        "check whether its ovs-vswitchd is busy or hangs",
    ),
    "host_never_came": Kind(
        "bad",
        "{host} is in cluster.yaml but has never connected",
        "run host-up --controller there, or take it out of cluster.yaml",
    ),
    "host_not_back": Kind(
        "bad",
        "{host} was connected before the controller started anew, and has not come back",
        _ASK_THE_HOST,
    ),
    "more_hosts_not_back": Kind("bad", "{count} more hosts have not come back"),
    "certificate_ends": Kind("warning", "{host}: its certificate ends on {day}", _CERTIFICATE),
    "certificate_ended": Kind(
        "warning",
        "{host}: its certificate has ended on {day}, so it cannot connect again",
        _CERTIFICATE,
    ),
    "certificate_ended_away": Kind(
        "bad",
        "{host}: its certificate has ended on {day}, so it cannot connect again",
        _CERTIFICATE,
    ),
    "more_certificates_end": Kind(
        "warning", "{count} more hosts have a certificate that ends soon", _CERTIFICATE
    ),
    "host_without_nics": Kind(
        "bad",
        "{host}: none of its NICs works, so its peers cannot reach it",
        "see the problem of each NIC",
    ),
    "host_emptied": Kind(
        "bad",
        "{host}: its tables are emptied again and again",
        "find out who else changes them",
    ),
    "host_rows_changed": Kind(
        "bad",
        "{host}: somebody else changes its rows again and again",
        "check whether another controller runs",
    ),
    "mac_shared": Kind(
        "bad",
        "{owners:and} have one MAC address, {mac}",
        "give all but one of them another address and run host-up there",
        ("mac",),
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
    "nic_no_link": Kind("warning", "{host}:{nic} has no link", _CHECK_CABLE),
    "nic_hears_nothing": Kind("warning", "{host}:{nic}: nothing arrives at it", _CHECK_CABLE),
    "nic_unheard": Kind("warning", "{host}:{nic}: nothing that it sends arrives", _CHECK_CABLE),
    "nic_cut": Kind(
        "warning",
        "{host}:{nic}: nothing arrives at it, and nothing that it sends arrives",
        _CHECK_CABLE,
    ),
    **{code: Kind("bad", _LOST + place, _CHECK_CABLES) for code, place in LOSSY_PLACES.items()},
    "one_of_links_loses": Kind("bad", _LOST + "one of: {places}", _CHECK_CABLES, ("link",)),
    "pair_apart": Kind("bad", "{host} and {other} have no common network", _ONE_SWITCH, ("other",)),
    "more_pairs_apart": Kind(
        "bad", "{count} more pairs of hosts have no common network", _ONE_SWITCH
    ),
    "network_of_one": Kind(
        "warning", "network {network} has a single NIC, {host}:{nic}", _CHECK_CABLE
    ),
    "nics_on_other_network": Kind(
        "bad",
        "{nics}: declared on {network}, but found on {found} with NICs of {others}",
        "plug the cable in where cluster.yaml says, or correct cluster.yaml",
        ("found",),
    ),
    "nics_cut_off": Kind("bad", "{nics}: cut off from the rest of {network}", _CHECK_CABLE),
    "nic_flooded": Kind(
        "warning",
        "{host}:{nic} is flooded with probes of another sender, so the controller does not know"
        " whether it works",
        "find out who sends frames of EtherType 0x88b5 there, perhaps another controller",
    ),
    # Switches of a fat tree
    "switch_dead": Kind("warning", "{switch}: is dead", _CHECK_SWITCH),
    "switch_cut_off": Kind(
        "warning", "{switch}: nothing gets through any of its cables", _CHECK_SWITCH
    ),
    "cable_dead": Kind("warning", "{cable}: dead", _CHECK_SWITCH),
    "cable_dead_in_vlans": Kind("warning", "{cable}: dead in {vlans:vlan}", _CHECK_SWITCH),
    "cable_one_way": Kind(
        "warning", "{cable}: nothing gets through in this direction", _CHECK_SWITCH
    ),
    "cable_one_way_in_vlans": Kind(
        "warning", "{cable}: nothing gets through in this direction in {vlans:vlan}", _CHECK_SWITCH
    ),
    "nic_vlans_cut": Kind(
        "warning", "{host}:{nic} on {switch}, {vlans:vlan}: does not work", _CHECK_SWITCH
    ),
    "nic_vlans_unheard": Kind(
        "warning",
        "{host}:{nic} on {switch}, {vlans:vlan}: nothing it sends in it arrives",
        _CHECK_SWITCH,
    ),
    "nic_vlans_hear_nothing": Kind(
        "warning", "{host}:{nic} on {switch}, {vlans:vlan}: nothing arrives in it", _CHECK_SWITCH
    ),
    "nic_without_switch": Kind(
        "warning",
        "{host}:{nic} has no switch in cluster.yaml: it uses VLAN {vlan} alone",
        "add its switch there",
    ),
    # Helpers. While one cannot be used, its host's traffic goes by flows.
    "helper_stopped": Kind(
        "warning",
        "{host}: its helper does not run",
        "run systemctl start ri2n-reorder there",
    ),
    "helper_ports_wrong": Kind(
        "warning",
        "{host}: its helper cannot be used: the ports of its TAPs have wrong numbers",
        "run host-up there",
    ),
    "helper_silent": Kind(
        "warning",
        "{host}'s helper has reported nothing for {silent_s:.0f} s: its traffic goes by flows",
        "if it hangs, run systemctl restart ri2n-reorder there",
    ),
    # Jobs
    "job_refused": Kind("warning", "refused: {why}", _JOBS),
    "job_refused_at_host": Kind("warning", "{host}: job {job}: {why}", _JOBS),
    "job_order_not_done": Kind(
        "warning", "{host}: cannot carry out the order of job {job}: {why}", _JOBS
    ),
    "job_undeclared": Kind("warning", "{host}: {why}", _JOBS, ("number",)),
    "more_problems_of_jobs": Kind("warning", "{count} more problems of jobs", "see the log"),
    "job_lanes_wrong": Kind("warning", "{why}", "its lanes were chosen anew; see `ri2n job show`"),
    "jobs_change_too_often": Kind(
        "warning",
        "{host}: it says too often that its jobs have changed, so it is answered later",
        "find out there what begins and ends jobs, or sends these messages",
    ),
    "more_jobs_change_too_often": Kind("warning", "{count} more hosts do, too"),
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
