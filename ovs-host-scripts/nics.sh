# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Part of host-up, host-down and host-status, which source it: what a NIC does with frames before
# and after the bridge.

# ---- frames that leave

# Each flow has its turn at a NIC. With one queue for all flows, flows that also meet a second full
# link leave their part of this link to the others. All to all over hosts of 1 to 4 NICs, the flows
# of the host with one NIC had 0.59 to 1.54 of their max-min rate with one queue, and 0.95 to 0.99
# with fq_codel. A discipline is replaced only where the kernel itself has put it there (handle 0):
# an administrator who has chosen one has a reason. Handle 5249 marks it as ours.
fair_queues() {
    local nic have queue
    command -v tc >/dev/null || return 0
    for nic in "${NICS[@]}"; do
        have=$(tc qdisc show dev "$nic" 2>/dev/null || true)
        case $have in
        'qdisc pfifo_fast 0: root'* | 'qdisc pfifo 0: root'*)
            if kernel_has_fq_codel; then
                run tc qdisc replace dev "$nic" root handle 5249: fq_codel
            fi
            ;;
        'qdisc mq 0: root'*'qdisc pfifo'*)
            kernel_has_fq_codel || continue
            run tc qdisc replace dev "$nic" root handle 5249: mq
            for queue in $(seq "$(find "/sys/class/net/$nic/queues" -name 'tx-*' | wc -l)"); do
                run tc qdisc replace dev "$nic" parent "5249:$(printf '%x' "$queue")" fq_codel
            done
            ;;
        esac
    done
}

kernel_has_fq_codel() {
    grep -q ' fq_codel_init' /proc/kallsyms 2>/dev/null || modprobe -n -q sch_fq_codel 2>/dev/null
}

# Remove what fair_queues has put there. The kernel then puts its own discipline back.
default_queue() { # default_queue NIC
    command -v tc >/dev/null || return 0
    [[ $(tc qdisc show dev "$1" root 2>/dev/null || true) != *' 5249:'* ]] ||
        run tc qdisc del dev "$1" root
}

# ---- frames that come in

# Print the rules of one table for some NICs as nft commands.
ingress_rules() { # ingress_rules NIC ...
    local nic index=0 table="netdev $NFT_TABLE" hook
    if [[ $DATAPATH == system && $FLOOD_LIMIT == 0 ]]; then return 0; fi
    echo "add table $table; delete table $table; add table $table"
    for nic in "$@"; do
        hook="type filter hook ingress device \"$nic\" priority 0"
        if [[ $DATAPATH == netdev ]]; then
            # Open vSwitch reads copies of frames. Without this rule the kernel also answers ARP on
            # the NICs, beside the bridge.
            echo "add chain $table nic$index { $hook; policy drop; }"
        else
            storm_rules "$table" "nic$index" "$hook"
        fi
        index=$((index + 1))
    done
}

# storm_rules TABLE CHAIN HOOK: limits what a program or a broken device on the network may send to
# this NIC. Without limits:
# * a frame from an address that was not heard lately makes ovs-vswitchd look through all tables;
# * a broadcast costs every program that listens;
# * a probe costs the controller, which Open vSwitch tells of 1,000 frames a second at most. A probe
#   has EtherType 0x88b5, in a fat tree behind a tag, where `ether type` would not see it.
# An address that was heard in the last ten minutes stays known, and its frames pass. So a flood of
# addresses takes nothing from peers. All of a cluster may begin at once, each host with two
# addresses. Broadcasts are counted by sender: a thousand hosts that look for each other send a
# million, and a host whose ARP is not heard is cut off.
storm_rules() {
    local known="known_$2" senders="senders_$2" over="limit rate over"
    local probes=$((2 * FLOOD_LIMIT)) new=$((FLOOD_LIMIT / 10)) at_once=$((4 * FLOOD_LIMIT))
    local all_hear to
    local per_sender="update @$senders { ether saddr $over $FLOOD_LIMIT/second"
    per_sender+=" burst $FLOOD_LIMIT packets } counter drop"
    echo "add set $1 $known { type ether_addr; size 65535; flags dynamic,timeout; timeout 10m; }"
    echo "add set $1 $senders { type ether_addr; size 65535; flags dynamic,timeout; timeout 1m; }"
    echo "add chain $1 $2 { $3; policy accept; }"
    echo "add rule $1 $2 meta protocol 0x88b5 $over $probes/second" \
        "burst $probes packets counter drop"
    echo "add rule $1 $2 ether saddr != @$known $over $new/second" \
        "burst $at_once packets counter drop"
    echo "add rule $1 $2 update @$known { ether saddr }"
    # Neighbour discovery and router advertisements do for IPv6 what ARP does for IPv4. Other
    # multicast is not limited: programs use it as they like.
    all_hear=('ff:ff:ff:ff:ff:ff' '33:33:00:00:00:00/16 meta l4proto icmpv6')
    for to in "${all_hear[@]}"; do echo "add rule $1 $2 ether daddr $to $per_sender"; done
}

