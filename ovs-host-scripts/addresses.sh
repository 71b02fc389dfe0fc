# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Part of host-up, host-down, host-watch and reply-same-link, which source it: which addresses and
# routes a device has, how they move to another device, and how the controller is told of them.

# Global addresses of a device, each as the arguments `ip addr add` takes.
addresses_of() {
    local said
    said=$(ip -o addr show dev "$1" scope global) || return
    [[ -n $said ]] || return 0
    awk '
        {
            line = $4; expires = ""
            for (i = 5; i <= NF; i++) {
                if ($i == "peer" || $i == "brd" || $i == "metric") {
                    line = line " " $i " " $(i + 1); i++
                }
                else if ($i == "valid_lft" || $i == "preferred_lft") {
                    value = $(i + 1); sub(/sec$/, "", value); i++
                    if (value != "forever") expires = expires " " $(i - 1) " " value
                }
                else if ($i == "noprefixroute" || $i == "home" || $i == "mngtmpaddr")
                    line = line " " $i
            }
            if ($3 == "inet6") line = line " nodad"
            print line expires
        }' <<<"$said"
}

# Routes through a device that its addresses do not bring by themselves. Each line is the family,
# then the arguments of `ip route add`.
routes_of() {
    local family said failed
    for family in -4 -6; do
        failed=0
        said=$(ip -o "$family" route show table all dev "$1" 2>/dev/null) || failed=$?
        has_others "$said" || continue
        awk -v family="$family" '
            $1 ~ /^(local|broadcast|multicast|anycast|unreachable)$/ { next }
            / proto kernel/ || /^ff00::\/8/ { next }
            {
                line = ""
                for (i = 1; i <= NF; i++) {
                    if ($i ~ /^(linkdown|dead|offload|trap|rt_trap)$/) continue
                    if ($i == "dev" || $i == "pref" && $(i + 1) == "medium") { i++; continue }
                    if ($i == "expires") {
                        value = $(i + 1); sub(/sec$/, "", value)
                        line = line " expires " value; i++; continue
                    }
                    line = line " " $i
                }
                print family line
            }' <<<"$said"
    done
    return "$failed"
}

# Whether there is a route among these that awk would print. Most NICs have none, and need no awk.
has_others() { # has_others ROUTES
    local line
    while read -r line; do
        case $line in
        '' | 'local '* | 'broadcast '* | 'multicast '* | 'anycast '* | 'unreachable '*) ;;
        *' proto kernel'* | 'ff00::/8'*) ;;
        *) return 0 ;;
        esac
    done <<<"$1"
    return 1
}

# narrowed MTU [changed]: reads routes as routes_of prints them, and lowers each larger MTU to MTU.
# Prints all routes, or with `changed` only those that it changed.
narrowed() {
    awk -v most="$1" -v all="${2:-all}" '
        {
            changed = 0
            for (i = 1; i < NF; i++) {
                if ($i != "mtu") continue
                if ($(i + 1) == "lock") i++
                if ($(i + 1) > most + 0) { $(i + 1) = most; changed = 1 }
            }
            if (changed || all == "all") print
        }'
}

# A route may promise more than the bridge carries: systemd-networkd makes such routes of router
# advertisements. The kernel believes the route and hands over packets that the bridge drops or cuts
# off. With the bridge's own MTU in the route the sender is told: the kernel cuts a packet into
# fragments, or answers that it is too big.
narrow_routes() {
    local routes
    read_link "$BRIDGE" || return 0
    routes=$(routes_of "$BRIDGE" || true)
    [[ $routes == *' mtu '* ]] || return 0
    # Some routes cannot be changed (a route by the number of a nexthop). host-status names them; a
    # warning here would fill the log each second.
    add_routes "$BRIDGE" < <(narrowed "$LINK_MTU" changed <<<"$routes") 2>/dev/null
}

