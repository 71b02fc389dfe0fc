"""The problems that `ri2n status` shows: of hosts, NICs, cables, helpers and the controller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone

from ri2n_sdn.apps.cluster import EMPTIED_CALM_S, Cluster, Member
from ri2n_sdn.apps.patience import MUTE_S
from ri2n_sdn.fabric.model import Fabric, Host
from ri2n_sdn.fabric.problem import Problem, worst_first
from ri2n_sdn.weights.losses import Loss

__all__ = ["problems_of"]

# So many problems of one kind are shown; for the others, their number.
_MAX_SHOWN = 20

# A certificate is told of when it ends within this time, as by the alert RI2NHostCertificateEnds.
_CERTIFICATE_LEFT_S = 14 * 86400.0

_CHECK_CABLE = "check its cable and its switch port"


def problems_of(cluster: Cluster) -> list[Problem]:
    """All problems, the worst first. The caller holds `cluster.lock`."""
    if cluster.passive is not None:
        # The one in charge knows what is wrong with the hosts.
        return worst_first([*_of_controller(cluster), *_rivals(cluster), *_refusals(cluster)])
    fabric = cluster.fabric()
    return worst_first(
        [
            *_of_controller(cluster),
            *_rivals(cluster),
            *_refusals(cluster),
            *(
                problem
                for member in cluster.members.values()
                for problem in _of_member(cluster, member)
            ),
            *_certificates(cluster),
            *_missing(cluster),
            *_not_back(cluster),
            *_pairs_apart(fabric),
            *_contradictions(cluster, fabric),
            *_shared_macs(cluster),
            *(
                problem
                for host in fabric.hosts.values()
                if host.connected
                for problem in _of_nics(host)
            ),
            *_losses(cluster),
            *_lonely(fabric),
            *_floods(cluster),
            *_of_fat_tree(cluster, fabric),
            *cluster.jobs.problems(time.monotonic()),
        ]
    )


def _of_controller(cluster: Cluster) -> Iterator[Problem]:
    if not cluster.members and not cluster.config.hosts:
        yield Problem("warning", "no host has connected", "run host-up --controller on the hosts")
    for what, fault in cluster.faults.items():
        yield Problem("bad", f"{what}: {fault}", "the controller's log says more")
    problem = cluster.memory.problem
    if problem is not None:
        yield Problem(
            "warning",
            f"nothing is remembered: {problem}",
            "the hosts go on; without a memory, the next start takes longer",
        )


def _rivals(cluster: Cluster) -> Iterator[Problem]:
    """Other controllers of the hosts that have no store in common with this one."""
    advice = "stop one of them, or give both one store with --store"
    rivals = cluster.other_rivals()
    for rival in rivals:
        who = f"another controller, {rival.name}, is connected to the same hosts"
        if cluster.passive is None:
            yield Problem("bad", f"{who}, and should stand back", advice)
        else:
            first = " and was there first" if rival.name in cluster.passive else ""
            yield Problem("bad", f"{who}{first}: this one stands back", advice)


def _refusals(cluster: Cluster) -> Iterator[Problem]:
    """Hosts that were refused and still try. Each text says why, and what to do."""
    texts = cluster.refusals.texts()
    for text in texts[-_MAX_SHOWN:]:
        yield Problem("bad", text)
    if len(texts) > _MAX_SHOWN:
        yield Problem("bad", f"{len(texts) - _MAX_SHOWN} more hosts were refused", "see the log")


def _of_member(cluster: Cluster, member: Member) -> Iterator[Problem]:
    name, now_s = member.name, time.monotonic()
    for what, fault in member.faults.items():
        yield Problem("bad", f"{name}: {what}: {fault}", "the controller's log says more")
    mute_s = member.channel.mute_s(now_s) if member.channel is not None else 0.0
    if member.channel is None:
        if name not in _awaited(cluster):  # of those speaks _not_back
            yield Problem("bad", f"{name} is not connected", "run host-status there: it says why")
    elif mute_s > MUTE_S:
        yield Problem(
            "bad",
            f"{name} has not answered for {mute_s:.1f} s: the others go on without it",
            "check whether its ovs-vswitchd is busy or hangs",
        )
    elif cluster.config.stripes(name) and member.taps:
        yield from _of_helper(member)
    if member.emptied > 2 and now_s - member.emptied_s < EMPTIED_CALM_S:
        yield Problem(
            "bad",
            f"{name}: its tables are emptied again and again",
            "find out who else changes them",
        )
    if member.repairs > 1:
        yield Problem(
            "bad",
            f"{name}: somebody else changes its rows again and again",
            "check whether another controller runs",
        )


def _of_helper(member: Member) -> Iterator[Problem]:
    """Problems of a helper. While it cannot be used, its host's traffic goes by flows."""
    name = member.name
    if not member.has_taps:
        yield Problem(
            "warning",
            f"{name}: its helper cannot be used: the ports of its TAPs have wrong numbers",
            "run host-up there",
        )
    elif not member.helper_runs:
        yield Problem(
            "warning", f"{name}: its helper does not run", "run systemctl start ri2n-reorder there"
        )
    elif member.silence.silent:
        quiet_s = time.monotonic() - member.silence.last_s
        text = (
            f"{name}'s helper has reported nothing for {quiet_s:.0f} s: its traffic goes by flows"
        )
        yield Problem("warning", text, "if it hangs, run systemctl restart ri2n-reorder there")


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
    advice = "put a new one there; where it is there already, run ri2n reload here"
    for ends_s, name in ending[:_MAX_SHOWN]:
        day = datetime.fromtimestamp(ends_s, timezone.utc).date()
        if ends_s > now_s:
            yield Problem("warning", f"{name}: its certificate ends on {day}", advice)
        else:
            away = cluster.members[name].channel is None
            text = f"{name}: its certificate has ended on {day}, so it cannot connect again"
            yield Problem("bad" if away else "warning", text, advice)
    if len(ending) > _MAX_SHOWN:
        more = len(ending) - _MAX_SHOWN
        yield Problem("warning", f"{more} more hosts have a certificate that ends soon", advice)


