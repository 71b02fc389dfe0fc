# SPDX-License-Identifier: Apache-2.0
"""The names of all counters, which are labels of metrics and last when sentences are reworded."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COUNTERS", "FORMER", "HANDLER", "LOOP", "WEB", "with_former"]

HANDLER, LOOP = "handler_errors_", "loop_errors_"
"""What names begin with that end with a handler or with a loop of the controller."""

COUNTERS: Mapping[str, str] = {
    "announcements_sent": "frames by which NICs announce themselves in a VLAN",
    "audit_repairs": "hosts whose rows were missing or unknown, and were repaired",
    "certificates_refused": "connections whose certificate is not good",
    "certificates_unreadable": "certificates, or ends of certificates, that cannot be read",
    "closed_address_taken": "connections of hosts with an address of another host",
    "closed_bad_address": "connections of hosts whose addresses cannot be a host's",
    "closed_bad_name": "connections of hosts whose name cannot be a host's",
    "closed_duplicate_datapath_id": "connections of hosts with another host's datapath ID",
    "closed_duplicate_mac": "connections of hosts with another host's MAC address",
    "closed_duplicate_name": "connections of hosts with another host's name",
    "closed_ended": "connections that the host has ended",
    "closed_foreign_address": "connections of hosts that took an address that is not their own",
    "closed_malformed": "connections that sent what is no OpenFlow",
    "closed_no_local_port": "connections of switches without a LOCAL port",
    "closed_not_its_certificate": "connections whose certificate is for another host",
    "closed_not_reading": "connections of hosts that do not read what they are sent",
    "closed_replaced": "connections that a new one of the same host has replaced",
    "closed_replies_evicted": "connections with the longest unfinished replies, when memory ends",
    "closed_reply_too_long": "connections of hosts whose replies are too long",
    "closed_send_failed": "connections that were gone when something was sent",
    "closed_silent": "connections of which nothing was heard for too long",
    "closed_unanswered": "connections of hosts that did not answer a request for too long",
    "closed_wrong_reply": "connections of hosts that answer something else than they were asked",
    "cluster_faults": "exceptions in work about all hosts, which went on with what it had",
    "connections_half_open": "placed connections that were never established",
    "connections_not_placed_full": "connections beyond those that a host may place",
    "connections_not_placed_no_path": "connections without a live path",
    "connections_not_placed_stranger": "answers to requests that no known host sent or asked for",
    "connections_not_placed_too_many": "connections that waited too long to be placed",
    "connections_overdue": "connections that did not say in time which host they are",
    "connections_placed": "connections that were given a path",
    "connections_turned_away": "connections that ended because all places were taken",
    "cycles": "rounds of counting and deciding",
    "declarations_read": "times that a host's jobs were read",
    "discovery_lags": "turns in which this machine was late in reading probes",
    "dropped_counter_unknown": "counters of rows, groups and ports whose value is unknown",
    "dropped_declaration_malformed": "declarations of jobs that make no sense",
    "dropped_fast_report_checksum": "reports of fast paths with a wrong checksum",
    "dropped_fast_report_length": "reports of fast paths that are too short or too long",
    "dropped_fast_report_of_stranger": "reports of fast paths that name another host",
    "dropped_fast_report_of_too_many": "rows and peers of fast paths beyond those that are kept",
    "dropped_fast_report_old": "reports of programs of fast paths that were replaced",
    "dropped_fast_report_unknown": "reports of fast paths of a kind or with a code that is unknown",
    "dropped_fast_report_value": "reports of fast paths with a value that cannot be",
    "dropped_hello_malformed": "hellos of other controllers that make no sense",
    "dropped_hello_of_too_many": "hellos of more controllers than are kept",
    "dropped_hello_too_long": "hellos of other controllers that are too long",
    "dropped_hello_unknown": "frames that came as hellos of other controllers and are none",
    "dropped_packet_in_of_stranger": "frames of switches that were not let in as hosts",
    "dropped_probe_forged": "probes with a wrong signature, or of an earlier run",
    "dropped_probe_in_another_vlan": "probes that came in another VLAN than they were sent in",
    "dropped_probe_of_stranger": "probes from or to hosts that are not known",
    "dropped_probe_old": "probes that came too late",
    "dropped_probe_truncated": "probes that are too short",
    "dropped_probe_unknown": "frames that came as probes and are none",
    "dropped_report_malformed": "reports of helpers that make no sense",
    "dropped_report_of_stranger": "reports of helpers that name another host",
    "fast_reports": "reports of fast paths",
    "flow_mods": "rows that were sent to hosts or deleted there",
    "group_mods": "groups that were sent to hosts or deleted there",
    "helper_frames_sent": "frames to helpers",
    "helper_reports": "reports of helpers",
    "host_faults": "exceptions because of one host, which stayed its own",
    "hosts_disconnected": "connections of hosts that have ended",
    "hosts_refused": "tries of switches that are not let in",
    "job_events_not_told": "events about jobs beyond a host's share of the log",
    "memory_not_written": "times that the store was away when something was to be kept",
    "message_malformed": "OpenFlow messages that make no sense",
    "message_not_asked_for": "OpenFlow messages of kinds that the controller never asks for",
    "nic_deaths": "NICs that probes found dead",
    "packet_ins": "frames that switches have handed to the controller",
    "packet_ins_over_budget": "such frames that were dropped, because a switch sent too many",
    "pauses_of_reading": "times that a switch was read more slowly, because it sent too much",
    "probes_sent": "probes",
    "slots_moved": "slots that went to another path",
    "switch_errors": "messages that switches have refused",
    "vlan_moves": "pairs that went to another VLAN",
    "watch_errors": "exceptions in what watchers are told",
    "watchers_cut_off": "watchers that did not read what they were sent",
    "watchers_refused": "watchers beyond those that are let in",
}
"""What the controller counts besides exceptions in handlers and loops, each with what it counts."""

WEB: Mapping[str, str] = {
    "answers_dropped": "answers of the controller that make no sense, or that came too late",
    "changes": "changes of the state",
    "entries_dropped": "parts of states and changes that make no sense",
    "lines_dropped": "lines of the controller that make no sense",
    "requests_late": "requests that the controller did not answer in time",
    "streams": "times that the stream of the controller's state began",
}
"""What the web process counts of its connection to the controller."""

FORMER: Mapping[str, str] = {
    "closed_another_host_has_its_address": "closed_address_taken",
    "closed_another_host_has_the_same_datapath_id": "closed_duplicate_datapath_id",
    "closed_another_host_has_the_same_mac_address": "closed_duplicate_mac",
    "closed_another_host_has_the_same_name": "closed_duplicate_name",
    "closed_answers_no_request_for": "closed_unanswered",
    "closed_does_not_read_what_it_is_sent": "closed_not_reading",
    "closed_it_answers_something_else_than_it_was_asked": "closed_wrong_reply",
    "closed_it_has_no_local_port": "closed_no_local_port",
    "closed_its_addresses_are_not_its_own": "closed_foreign_address",
    "closed_its_addresses_cannot_be_a_hosts": "closed_bad_address",
    "closed_its_replies_are_longer_than": "closed_reply_too_long",
    "closed_of_all_replies_without_an_end_it_has_the_longest": "closed_replies_evicted",
    "closed_replaced_by_a_new_connection_of_the_same_host": "closed_replaced",
    "closed_silent_for": "closed_silent",
    "closed_the_connection_ended": "closed_ended",
    "closed_the_connection_is_gone": "closed_send_failed",
}
"""Names of the version before this one, each with its name now. This version serves both."""


def with_former(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts, and those with a former name under that one, too."""
    return {**counts, **{old: counts[new] for old, new in FORMER.items() if new in counts}}