# Add what addresses_of and routes_of printed (files) to a device. What is there already stays.
add_addresses() {
    local device=$1 words failed=0
    while read -ra words; do
        [[ ${#words[@]} -eq 0 ]] || run ip addr replace "${words[@]}" dev "$device" || failed=1
    done
    return "$failed"
}

add_routes() {
    local device=$1 words later=()
    while read -ra words; do
        [[ ${#words[@]} -gt 0 ]] || continue
        if [[ " ${words[*]} " == *" via "* ]]; then
            later+=("${words[*]}") # a gateway must be reachable first
        else
            try ip "${words[0]}" route replace "${words[@]:1}" dev "$device"
        fi
    done
    for words in "${later[@]}"; do
        read -ra words <<<"$words"
        run ip "${words[0]}" route replace "${words[@]:1}" dev "$device" ||
            warn "route ${words[*]} could not be put on $device"
    done
}

# The addresses and routes of the NICs move to the bridge's own port. When that port comes up, the
# kernel tells neighbours the new MAC.
#
# What moves is written down first. If host-up is killed after it took them from a NIC and before it
# gave them to the bridge, the next host-up finds them there.
move_addresses() {
    local nic addresses='' routes='' conf found='' have_addresses=()
    for nic in "${NICS[@]}"; do
        found=$(addresses_of "$nic")
        [[ -z $found ]] || have_addresses+=("$nic")
        addresses+=$found$'\n'
        routes+=$(routes_of "$nic")$'\n'
    done
    if [[ -e $STATE/moving.routes ]]; then
        addresses+=$(<"$STATE/moving.addresses")$'\n'
        routes+=$(<"$STATE/moving.routes")$'\n'
    elif [[ $WAS_UP == no && ${#have_addresses[@]} -eq 0 ]]; then
        # Whoever deleted the bridge deleted the host's addresses with it. The best that is known of
        # them is what the NICs had before the first run. In a first run that is nothing, because
        # the NICs have none.
        for nic in "${NICS[@]}"; do
            content "$STATE/nic.$nic/addresses"
            addresses+=$CONTENT$'\n'
            content "$STATE/nic.$nic/routes"
            routes+=$CONTENT$'\n'
        done
    fi
    if [[ $addresses == *valid_lft* ]]; then
        warn "an address came from DHCP or router advertisements:" \
            "configure $BRIDGE for it, in place of the NIC"
    fi
    if [[ ${#have_addresses[@]} -gt 0 && ! -e $STATE/moving.routes ]]; then
        run write_file "$STATE/moving.addresses" "$addresses"
        run write_file "$STATE/moving.new" "$routes"
        run mv "$STATE/moving.new" "$STATE/moving.routes"
    fi
    for conf in "net/ipv4/conf/$BRIDGE/arp_notify" "net/ipv6/conf/$BRIDGE/ndisc_notify"; do
        if [[ $DRY_RUN == yes ]] && ! bridge_exists ||
            [[ -e /proc/sys/$conf && $(<"/proc/sys/$conf") != 1 ]]; then
            run write_sysctl "$conf" 1
        fi
    done
    add_addresses "$BRIDGE" <<<"$addresses"
    for nic in ${have_addresses[@]+"${have_addresses[@]}"}; do
        run ip addr flush dev "$nic" scope global
    done
    if ! read_link "$BRIDGE" || [[ $LINK_UP == no ]]; then run ip link set dev "$BRIDGE" up; fi
    [[ $routes != *' mtu '* ]] || routes=$(narrowed "$MTU" <<<"$routes")
    add_routes "$BRIDGE" <<<"$routes"
    narrow_routes
    # IPv6 comes last, because disabling it removes the NIC's addresses. It is disabled because a
    # NIC's own router and MLD frames would look like a host's.
    for nic in "${NICS[@]}"; do
        local switch=/proc/sys/net/ipv6/conf/$nic/disable_ipv6
        [[ ! -e $switch || $(<"$switch") == 1 ]] ||
            run write_sysctl "net/ipv6/conf/$nic/disable_ipv6" 1
    done
    if [[ -e $STATE/moving.routes ]]; then
        run rm -f "$STATE/moving.routes" "$STATE/moving.addresses"
    fi
}

# What the controller is told: the addresses that this host's traffic has. The controller sees only
# the address from which Open vSwitch connects, and that is often another one. Each address is a row
# of the bridge, which no frame meets (apps/declared_rows.py reads them). Nobody but this host can
# write such a row, and a controller that starts anew finds it.
readonly ADDRESS_COOKIE=0x524c000000000000 ADDRESS_TABLE=248
ADDRESSES=()

# own_addresses DEVICE...: set ADDRESSES to the devices' global addresses. Fails where one of the
# devices is not there.
own_addresses() {
    local device said address
    ADDRESSES=()
    for device in "$@"; do
        said=$(ip -o addr show dev "$device" scope global 2>/dev/null) || return 1
        while read -r _ _ _ address _; do
            [[ -z $address ]] || ADDRESSES+=("${address%/*}")
        done <<<"$said"
    done
}

# Have a row in the bridge for each of ADDRESSES, and no other. Fails where the bridge does not
# answer.
declare_addresses() {
    local address match have line count=0 rows='' missing=no
    have=$(ofctl --timeout=5 --no-names --no-stats dump-flows "$BRIDGE" \
        "cookie=$ADDRESS_COOKIE/-1,table=$ADDRESS_TABLE" 2>/dev/null) ||
        [[ $DRY_RUN == yes ]] || return 1
    while read -r line; do
        [[ $line != *cookie=* ]] || count=$((count + 1))
    done <<<"$have"
    for address in ${ADDRESSES[@]+"${ADDRESSES[@]:0:MAX_ADDRESSES}"}; do
        match=ip,nw_src=$address
        [[ $address != *:* ]] || match=ipv6,ipv6_src=$address
        rows+=$'\n'"flow add cookie=$ADDRESS_COOKIE,table=$ADDRESS_TABLE,priority=1,$match,"
        rows+=actions=drop
        [[ $have == *"priority=1,$match actions=drop"* ]] || missing=yes
        count=$((count - 1))
    done
    if [[ $missing == no && $count -eq 0 ]]; then return 0; fi
    run load_bundle "flow delete cookie=$ADDRESS_COOKIE/-1,table=$ADDRESS_TABLE$rows"
}

load_bundle() { ofctl --timeout=5 bundle "$BRIDGE" - <<<"$1"; }