def _missing(cluster: Cluster) -> Iterator[Problem]:
    for name in sorted(
        {*cluster.config.hosts, *cluster.config.placed_ports()} - set(cluster.members)
    ):
        text = f"{name} is in cluster.yaml but has never connected"
        yield Problem("bad", text, "run host-up --controller there, or take it out of cluster.yaml")


def _not_back(cluster: Cluster) -> Iterator[Problem]:
    """Hosts that were connected when an earlier controller ended."""
    names = sorted(_awaited(cluster))
    for name in names[:_MAX_SHOWN]:
        text = f"{name} was connected before the controller started anew, and has not come back"
        yield Problem("bad", text, "run host-status there: it says why")
    if len(names) > _MAX_SHOWN:
        yield Problem("bad", f"{len(names) - _MAX_SHOWN} more hosts have not come back")


def _awaited(cluster: Cluster) -> set[str]:
    """Hosts that an earlier controller knew, that have not come back, and that nobody declares."""
    known = cluster.remembered.expected & cluster.remembered.hosts.keys()
    return known - cluster.config.hosts.keys()


def _of_nics(host: Host) -> Iterator[Problem]:
    """NICs of a connected host that do not work. For a host that is away, nobody knows."""
    dead = [nic for nic in host.nics if not (nic.sends and nic.receives)]
    if dead and len(dead) == len(host.nics):
        yield Problem(
            "bad",
            f"{host.name}: none of its NICs works, so its peers cannot reach it",
            "see the problem of each NIC",
        )
    for nic in dead:
        if not nic.up:
            how = " has no link"
        elif nic.tx_alive:
            how = ": nothing arrives at it"
        elif nic.rx_alive:
            how = ": nothing that it sends arrives"
        else:
            how = ": nothing arrives at it, and nothing that it sends arrives"
        yield Problem("warning", f"{host.name}:{nic.name}{how}", _CHECK_CABLE)


def _losses(cluster: Cluster) -> Iterator[Problem]:
    """Links that lose packets. A loss of 5% makes each TCP connection over the link very slow."""
    advice = "check cables, plugs, switch ports and duplex there, and whether a CPU is too busy"
    for loss in cluster.measured.losses.losses:
        yield Problem("bad", _lost(cluster, loss), advice)


def _lost(cluster: Cluster, loss: Loss) -> str:
    places = [_place(cluster, link) for link in loss.links]
    if len(places) > 1:
        return f"{loss.part:.0%} of packets are lost in one of: {', '.join(places)}"
    return f"{loss.part:.0%} of packets are lost in {places[0]}"


def _place(cluster: Cluster, link: str) -> str:
    """A link in words, from its name: `A:2>`, `>A:2`, or another name for one between switches."""
    host, _, number = link.strip(">").rpartition(":")
    if (
        host not in cluster.members
        or not number.isdigit()
        or not (link.startswith(">") or link.endswith(">"))
    ):
        return link
    label = cluster.nic_label((host, int(number)))
    return f"what {label} receives" if link.startswith(">") else f"what {label} sends"


def _pairs_apart(fabric: Fabric) -> Iterator[Problem]:
    apart = fabric.unconnected_pairs()
    advice = "plug a NIC of each into one switch"
    for a, b in apart[:_MAX_SHOWN]:
        yield Problem("bad", f"{a} and {b} have no common network", advice)
    if len(apart) > _MAX_SHOWN:
        yield Problem(
            "bad", f"{len(apart) - _MAX_SHOWN} more pairs of hosts have no common network", advice
        )


