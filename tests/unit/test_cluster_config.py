# SPDX-License-Identifier: Apache-2.0
"""cluster.yaml: what is taken, and one line for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ri2n_sdn.apps.config import ClusterConfig, load_cluster_config
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.classes import TrafficClass


def load(tmp_path: Path, text: str) -> ClusterConfig:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return load_cluster_config(path)


def test_all_keys_are_optional(tmp_path: Path) -> None:
    assert load(tmp_path, "{}") == load_cluster_config(None) == ClusterConfig()


def test_declared_rates_and_networks_are_found(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "strategy: ri2n_plus\nslots: 128\nhbspan_s: {min: 0.5, max: 2}\n"
        "hosts: {A: {nics: {eth0: {rate_bps: 5, network: x}}}}\n",
    )
    assert (config.strategy, config.slots, config.hbspan_s.min) == ("ri2n_plus", 128, 0.5)
    assert config.nic("A", "eth0").rate_bps == 5 and config.nic("A", "eth0").network == "x"
    assert config.nic("A", "eth1").rate_bps is config.nic("B", "eth0").rate_bps is None


def test_classes_of_traffic_are_read_in_order(tmp_path: Path) -> None:
    config = load(tmp_path, "by_flows: [{proto: tcp, port: 22}, {proto: icmp}, {dscp: 46}]")
    wanted = (TrafficClass("tcp", 22), TrafficClass("icmp"), TrafficClass(dscp=46))
    assert config.traffic_by_flows() == wanted and ClusterConfig().traffic_by_flows() == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour: red", "colour: unknown key"),
        ("hosts: {A: {nics: {eth0: {rate: 1}}}}", "hosts.A.nics.eth0.rate: unknown key"),
        ("hosts: {A: {nics: {eth0: {rate_bps: 0}}}}", "hosts.A.nics.eth0.rate_bps"),
        ("slots: 100", "slots: must be 16, 32, 64, 128 or 256"),
        ("slots: 512", "slots"),
        ("strategy: best", "strategy: unknown strategy 'best'"),
        ("hbspan_s: {min: 5}", "hbspan_s: min is larger than max"),
        ("a: 1\na: 2", "duplicate key 'a'"),
        ("by_flows: [{port: 22}]", "by_flows[0]: a port needs proto: tcp or udp"),
        ("by_flows: [{proto: icmp, port: 22}]", "by_flows[0]: a port needs proto: tcp or udp"),
        ("by_flows: [{}]", "by_flows[0]: must have proto or dscp"),
        ("by_flows: [{proto: tcp, port: 0}]", "by_flows[0].port"),
        ("by_flows: [{proto: tcp, ports: 1}]", "by_flows[0].ports: unknown key"),
        ("by_flows: [{dscp: 64}]", "by_flows[0].dscp"),
        ("by_flows: [{proto: tcp}, {dscp: 1}, {proto: tcp}]", "by_flows: entry 2 is there twice"),
        ("- 1", "must be a mapping"),
        ("a: [", "cluster.yaml:"),
    ],
)
def test_a_mistake_gets_one_line_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        load(tmp_path, text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "cluster.yaml" in str(error.value)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_a_file_without_keys_is_all_defaults(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == load_cluster_config(None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.yaml: No such file"):
        load_cluster_config(tmp_path / "nowhere.yaml")
