# SPDX-License-Identifier: Apache-2.0
"""A job's channel between two real helpers: the bridge's tag puts packets on the job's links.

The test itself gives the bridges the rows and the helpers the control frames of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ri2n_sdn.pipeline import helper_frames
from ri2n_sdn.pipeline.helper_frames import HelperChannel

from .striping import Cluster, cluster, send_by_tcp, shared

__all__ = ["cluster", "shared"]

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("reorder_program")]

CHANNEL, TAG, PORT = 5, 0x5EED0001, 5900
COOKIE = 0x7E57
GENERATION = 2**32 - 1


def described(cluster: Cluster, host: str) -> dict[str, Any]:
    """What a host's helper says of its only peer."""
    peer: dict[str, Any] = cluster.lab.helpers.status(host)["peers"][0]
    return peer


def channel(cluster: Cluster, host: str) -> dict[str, Any]:
    """What a host's helper says of the job's channel; empty if there is none."""
    found = [c for c in described(cluster, host)["channels"] if c["channel"] == CHANNEL]
    return found[0] if found else {}


def tell(cluster: Cluster, links: frozenset[int] | None) -> None:
    """Tell both helpers that the job may use these links; None ends the job."""
    wanted = [] if links is None else [HelperChannel(CHANNEL, TAG, links)]
    for host in ("A", "B"):
        for frame in helper_frames.channels(GENERATION, described(cluster, host)["mac"], wanted):
            actions = f"push_vlan:0x8100,set_field:{0x1000 + 4094}->vlan_vid,output:102"
            packet = f"in_port=controller packet={frame.hex()} actions={actions}"
            cluster.lab.ofctl(host, "packet-out", "br-ri2n", packet)


@contextmanager
def job(cluster: Cluster, links: frozenset[int]) -> Iterator[None]:
    """TCP between A and B by one port is a job with these links."""
    try:
        tell(cluster, links)
        for host, side in (("A", "src"), ("B", "dst")):
            row = f"cookie={COOKIE},table=0,priority=2000,in_port=LOCAL,tcp,tcp_{side}={PORT}"
            actions = f"push_vlan:0x8100,set_field:{0x1000 + CHANNEL}->vlan_vid,output:101"
            cluster.lab.ofctl(host, "add-flow", "br-ri2n", f"{row} actions={actions}")
        yield
    finally:
        for host in ("A", "B"):
            cluster.lab.ofctl(host, "del-flows", "br-ri2n", f"cookie={COOKIE}/-1")
        tell(cluster, None)


def test_a_jobs_connection_uses_its_network_alone(
    cluster: Cluster, wait_until: Callable[..., None]
) -> None:
    for link in described(cluster, "B")["links"]:
        unclassed = {host: cluster.counters(host)["unclassed"] for host in ("A", "B")}
        with job(cluster, frozenset({link["link"]})):
            wait_until(
                lambda: all(channel(cluster, host).get("taken_by_peer") for host in ("A", "B")),
                cluster.described,
            )
            start = {it["link"]: it["sent"] for it in described(cluster, "B")["links"]}
            send_by_tcp(cluster, "B", cluster.lab.address("A"))
            # The last frames of the connection are on their way when the programs have ended.
            wait_until(
                lambda: all(
                    channel(cluster, near)["frames_out"] <= channel(cluster, far)["frames_in"]
                    for near, far in (("B", "A"), ("A", "B"))
                ),
                cluster.described,
            )
            carried = {host: channel(cluster, host) for host in ("B", "A")}
            sent = {
                it["link"]: it["sent"] - start[it["link"]]
                for it in described(cluster, "B")["links"]
            }
        assert carried["B"]["bytes_out"] > 1_000_000, cluster.described()
        assert carried["A"]["frames_in"] >= carried["B"]["frames_out"] > 600, cluster.described()
        assert carried["A"]["frames_out"] > 10, "the acknowledgements"
        frames = carried["B"]["frames_out"]
        others = sum(count for number, count in sent.items() if number != link["link"])
        assert sent[link["link"]] >= frames and others < 20, (
            f"{sent} of {frames}\n{cluster.described()}"
        )
        for host in ("A", "B"):
            assert described(cluster, host)["refused"] == {}, cluster.described()
            assert cluster.counters(host)["unclassed"] == unclassed[host], cluster.described()
    wait_until(lambda: not channel(cluster, "A") and not channel(cluster, "B"), cluster.described)
