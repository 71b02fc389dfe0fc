#!/bin/bash
# leaf2: written by ri2n vlan switch-config for Open vSwitch (2.17 or newer, no controller).
# Each VLAN is free of loops, all together are not: a spanning tree for all would block cables
# that are needed. STP and RSTP are off, BPDUs end here; Open vSwitch has no BPDU guard for the
# ports of hosts. It learns addresses per VLAN (but in flood_vlans) and drops VLANs that a port
# does not trunk. Empty trunks would mean all VLANs: ports without a VLAN are not attached.
set -eu

ovs-vsctl --may-exist add-br leaf2 -- set Bridge leaf2 \
    stp_enable=false \
    rstp_enable=false \
    'flood_vlans=[]' \
    other_config:forward-bpdu=false \
    other_config:mac-aging-time=300 \
    other_config:mac-table-size=8192

ovs-vsctl --may-exist add-port leaf2 swp1 -- set Port swp1 \
    vlan_mode=native-untagged tag=101 trunks=101,102 'external_ids:ri2n-plugged="n3 nic0"'
ip link set dev swp1 up

ovs-vsctl --may-exist add-port leaf2 swp2 -- set Port swp2 \
    vlan_mode=native-untagged tag=101 trunks=101,102 'external_ids:ri2n-plugged="n4 nic0"'
ip link set dev swp2 up

ovs-vsctl --may-exist add-port leaf2 swp5 -- set Port swp5 \
    vlan_mode=trunk 'tag=[]' trunks=101 'external_ids:ri2n-plugged="to up1 port 2"'
ip link set dev swp5 up

ovs-vsctl --may-exist add-port leaf2 swp6 -- set Port swp6 \
    vlan_mode=trunk 'tag=[]' trunks=102 'external_ids:ri2n-plugged="to up2 port 2"'
ip link set dev swp6 up

# to up2 port 3: no VLAN
ovs-vsctl --if-exists del-port leaf2 swp7
ip link set dev swp7 down

ovs-vsctl --may-exist add-port leaf2 swp8 -- set Port swp8 \
    vlan_mode=access tag=101 'trunks=[]' 'external_ids:ri2n-plugged="router eth0"'
ip link set dev swp8 up
