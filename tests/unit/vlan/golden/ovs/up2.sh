#!/bin/bash
# up2: written by ri2n vlan switch-config for Open vSwitch (2.17 or newer, no controller).
# Each VLAN is free of loops, all together are not: a spanning tree for all would block cables
# that are needed. STP and RSTP are off, BPDUs end here; Open vSwitch has no BPDU guard for the
# ports of hosts. It learns addresses per VLAN (but in flood_vlans) and drops VLANs that a port
# does not trunk. Empty trunks would mean all VLANs: ports without a VLAN are not attached.
set -eu

ovs-vsctl --may-exist add-br up2 -- set Bridge up2 \
    stp_enable=false \
    rstp_enable=false \
    'flood_vlans=[]' \
    other_config:forward-bpdu=false \
    other_config:mac-aging-time=300 \
    other_config:mac-table-size=8192

ovs-vsctl --may-exist add-port up2 swp1 -- set Port swp1 \
    vlan_mode=trunk 'tag=[]' trunks=102 'external_ids:ri2n-plugged="to leaf1 port 6"'
ip link set dev swp1 up

ovs-vsctl --may-exist add-port up2 swp2 -- set Port swp2 \
    vlan_mode=trunk 'tag=[]' trunks=102 'external_ids:ri2n-plugged="to leaf2 port 6"'
ip link set dev swp2 up

# to leaf2 port 7: no VLAN
ovs-vsctl --if-exists del-port up2 swp3
ip link set dev swp3 down