def _lonely(fabric: Fabric) -> Iterator[Problem]:
    for network, nics in fabric.networks.items():
        if len(nics) == 1 and len(fabric.hosts) > 1:
            yield Problem(
                "warning",
                f"network {network} has a single NIC, {nics[0].host}:{nics[0].name}",
                _CHECK_CABLE,
            )


def _floods(cluster: Cluster) -> Iterator[Problem]:
    for nic in cluster.wiring.flooded(time.monotonic()):
        text = (
            f"{cluster.nic_label(nic)} is flooded with probes of another sender, so the controller "
            "does not know whether it works"
        )
        yield Problem(
            "warning",
            text,
            "find out who sends frames of EtherType 0x88b5 there, perhaps another controller",
        )


def _of_fat_tree(cluster: Cluster, fabric: Fabric) -> Iterator[Problem]:
    if cluster.fat_tree is None:
        return
    for text in cluster.fat_tree.liveness.faults:
        yield Problem(
            "warning", text, "check that cable or switch; meanwhile, traffic goes by other VLANs"
        )
    base = cluster.fat_tree.trees.vlans[0]
    for network in cluster.fat_tree.networks:
        for nic in fabric.networks.get(network, ()):
            if nic.switch is None:
                text = (
                    f"{nic.host}:{nic.name} has no switch in cluster.yaml: it uses VLAN {base} "
                    "alone"
                )
                yield Problem("warning", text, "add its switch there")


def _shared_macs(cluster: Cluster) -> Iterator[Problem]:
    """MAC addresses that several hosts have: frames for one of them may arrive at another."""
    if not _any_shared(cluster):
        return
    owners: dict[str, dict[str, list[str]]] = {}
    for name, member in cluster.members.items():
        own = [
            (member.mac, name),
            *((port.mac, f"{name}:{port.name}") for port in member.ports.values()),
        ]
        behind = [*cluster.extra_macs(member), *(guest.mac for guest in member.guests)]
        for mac, label in own + [(mac, f"{name} (extra_macs)") for mac in behind]:
            owners.setdefault(mac.lower(), {}).setdefault(name, []).append(label)
    for mac, labels_by_host in owners.items():
        if len(labels_by_host) > 1:
            labels = " and ".join(label for labels in labels_by_host.values() for label in labels)
            advice = "give all but one of them another address and run host-up there"
            yield Problem("bad", f"{labels} have one MAC address, {mac}", advice)


def _any_shared(cluster: Cluster) -> bool:
    """Whether any two hosts have one MAC address; nearly always none have."""
    owner: dict[str, str] = {}
    for name, member in cluster.members.items():
        macs = [member.mac, *(port.mac for port in member.ports.values())]
        macs += [*cluster.extra_macs(member), *(guest.mac for guest in member.guests)]
        for mac in macs:
            if owner.setdefault(mac.lower(), name) != name:
                return True
    return False


def _contradictions(cluster: Cluster, fabric: Fabric) -> Iterator[Problem]:
    """Wiring that differs from cluster.yaml.

    Probes found one network where cluster.yaml declares two, or several where it declares one. The
    declared network with the fewest NICs is taken for the wrong one, and so is the part with the
    fewest NICs.
    """
    # NICs' labels by network as probes found it and by declared network, and the other way round.
    declared_of: dict[str, dict[str, list[str]]] = {}
    learned_of: dict[str, dict[str, list[str]]] = {}
    for network, nics in fabric.networks.items():
        for nic in nics:
            declared = cluster.config.network(nic.host, nic.name)
            if declared is not None:
                label = f"{nic.host}:{nic.name}"
                declared_of.setdefault(network, {}).setdefault(declared, []).append(label)
                learned_of.setdefault(declared, {}).setdefault(network, []).append(label)
    for network, labels_of in sorted(declared_of.items()):
        if len(labels_of) > 1:
            odd, labels = min(labels_of.items(), key=lambda item: len(item[1]))
            others = ", ".join(sorted(set(labels_of) - {odd}))
            text = (
                f"{', '.join(labels)}: declared on {odd}, but found on {network} with NICs of "
                f"{others}"
            )
            yield Problem(
                "bad", text, "plug the cable in where cluster.yaml says, or correct cluster.yaml"
            )
    for declared, parts in sorted(learned_of.items()):
        if len(parts) > 1:
            odd_part = min(parts.values(), key=len)
            yield Problem(
                "bad", f"{', '.join(odd_part)}: cut off from the rest of {declared}", _CHECK_CABLE
            )
