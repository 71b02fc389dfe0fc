#!/bin/bash
# leaf2: written by ri2n vlan switch-config for a Linux bridge (kernel 4.4 or newer, iproute2).
# Each VLAN is free of loops, all together are not: the bridge's one spanning tree would block
# cables that are needed and is off. Its BPDU guard needs it, so that ports of hosts have none.
# With vlan_filtering a bridge learns addresses per VLAN and drops VLANs that a port is not in;
# without a default PVID no port is in VLAN 1, and ports without a PVID drop untagged frames.
set -eu

ip link show dev leaf2 >/dev/null 2>&1 || ip link add name leaf2 type bridge vlan_filtering 1
ip link set dev leaf2 type bridge vlan_filtering 1 vlan_default_pvid 0 stp_state 0 ageing_time 30000
ip link set dev leaf2 up

ip link set dev swp1 alias 'n3 nic0'
ip link set dev swp1 master leaf2
bridge vlan add dev swp1 vid 101 pvid untagged
bridge vlan add dev swp1 vid 102
bridge vlan del dev swp1 vid 1-100
bridge vlan del dev swp1 vid 103-4094
ip link set dev swp1 up

ip link set dev swp2 alias 'n4 nic0'
ip link set dev swp2 master leaf2
bridge vlan add dev swp2 vid 101 pvid untagged
bridge vlan add dev swp2 vid 102
bridge vlan del dev swp2 vid 1-100
bridge vlan del dev swp2 vid 103-4094
ip link set dev swp2 up

ip link set dev swp5 alias 'to up1 port 2'
ip link set dev swp5 master leaf2
bridge vlan add dev swp5 vid 101
bridge vlan del dev swp5 vid 1-100
bridge vlan del dev swp5 vid 102-4094
ip link set dev swp5 up

ip link set dev swp6 alias 'to up2 port 2'
ip link set dev swp6 master leaf2
bridge vlan add dev swp6 vid 102
bridge vlan del dev swp6 vid 1-101
bridge vlan del dev swp6 vid 103-4094
ip link set dev swp6 up

ip link set dev swp7 alias 'to up2 port 3'
ip link set dev swp7 nomaster
ip link set dev swp7 down

ip link set dev swp8 alias 'router eth0'
ip link set dev swp8 master leaf2
bridge vlan add dev swp8 vid 101 pvid untagged
bridge vlan del dev swp8 vid 1-100
bridge vlan del dev swp8 vid 102-4094
ip link set dev swp8 up
