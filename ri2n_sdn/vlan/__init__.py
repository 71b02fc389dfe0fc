# SPDX-License-Identifier: Apache-2.0
"""Pure: VLAN-based fat trees (VFREC-Net, VBFT): trees, path tables, switch configurations."""
