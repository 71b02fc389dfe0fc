# SPDX-License-Identifier: Apache-2.0
"""Hosts, NICs, networks, switches and paths: what was configured and what was learned. All pure."""
