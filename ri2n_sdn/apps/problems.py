# SPDX-License-Identifier: Apache-2.0
"""The problems that `ri2n status` shows: of hosts, NICs, cables, helpers and the controller."""

from __future__ import annotations

import errno
import time
from collections.abc import Collection, Iterator
from datetime import datetime, timezone

from ri2n_sdn.apps.cluster import EMPTIED_CALM_S, Cluster, Member
from ri2n_sdn.apps.patience import MUTE_S
from ri2n_sdn.contract.problems import LOSSY_PLACES, MAX_SHOWN, Problem, at_most
from ri2n_sdn.contract.said import worst_first
from ri2n_sdn.contract.wording import Subject, fill
from ri2n_sdn.fabric.model import Fabric, Host, Nic
from ri2n_sdn.pipeline.fast_path import FastPath

__all__ = ["problems_of"]

# A certificate is told of when it ends within this time, as by the alert RI2NHostCertificateEnds.
_CERTIFICATE_LEFT_S = 14 * 86400.0


def problems_of(cluster: Cluster) -> list[Problem]:
    """All problems, the worst first. The caller holds `cluster.lock`."""
    found = [*_of_controller(cluster), *_rivals(cluster), *_refusals(cluster)]
    if cluster.passive is not None:
        # The one in charge knows what is wrong with the hosts.
        return worst_first(found)
    fabric = cluster.fabric()
    for member in cluster.members.values():
        found += _of_member(cluster, member)
    found += _certificates(cluster)
    found += _missing(cluster)
    found += _not_back(cluster)
    found += _pairs_apart(fabric)
    found += _contradictions(cluster, fabric)
    found += _shared_macs(cluster)
    for host in fabric.hosts.values():
        if host.connected:
            found += _of_nics(host)
    found += _losses(cluster)
    found += _lonely(fabric)
    found += _floods(cluster)
    found += _of_fat_tree(cluster, fabric)
    found += cluster.jobs.problems(time.monotonic())
    return worst_first(found)


def _of_controller(cluster: Cluster) -> Iterator[Problem]:
    if not cluster.members and not cluster.config.hosts:
        yield Problem("no_host")
    for code, error in cluster.faults.items():
        yield Problem(code, args={"error": error})
    if cluster.memory.problem is not None:
        yield Problem("nothing_remembered", args={"error": cluster.memory.problem})


def _rivals(cluster: Cluster) -> Iterator[Problem]:
    """Other controllers of the hosts that have no store in common with this one."""
    for rival in cluster.rivals.known(cluster.connected(), time.monotonic()):
        if cluster.passive is None:
            code = "rival_should_yield"
        else:
            code = "rival_was_first" if rival.run == cluster.yields_to else "rival_in_charge"
        yield Problem(code, args={"controller": rival.name, "run": rival.run})


def _refusals(cluster: Cluster) -> Iterator[Problem]:
    """Hosts that were refused and still try. Each text says why, and what to do."""
    found = cluster.refusals.problems()
    yield from found[-MAX_SHOWN:]
    if len(found) > MAX_SHOWN:
        yield Problem("more_hosts_refused", args={"count": len(found) - MAX_SHOWN})


def _of_member(cluster: Cluster, member: Member) -> Iterator[Problem]:
    host, now_s = {"host": member.name}, time.monotonic()
    for code, error in member.faults.items():
        yield Problem(code, host, {"error": error})
    mute_s = member.channel.mute_s(now_s) if member.channel is not None else 0.0
    if member.channel is None:
        if member.name not in _awaited(cluster):  # of those speaks _not_back
            yield Problem("host_away", host)
    elif mute_s > MUTE_S:
        yield Problem("host_mute", host, {"silent_s": round(mute_s, 1)})
    elif cluster.config.stripes(member.name) and member.taps:
        yield from _of_helper(member)
    if member.channel is not None and member.name in cluster.measured.fast:
        yield from _of_fast_path(member, cluster.measured.fast[member.name], now_s)
    if member.emptied > 2 and now_s - member.emptied_s < EMPTIED_CALM_S:
        yield Problem("host_emptied", host)
    if member.repairs > 1:
        yield Problem("host_rows_changed", host)


