# SPDX-License-Identifier: Apache-2.0
"""Operations of the local interface about hosts: which there are, and that one is gone for good."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ri2n_sdn.apps.asker import Asker
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.local_jobs import list_jobs, list_reservations
from ri2n_sdn.contract.answers import KnownHost, KnownHosts, Retired
from ri2n_sdn.contract.documents import Job, Reservation
from ri2n_sdn.contract.names import is_host_name
from ri2n_sdn.contract.operations import HOST_RETIRE, Request
from ri2n_sdn.contract.refusals import refusal

__all__ = ["list_hosts", "retire_host"]

# The thread that writes rows looks every quarter of a second, and a write takes up to 5 s.
_STORED_S = 6.0
_LOOK_S = 0.02
_SHOWN = 64


def list_hosts(cluster: Cluster) -> KnownHosts:
    """All hosts that are known, also those that are only remembered, by name.

    Of each: whether it is `connected`, where it connects from, since when it is away (Unix time, if
    known), its NICs, whether cluster.yaml names it, its places there (switch and port of each NIC),
    and the ids of the jobs and reservations that name it.
    """
    jobs = _by_host(list_jobs(cluster)["jobs"])
    reservations = _by_host(list_reservations(cluster)["reservations"])
    rows = cluster.memory.state().hosts
    now_s = time.time()
    with cluster.lock:
        since_epoch_s = now_s - time.monotonic()
        names = {*cluster.members, *cluster.remembered.hosts, *rows, *cluster.config.hosts}
        found: list[KnownHost] = []
        for name in sorted(names):
            member, row = cluster.members.get(name), rows.get(name)
            channel = member.channel if member is not None else None
            away_s = row.away_since_s if row is not None else None
            if away_s is None and member is not None and member.left_s:
                away_s = since_epoch_s + member.left_s
            declared = cluster.config.hosts.get(name)
            nics = (
                [port.name for _, port in sorted(member.ports.items())]
                if member is not None
                else [row.nic_names[port] for port in sorted(row.nic_names)]
                if row is not None
                else []
            )
            known: KnownHost = {
                "name": name,
                "connected": channel is not None,
                "seen": member is not None or row is not None,
                "address": channel.address if channel is not None else None,
                "dpid": f"{member.dpid:016x}"
                if member is not None
                else row.datapath_id
                if row is not None
                else None,
                "away_since_s": None if channel is not None else away_s,
                "nics": nics,
                "declared": declared is not None,
                "places": {
                    nic: [about.switch, about.port]
                    for nic, about in (declared.nics if declared is not None else {}).items()
                    if about.switch is not None
                },
                "jobs": jobs.get(name, []),
                "reservations": reservations.get(name, []),
            }
            fast = cluster.measured.fast.get(name)
            if fast is not None and fast.state is not None and channel is not None:
                known["fast_report_age_s"] = round(time.monotonic() - fast.heard_s, 1)
            found.append(known)
    return {"hosts": found}


def _by_host(listed: Iterable[Job | Reservation]) -> dict[str, list[str]]:
    """The ids of jobs or reservations, by each host that they name."""
    found: dict[str, list[str]] = {}
    for each in listed:
        for host in each["hosts"]:
            found.setdefault(host, []).append(each["id"])
    return found


def retire_host(cluster: Cluster, request: Request, asker: Asker) -> Retired:
    """Forget a host that is away for good: it is in no status and no row of the store any more.

    `dry_run`: only say what would happen. `force`: also when jobs or reservations name it; they
    stay, and wait for it. To retire a host that is not known is no error, and does nothing. Raises
    BadInput when no host can have the name, when the host is connected, when cluster.yaml names it
    (it would be awaited again), and without `force` when a job or reservation does. Raises
    NotAvailable when another controller is in charge.
    """
    unknown = HOST_RETIRE.strange(request)
    if unknown:
        raise refusal("unknown_key", name=min(unknown))
    name = request.get("name")
    if not isinstance(name, str) or not name:
        raise refusal("not_host_name", "name")
    flags = [request.get(key, False) for key in ("dry_run", "force")]
    if not all(isinstance(flag, bool) for flag in flags):
        raise refusal("not_flag", "dry_run, force")
    dry_run, force = flags
    document = next((each for each in list_hosts(cluster)["hosts"] if each["name"] == name), None)
    if document is None:
        if not is_host_name(name):
            raise refusal("host_not_name", "name", value=ascii(name[:_SHOWN]))
        return {"retired": False, "known": False, "jobs": [], "reservations": [], "stored": True}
    if cluster.passive is not None:
        raise refusal("stands_by", why=cluster.passive)
    if document["connected"]:
        raise refusal("host_connected", host=name)
    if document["declared"]:
        raise refusal("host_declared", host=name)
    hurt = [*document["jobs"], *document["reservations"]]
    if hurt and not force:
        by = f"{', '.join(hurt[:10])}{', ...' if len(hurt) > 10 else ''}"
        raise refusal(
            "host_needed", host=name, by=f"{by} need{'s' if len(hurt) == 1 else ''}", needed_by=hurt
        )
    answer: Retired = {
        "retired": not dry_run,
        "known": True,
        "nics": document["nics"],
        "jobs": document["jobs"],
        "reservations": document["reservations"],
        "stored": True,
    }
    if dry_run:
        return answer
    with cluster.lock:
        member = cluster.members.get(name)
        if member is not None and member.channel is not None:
            raise refusal("host_just_connected", host=name)
        cluster.remembered.hosts.pop(name, None)
        cluster.remembered.expected.discard(name)
        if believed := [nic for nic in cluster.remembered.networks if nic[0] == name]:
            cluster.wiring.doubt(believed)
        if member is not None:
            cluster.forget(member, "host_retired", by=asker.name)
        else:
            cluster.note("host_retired", {"host": name}, by=asker.name)
            cluster.topology_changed()
    answer["stored"] = _stored(cluster, name)
    return answer


def _stored(cluster: Cluster, name: str) -> bool:
    """Wait until the store has no row of a host any more, and return whether it has none."""
    until_s = time.monotonic() + _STORED_S
    while name in cluster.memory.state().hosts:
        if time.monotonic() > until_s or cluster.memory.problem is not None:
            return False
        cluster.wake.stop.wait(_LOOK_S)
    return True