# On netdev, a NIC that comes to a bridge which runs is closed to the kernel first. Peers send to it
# as soon as the bridge has it, and until it is closed, what they send arrives twice: from the
# bridge and from the kernel. A NIC that has addresses of its own stays open until they have moved,
# and one that leaves stays closed until it has left.
guard_new_nics() {
    local nic guarded=() new=no
    [[ $DATAPATH == netdev ]] && bridge_exists || return 0
    for nic in "${NICS[@]}"; do
        if [[ ${OWNER_OF[$nic]} == "$BRIDGE" && " ${REPLACED[*]-} " != *" $nic "* ]]; then
            guarded+=("$nic")
        elif [[ -z $(addresses_of "$nic") ]]; then
            guarded+=("$nic")
            new=yes
        fi
    done
    [[ $new == no ]] || guard_ingress "${guarded[@]}" ${LEAVING[@]+"${LEAVING[@]}"}
}

guard_ingress() { # guard_ingress NIC ...
    local rules have nic right=yes
    rules=$(ingress_rules "$@")
    rules=${rules//$'\n'/;}
    if [[ -z $rules ]]; then
        no_ingress_rules
        return 0
    fi
    if [[ -e $STATE/ingress && $(<"$STATE/ingress") == "$rules" ]]; then
        have=$(nft -t list table netdev "$NFT_TABLE" 2>/dev/null) || true
        for nic in "$@"; do
            [[ $have == *"device \"$nic\""* ]] || right=no
        done
        [[ $right == no ]] || return 0
    fi
    if [[ $DATAPATH == netdev ]]; then
        run nft "$rules"
    elif ! command -v nft >/dev/null || ! run nft "$rules" 2>/dev/null; then
        warn "NICs take floods as they come:" \
            "nft and a kernel with nf_tables (family netdev) would limit them"
        return 0
    fi
    run write_file "$STATE/ingress" "$rules"
}

# ---- TCP

# TCP segments fit the bridge whatever a route says. A router advertisement with another MTU makes
# routes that promise more than the bridge carries (systemd-networkd makes them, not the kernel). On
# netdev, Open vSwitch would send only the beginnings of such packets, and nobody would be told. So
# the two ends of each connection are told no more than the bridge's MTU.
segment_rules() {
    local table="inet $NFT_TABLE" chain syn="tcp flags syn tcp option maxseg size set"
    ((MTU < WIRE_MTU)) || return 0
    echo "add table $table; delete table $table; add table $table"
    for chain in "prerouting iifname" "postrouting oifname"; do
        echo "add chain $table ${chain% *}" \
            "{ type filter hook ${chain% *} priority mangle; policy accept; }"
        echo "add rule $table $chain \"$BRIDGE\" meta nfproto ipv4 $syn $((MTU - 40))"
        echo "add rule $table $chain \"$BRIDGE\" meta nfproto ipv6 $syn $((MTU - 60))"
    done
}

# Fails where the rules are wanted and missing.
has_segment_rules() {
    [[ ! -s $STATE/segments ]] ||
        nft -t list table inet "$NFT_TABLE" >/dev/null 2>&1
}

fit_segments() {
    local rules
    rules=$(segment_rules)
    rules=${rules//$'\n'/;}
    content "$STATE/segments"
    [[ $CONTENT != "$rules" ]] || ! has_segment_rules || return 0
    if [[ -z $rules ]]; then
        no_segment_rules
        run rm -f "$STATE/segments"
        return 0
    elif ! command -v nft >/dev/null || ! run nft "$rules" 2>/dev/null; then
        warn "TCP is not told the bridge's MTU of $MTU:" \
            "nft and a kernel with nf_tables (family inet) would tell it"
        return 0
    fi
    run write_file "$STATE/segments" "$rules"
}

no_segment_rules() { no_table inet; }
no_ingress_rules() { no_table netdev; }

no_table() { # no_table FAMILY
    if command -v nft >/dev/null && nft -t list table "$1" "$NFT_TABLE" >/dev/null 2>&1; then
        run nft delete table "$1" "$NFT_TABLE"
    fi
}

# Print how many frames the limits have dropped since host-up, as BROADCASTS PROBES SOURCES, of all
# NICs together. Print nothing where there are no limits.
storm_drops() {
    nft -t list table netdev "$NFT_TABLE" 2>/dev/null | awk '
        /limit rate over/ && match($0, /counter packets [0-9]+/) {
            count = substr($0, RSTART + 16, RLENGTH - 16)
            if (/ether daddr/) broadcasts += count
            else if (/protocol/) probes += count
            else sources += count
            found = 1
        }
        END { if (found) print broadcasts + 0, probes + 0, sources + 0 }'
}
