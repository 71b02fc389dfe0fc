"""Pure: VLAN-based fat trees (VFREC-Net, VBFT): spanning trees, path tables, switch
configurations.
"""
