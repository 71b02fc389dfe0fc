# SPDX-License-Identifier: Apache-2.0
"""Tests of ri2n_sdn.vlan."""
