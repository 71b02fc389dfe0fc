# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of cluster.yaml, for editors."""

from __future__ import annotations

from typing import Any

from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.contract.choices import STRATEGIES

__all__ = ["cluster_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

# What an editor shows beside a key, by the name of its model in the schema ("": the file itself).
_MEANING: dict[str, dict[str, str]] = {
    "": {
        "strategy": "How weights are computed; the option --strategy overrides it.",
        "slots": "Slots per table. Each (peer, slot) is a datapath flow: 64 is right for up to "
        "some 1,000 active peers.",
        "hbspan_s": "The shortest and the longest time in seconds between two readings of the "
        "counters, after each of which weights are renewed.",
        "striping": "auto: pairs of hosts that both run ri2n-reorder send packet by packet over "
        "all their links. off: helpers are given nothing to send.",
        "by_flows": "Traffic that keeps one link per flow, also with helpers.",
        "placement": "Services whose new TCP connections each go by the server's NIC that has "
        "the fewest connections.",
        "hosts": "What the controller cannot find out by itself about hosts, by their names.",
        "switches": "Switches with cables between them, by their names.",
        "vlans": "How the spanning trees over these switches are used.",
    },
    "_Hbspan": {
        "min": "The shortest time in seconds between two readings of the counters.",
        "max": "The longest time in seconds between two readings of the counters.",
    },
    "_HostConfig": {
        "nics": "The host's NICs, by their names.",
        "extra_macs": "MACs of containers and virtual machines behind the host.",
        "striping": "As striping of the whole file, for this host.",
    },
    "_NicConfig": {
        "rate_bps": "The link's speed in bit/s, where the driver does not know it.",
        "network": "The network into which the NIC should be plugged.",
        "switch": "The switch that the NIC is plugged into, one of switches.",
        "port": "The number of the switch's port, for messages.",
    },
    "_Class": {
        "proto": "The protocol: tcp, udp or icmp.",
        "port": "From or to this port of TCP or UDP.",
        "dscp": "The DSCP of the packets' IP header.",
    },
    "_Placement": {
        "hosts": "The servers.",
        "ports": "The TCP ports of their services; without them, all.",
        "policy": "The only policy is least_connections.",
    },
}


def cluster_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of cluster.yaml.

    Whatever it refuses, the controller refuses. The controller also refuses what does not fit
    together, such as a NIC at a switch that is not declared, which a schema cannot say.
    """
    schema = ClusterConfig.model_json_schema()
    for name, meanings in _MEANING.items():
        properties = (schema["$defs"][name] if name else schema)["properties"]
        for key, meaning in meanings.items():
            properties[key]["description"] = meaning
    # Validators of the model check these two; the types alone do not say it.
    schema["properties"]["strategy"]["enum"] = list(STRATEGIES)
    schema["properties"]["slots"]["enum"] = [16, 32, 64, 128, 256]
    return {"$schema": _DIALECT, **schema, "title": "cluster.yaml of RI2N"}
