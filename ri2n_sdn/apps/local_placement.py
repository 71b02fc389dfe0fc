"""What the local interface says of one placed connection: the row by which its sender's packets go."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError  # another than the built-in one before Python 3.11
from ipaddress import ip_address
from typing import Any

from ri2n_sdn.apps.channel import Refused
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.placed_rows import deciding_request, deciding_row
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.pipeline.placement import Connection, server_of

__all__ = ["deciding", "services"]

_ANSWER_S = 2.0


def services(cluster: Cluster, hosts: tuple[str, str]) -> dict[str, list[int]]:
    """The ports of each of two hosts whose connections are placed, none for all (cluster.lock is held)."""
    placement = cluster.fabric().placement
    return {name: list(placement[name]) for name in hosts if name in placement}


def deciding(cluster: Cluster, source: str, target: str, asked: object) -> dict[str, Any]:
    """Says as `placed` which row of `source` decides for a TCP connection to `target`; nothing for other connections.

    None when there is no such row. The path's NICs are None when it is no longer one of theirs. Raises BadInput, and
    NotAvailable when the host does not answer.
    """
    ends = _ends(asked)
    with cluster.lock:
        fabric = cluster.fabric()
        if target not in fabric.hosts or server_of(fabric.placement, source, ends[1], target, ends[3]) is None:
            return {}
        connection = Connection(*ends, fabric.hosts[target].mac)
        paths = {path.key: path for path in fabric.paths(source, target)}
        channel = cluster.members[source].channel
    if channel is None:
        raise NotAvailable(f"{source}: it is not connected, so its rows of placed connections cannot be read")
    try:
        parts = channel.request(deciding_request(channel, connection)).result(timeout=_ANSWER_S)
        row = deciding_row(b"".join(raw.data for part in parts for raw in part.body))
    except (FutureTimeoutError, Refused, ConnectionError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise NotAvailable(f"{source}: cannot read its rows of placed connections: {why}") from None
    if row is None:
        return {"placed": None}
    by_controller, key = row
    path = paths.get(key)
    return {
        "placed": {
            "row": "placed" if by_controller else "followed",
            "own": path.own.name if path is not None else None,
            "peer": path.peer.name if path is not None else None,
            "vlan": key[2] or None,
            "alive": path is not None and path.alive,
        }
    }


def _ends(asked: object) -> tuple[str, int, str, int]:
    """Both ends of the connection that a request is about: addresses as Open vSwitch's rows have them, and ports."""
    if not isinstance(asked, dict) or set(asked) != {"src_ip", "sport", "dst_ip", "dport"}:
        raise BadInput("connection: must have src_ip, sport, dst_ip and dport")
    addresses, ports = (asked["src_ip"], asked["dst_ip"]), (asked["sport"], asked["dport"])
    if not all(type(port) is int and 0 <= port <= 65535 for port in ports):
        raise BadInput("connection: its ports must be 0..65535")
    try:
        source, target = (ip_address(str(address)) for address in addresses)
    except ValueError as error:
        raise BadInput(f"connection: {error}") from None
    if source.version != target.version:
        raise BadInput(f"connection: {source} and {target}: one is IPv4, the other IPv6")
    return str(source), ports[0], str(target), ports[1]
