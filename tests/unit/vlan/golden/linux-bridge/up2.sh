#!/bin/bash
# up2: written by ri2n vlan switch-config for a Linux bridge (kernel 4.4 or newer, iproute2).
# Each VLAN is free of loops, all together are not: the bridge's one spanning tree would block
# cables that are needed and is off. Its BPDU guard needs it, so that ports of hosts have none.
# With vlan_filtering a bridge learns addresses per VLAN and drops VLANs that a port is not in;
# without a default PVID no port is in VLAN 1, and ports without a PVID drop untagged frames.
set -eu

ip link show dev up2 >/dev/null 2>&1 || ip link add name up2 type bridge vlan_filtering 1
ip link set dev up2 type bridge vlan_filtering 1 vlan_default_pvid 0 stp_state 0 ageing_time 30000
ip link set dev up2 up

ip link set dev swp1 alias 'to leaf1 port 6'
ip link set dev swp1 master up2
bridge vlan add dev swp1 vid 102
bridge vlan del dev swp1 vid 1-101
bridge vlan del dev swp1 vid 103-4094
ip link set dev swp1 up

ip link set dev swp2 alias 'to leaf2 port 6'
ip link set dev swp2 master up2
bridge vlan add dev swp2 vid 102
bridge vlan del dev swp2 vid 1-101
bridge vlan del dev swp2 vid 103-4094
ip link set dev swp2 up

ip link set dev swp3 alias 'to leaf2 port 7'
ip link set dev swp3 nomaster
ip link set dev swp3 down
