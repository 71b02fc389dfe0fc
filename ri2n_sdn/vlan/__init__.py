"""Pure: VLAN-based fat trees (VFREC-Net, VBFT): trees, path tables, switch configurations."""