def _of_helper(member: Member) -> Iterator[Problem]:
    """Problems of a helper. While it cannot be used, its host's traffic goes by flows."""
    host = {"host": member.name}
    if not member.has_taps:
        yield Problem("helper_ports_wrong", host)
    elif not member.helper_runs:
        yield Problem("helper_stopped", host)
    elif member.silence.silent:
        quiet_s = time.monotonic() - member.silence.last_s
        yield Problem("helper_silent", host, {"silent_s": round(quiet_s)})


def _of_fast_path(member: Member, path: FastPath, now_s: float) -> Iterator[Problem]:
    """Problems of a host's fast path. Where it is not in force, frames pass the bridge."""
    host = {"host": member.name}
    if path.state == "silent":
        yield Problem("fast_silent", host, {"silent_s": round(now_s - path.heard_s)})
    elif path.state == "refused":
        names = {0: "it gives no reason", **errno.errorcode}
        why = names.get(path.errno, str(path.errno))
        yield Problem("fast_refused", host, {"errno": path.errno, "why": why})
    elif path.state == "no_device":
        yield Problem("fast_no_device", host)
    elif path.state == "in_force" and path.filter == "missing":
        yield Problem("fast_filter", host)


def _certificates(cluster: Cluster) -> Iterator[Problem]:
    """Certificates of hosts that have ended or will soon, the first one first.

    A connection goes on when its certificate has ended; but after it, none is let in. The host
    uses a new certificate from its next connection on.
    """
    now_s = time.time()
    ending = sorted(
        (member.certificate_ends_s, member.name)
        for member in cluster.members.values()
        if member.certificate_ends_s is not None
        and member.certificate_ends_s - now_s < _CERTIFICATE_LEFT_S
    )

    def problem(end: tuple[float, str]) -> Problem:
        ends_s, name = end
        code = "certificate_ends"
        if ends_s <= now_s:
            away = cluster.members[name].channel is None
            code = "certificate_ended_away" if away else "certificate_ended"
        day = str(datetime.fromtimestamp(ends_s, timezone.utc).date())
        return Problem(code, {"host": name}, {"day": day})

    yield from at_most(ending, problem, "more_certificates_end")


def _missing(cluster: Cluster) -> Iterator[Problem]:
    for name in sorted(
        {*cluster.config.hosts, *cluster.config.placed_ports()} - set(cluster.members)
    ):
        yield Problem("host_never_came", {"host": name})


def _not_back(cluster: Cluster) -> Iterator[Problem]:
    """Hosts that were connected when an earlier controller ended."""
    yield from at_most(
        sorted(_awaited(cluster)),
        lambda name: Problem("host_not_back", {"host": name}),
        "more_hosts_not_back",
    )


def _awaited(cluster: Cluster) -> set[str]:
    """Hosts that an earlier controller knew, that have not come back, and that nobody declares."""
    known = cluster.remembered.expected & cluster.remembered.hosts.keys()
    return known - cluster.config.hosts.keys()


def _of_nics(host: Host) -> Iterator[Problem]:
    """NICs of a connected host that do not work. For a host that is away, nobody knows."""
    dead = [nic for nic in host.nics if not (nic.sends and nic.receives)]
    if dead and len(dead) == len(host.nics):
        yield Problem("host_without_nics", {"host": host.name})
    for nic in dead:
        if not nic.up:
            code = "nic_no_link"
        elif nic.tx_alive:
            code = "nic_hears_nothing"
        else:
            code = "nic_unheard" if nic.rx_alive else "nic_cut"
        yield Problem(code, _subject(nic))


def _subject(nic: Nic) -> Subject:
    return {"host": nic.host, "nic": nic.name}


def _losses(cluster: Cluster) -> Iterator[Problem]:
    """Links that lose packets. A loss of 5% makes each TCP connection over the link very slow."""
    for loss in cluster.measured.losses.losses:
        part = {"part": round(loss.part, 2)}
        found = [_lossy(cluster, link) for link in loss.links]
        if len(found) == 1:
            yield Problem(*found[0], part)
        else:
            places = [fill(LOSSY_PLACES[code], subject) for code, subject in found]
            hosts = [subject["host"] for _, subject in found if "host" in subject]
            args = {**part, "places": places, "hosts": hosts, "link": loss.links[0]}
            yield Problem("one_of_links_loses", args=args)


