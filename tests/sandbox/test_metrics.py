# SPDX-License-Identifier: Apache-2.0
"""Metrics of a real controller: bytes, weights, outages and messages, and a new start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ri2n_lab.cluster.sandbox import Sandbox
from tests.waiting import wait_until

from .frames import udp
from .test_trunk import dead_port
from .web_process import HOSTS, WebProcess, sandbox, web_process

__all__ = ["sandbox"]
Key = tuple[str, ...]


@pytest.fixture(scope="module")
def web(sandbox: Sandbox) -> Iterator[WebProcess]:
    with web_process(sandbox.socket) as made:
        yield made


def scraped(web: WebProcess) -> dict[Key, float]:
    """The values by name and labels, in the order of their names."""
    families: Any = text_string_to_metric_families(web.get("/metrics").body.decode())
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def sum_of(found: dict[Key, float], name: str) -> float:
    return sum(value for key, value in found.items() if key[0] == name)


def test_a_real_controller_has_all_that_is_always_there(sandbox: Sandbox, web: WebProcess) -> None:
    wait_until(lambda: sum_of(scraped(web), "ri2n_cycle_duration_seconds_count") > 2, web.log)
    found = scraped(web)
    for host in HOSTS:
        assert found["ri2n_host_connected", host] == 1
        for nic in (f"{host}-e0", f"{host}-e1"):
            assert found["ri2n_nic_alive", host, nic] == found["ri2n_nic_up", host, nic] == 1
            assert found["ri2n_nic_outages_total", host, nic] == 0
            assert ("ri2n_nic_transmit_bytes_total", host, nic) in found
    assert found["ri2n_openflow_messages_total", "sent", "flow_mod"] > 10
    assert found["ri2n_openflow_messages_total", "received", "packet_in"] > 0
    # A host connects twice when the greeting takes a second, or when it is hurried meanwhile.
    sent = found["ri2n_openflow_messages_total", "sent", "hello"]
    assert len(HOSTS) <= found["ri2n_openflow_messages_total", "received", "hello"] <= sent
    assert found["ri2n_cycle_cpu_seconds_sum",] > 0
    assert found["ri2n_errors_total", "handler"] == 0


def test_bytes_and_weights_follow_traffic(sandbox: Sandbox, web: WebProcess) -> None:
    before = scraped(web)

    def flows() -> bool:
        frames = [
            udp(sandbox.mac("A"), sandbox.mac("B"), (port, 9), size=1400) for port in range(40)
        ]
        sandbox.receive("A", *frames)
        found = scraped(web)
        carried = sum_of(found, "ri2n_nic_transmit_bytes_total") - sum_of(
            before, "ri2n_nic_transmit_bytes_total"
        )
        return carried > 100_000 and found.get(("ri2n_host_active_pairs", "A"), 0) == 1

    wait_until(flows, lambda: str(scraped(web)))
    found = scraped(web)
    weights = [found["ri2n_nic_weight_ratio", "A", nic] for nic in ("A-e0", "A-e1")]
    assert sum(weights) == pytest.approx(1.0) and min(weights) > 0.2


def test_an_outage_is_counted_once_and_has_a_length(sandbox: Sandbox, web: WebProcess) -> None:
    before = scraped(web)
    outages = before["ri2n_nic_outages_total", "B", "B-e1"]
    out_s = before["ri2n_nic_outage_seconds_total", "B", "B-e1"]
    with dead_port(sandbox, "B", 1):
        wait_until(lambda: scraped(web)["ri2n_nic_alive", "B", "B-e1"] == 0, web.log)
        found = scraped(web)
        assert found["ri2n_nic_outages_total", "B", "B-e1"] == outages + 1
        assert found["ri2n_nic_outage_seconds_total", "B", "B-e1"] == out_s
        assert ("ri2n_nic_out_since_timestamp_seconds", "B", "B-e1") in found
        assert found["ri2n_problems", "bad"] + found["ri2n_problems", "warning"] > 0
    wait_until(lambda: scraped(web)["ri2n_nic_alive", "B", "B-e1"] == 1, web.log)
    found = scraped(web)
    assert found["ri2n_nic_outages_total", "B", "B-e1"] == outages + 1
    assert found["ri2n_nic_outage_seconds_total", "B", "B-e1"] > out_s
    # Of two NICs on a network, the other one may seem out for a moment.
    assert found["ri2n_nic_outage_duration_seconds_count",] >= 1


def test_a_controller_that_starts_anew_begins_at_0(sandbox: Sandbox, web: WebProcess) -> None:
    with dead_port(sandbox, "B", 1):
        wait_until(lambda: scraped(web)["ri2n_nic_alive", "B", "B-e1"] == 0, web.log)
    wait_until(lambda: scraped(web)["ri2n_nic_alive", "B", "B-e1"] == 1, web.log)
    assert scraped(web)["ri2n_nic_outages_total", "B", "B-e1"] >= 1
    started_s = scraped(web)["ri2n_controller_start_time_seconds",]
    sandbox.kill_controllers()
    wait_until(lambda: scraped(web)["ri2n_up",] == 0, web.log)
    assert "ri2n_hosts" not in {key[0] for key in scraped(web)}, "old values are none"
    sandbox.start_controller(strategy="max_min")
    sandbox.wait_settled()
    wait_until(lambda: scraped(web)["ri2n_up",] == 1, web.log)
    wait_until(lambda: ("ri2n_nic_outages_total", "B", "B-e1") in scraped(web), web.log)
    found = scraped(web)
    assert found["ri2n_controller_start_time_seconds",] > started_s
    assert found["ri2n_nic_outages_total", "B", "B-e1"] == 0


def test_a_nic_that_is_gone_has_no_values_while_its_host_has(
    sandbox: Sandbox, web: WebProcess
) -> None:
    """So no value of it is 0: the alert RI2NNicGone asks for what was there before."""
    again = sandbox.link_commands("B", 2, "n1")[1:]
    sandbox.ovs.vsctl("del-port", "B", "B-e1", "--", "del-port", "n1-B-1")
    try:
        wait_until(lambda: ("ri2n_nic_alive", "B", "B-e1") not in scraped(web), web.log)
        found = scraped(web)
        assert not [key for key in found if key[1:] == ("B", "B-e1")]
        assert found["ri2n_host_connected", "B"] == found["ri2n_nic_alive", "B", "B-e0"] == 1
    finally:
        sandbox.ovs.vsctl(*again)
    wait_until(lambda: scraped(web).get(("ri2n_nic_alive", "B", "B-e1")) == 1, web.log)
