# SPDX-License-Identifier: Apache-2.0
"""Reads from a host the row that decides the path of a placed connection's packets."""

from __future__ import annotations

# Before Python 3.11 this is another class than the built-in TimeoutError.
from concurrent.futures import TimeoutError as FutureTimeoutError

from ri2n_sdn.apps.channel import Refused
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.placed_rows import deciding_request, deciding_row
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.pipeline.explain import Flow, Row
from ri2n_sdn.pipeline.placement import Connection

__all__ = ["deciding"]

_ANSWER_S = 2.0


def deciding(cluster: Cluster, source: str, target: str, flow: Flow) -> Row | None:
    """The row of `source` that decides for a TCP connection to `target`; None when there is none.

    Raises NotAvailable when `source` does not answer, or when either host is gone.
    """
    with cluster.lock:
        hosts = cluster.fabric().hosts
        if not {source, target} <= hosts.keys():
            raise refusal("host_has_left", hosts=[source, target])
        connection = Connection(flow.src_ip, flow.sport, flow.dst_ip, flow.dport, hosts[target].mac)
        channel = cluster.members[source].channel
    if channel is None:
        raise refusal("host_away_for_rows", host=source)
    try:
        parts = channel.request(deciding_request(channel, connection)).result(timeout=_ANSWER_S)
        row = deciding_row(b"".join(raw.data for part in parts for raw in part.body))
    except (FutureTimeoutError, Refused, ConnectionError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise refusal("host_rows_unread", host=source, why=str(why)) from None
    return None if row is None else Row(*row)