def _lossy(cluster: Cluster, link: str) -> tuple[str, Subject]:
    """(code, subject) of a link's loss, by its name: `A:2>`, `>A:2`, or that of a cable."""
    host, _, number = link.strip(">").rpartition(":")
    if (
        host not in cluster.members
        or not number.isdigit()
        or not (link.startswith(">") or link.endswith(">"))
    ):
        return "cable_loses", {"cable": link}
    code = "nic_loses_received" if link.startswith(">") else "nic_loses_sent"
    return code, {"host": host, "nic": cluster.nic_name((host, int(number)))}


def _pairs_apart(fabric: Fabric) -> Iterator[Problem]:
    yield from at_most(
        fabric.unconnected_pairs,
        lambda pair: Problem("pair_apart", {"host": pair[0]}, {"other": pair[1]}),
        "more_pairs_apart",
    )


def _lonely(fabric: Fabric) -> Iterator[Problem]:
    for network, nics in fabric.networks.items():
        if len(nics) == 1 and len(fabric.hosts) > 1:
            yield Problem("network_of_one", {"network": network}, _subject(nics[0]))


def _floods(cluster: Cluster) -> Iterator[Problem]:
    for nic in cluster.wiring.flooded(time.monotonic()):
        yield Problem("nic_flooded", {"host": nic[0], "nic": cluster.nic_name(nic)})


def _of_fat_tree(cluster: Cluster, fabric: Fabric) -> Iterator[Problem]:
    if cluster.fat_tree is None:
        return
    yield from cluster.fat_tree.liveness.problems
    base = cluster.fat_tree.trees.vlans[0]
    for network in cluster.fat_tree.networks:
        for nic in fabric.networks.get(network, ()):
            if nic.switch is None:
                yield Problem("nic_without_switch", _subject(nic), {"vlan": base})


def _shared_macs(cluster: Cluster) -> Iterator[Problem]:
    """MAC addresses that several hosts have: frames for one of them may arrive at another."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, member in cluster.members.items():
        for mac, label in _macs(cluster, member):
            found.setdefault(mac.lower(), []).append((name, label))
    for mac, labels in found.items():
        hosts = list(dict.fromkeys(name for name, _ in labels))
        if len(hosts) > 1:
            owners = [label for _, label in labels]
            yield Problem("mac_shared", args={"mac": mac, "owners": owners, "hosts": hosts})


def _macs(cluster: Cluster, member: Member) -> list[tuple[str, str]]:
    """(MAC address, label) of a host, its NICs, and what is behind it."""
    name = member.name
    behind = [*cluster.extra_macs(member), *(guest.mac for guest in member.guests)]
    return [
        (member.mac, name),
        *((port.mac, f"{name}:{port.name}") for port in member.ports.values()),
        *((mac, f"{name} (extra_macs)") for mac in behind),
    ]


def _contradictions(cluster: Cluster, fabric: Fabric) -> Iterator[Problem]:
    """Wiring that differs from cluster.yaml.

    Probes found one network where cluster.yaml declares two, or several where it declares one. The
    declared network with the fewest NICs is taken for the wrong one, and so is the part with the
    fewest NICs.
    """
    # NICs by network as probes found it and by declared network, and the other way round.
    declared_of: dict[str, dict[str, list[Nic]]] = {}
    learned_of: dict[str, dict[str, list[Nic]]] = {}
    for network, nics in fabric.networks.items():
        for nic in nics:
            declared = cluster.config.nic(nic.host, nic.name).network
            if declared is not None:
                declared_of.setdefault(network, {}).setdefault(declared, []).append(nic)
                learned_of.setdefault(declared, {}).setdefault(network, []).append(nic)
    for network, nics_of in sorted(declared_of.items()):
        if len(nics_of) > 1:
            odd = min(nics_of, key=lambda declared: len(nics_of[declared]))
            args = {
                **_listed(nics_of[odd]),
                "found": network,
                "others": sorted(set(nics_of) - {odd}),
            }
            yield Problem("nics_on_other_network", {"network": odd}, args)
    for declared, parts in sorted(learned_of.items()):
        if len(parts) > 1:
            fewest = _listed(min(parts.values(), key=len))
            yield Problem("nics_cut_off", {"network": declared}, fewest)


def _listed(nics: Collection[Nic]) -> dict[str, list[str]]:
    """Several NICs as arguments."""
    return {"nics": [f"{nic.host}:{nic.name}" for nic in nics], "hosts": [nic.host for nic in nics]}
