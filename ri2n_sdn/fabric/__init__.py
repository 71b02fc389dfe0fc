"""Hosts, NICs, networks, switches and paths: what was configured and what was learned. All pure."""
