#!/bin/bash
# leaf1: written by ri2n vlan switch-config for Open vSwitch (2.17 or newer, no controller).
# Each VLAN is free of loops, all together are not: a spanning tree for all would block cables
# that are needed. STP and RSTP are off, BPDUs end here; Open vSwitch has no BPDU guard for the
# ports of hosts. It learns addresses per VLAN (but in flood_vlans) and drops VLANs that a port
# does not trunk. Empty trunks would mean all VLANs: ports without a VLAN are not attached.
set -eu

ovs-vsctl --may-exist add-br leaf1 -- set Bridge leaf1 \
    stp_enable=false \
    rstp_enable=false \
    'flood_vlans=[]' \
    other_config:forward-bpdu=false \
    other_config:mac-aging-time=300 \
    other_config:mac-table-size=8192

ovs-vsctl --may-exist add-port leaf1 swp1 -- set Port swp1 \
    vlan_mode=native-untagged tag=101 trunks=101,102 'external_ids:ri2n-plugged="n1 nic0"'
ip link set dev swp1 up

ovs-vsctl --may-exist add-port leaf1 swp2 -- set Port swp2 \
    vlan_mode=native-untagged tag=101 trunks=101,102 'external_ids:ri2n-plugged="n2 nic0"'
ip link set dev swp2 up

ovs-vsctl --may-exist add-port leaf1 swp5 -- set Port swp5 \
    vlan_mode=trunk 'tag=[]' trunks=101 'external_ids:ri2n-plugged="to up1 port 1"'
ip link set dev swp5 up

ovs-vsctl --may-exist add-port leaf1 swp6 -- set Port swp6 \
    vlan_mode=trunk 'tag=[]' trunks=102 'external_ids:ri2n-plugged="to up2 port 1"'
ip link set dev swp6 up
