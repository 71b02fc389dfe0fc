# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What is right and what is wrong with a host on which host-up has run. host-status shows only what
# is wrong, host-doctor shows everything; both use the same words. Needs common.sh, helper.sh,
# fast.sh and nics.sh. Nothing is changed here.
#
# `bad` means that somebody is without traffic, or that nobody can tell. `warning` means that all
# have what they need, with less to spare. The controller's `ri2n status` uses both words in the
# same sense (ri2n_sdn/fabric/problem.py).

VERDICTS=() CHECKS=() SEEN=() ADVICE=()
readonly OLDEST_OVS=2017                     # 2.17
readonly MAX_QUEUE_FRAMES=1000                  # frames: 5 ms at 2.4 Gbit/s; host-up gives no more
readonly CERTIFICATE_LEFT_DAYS=30               # as `ri2n doctor` for those of the controller
# The top 16 bits of cookies, in hex.
readonly OURS=5232 LEARNED=5233 STARTUP=5249 JOB=524a FAILED=524b ADDRESS=524c
readonly HELPER_PROGRAM=/usr/local/lib/ri2n/ri2n-reorder
CONTROLLER_PATIENCE_S=0 # at worst Open vSwitch updates every 5 s which controllers are connected

finding() { # finding ok|warning|bad CHECK SEEN [WHAT TO DO]
    VERDICTS+=("$1") CHECKS+=("$2") SEEN+=("$3") ADVICE+=("${4-}")
}

# fine CHECK SEEN: where the check has found nothing wrong, say what was seen.
fine() { # fine CHECK SEEN
    local check
    for check in ${CHECKS[@]+"${CHECKS[@]}"}; do [[ $check != "$1" ]] || return 0; done
    finding ok "$1" "$2"
}

# Print the numbers of the findings that have these verdicts.
numbers_of() { # numbers_of VERDICT ...
    local verdict number
    for verdict in "$@"; do
        for number in "${!VERDICTS[@]}"; do
            [[ ${VERDICTS[$number]} != "$verdict" ]] || echo "$number"
        done
    done
}

# Print one line: how bad it is, what is seen, what to do.
print_finding() { # print_finding NUMBER
    echo "${VERDICTS[$1]}: ${SEEN[$1]}${ADVICE[$1]:+: ${ADVICE[$1]}}"
}

# Return the status for monitoring: 0 all is right, 1 warnings, 2 bad.
exit_code() {
    case " ${VERDICTS[*]} " in
    *' bad '*) return 2 ;;
    *' warning '*) return 1 ;;
    esac
}

# Texts of UTF-8 (RFC 3629): no byte alone, no longer form than needed, no half of a pair.
readonly UTF8=$'^([^\x80-\xff]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|'\
$'[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|'\
$'[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*$'

# Print a JSON string. A device may have any bytes in its name. Characters that end a line or change
# a terminal are escapes, as in messages; where the text is no UTF-8, all that is not ASCII.
quote() {
    local LC_ALL=C LOG_AS=text
    printable "$1"
    if [[ ! $PRINTABLE =~ $UTF8 ]]; then
        # shellcheck disable=SC2034 # printable reads it
        LOG_AS=json
        printable "$1"
    fi
    json_string "$PRINTABLE"
    printf '%s' "$JSON_STRING"
}

join() { # join SEPARATOR ITEM ...
    local separator=$1 out=${2-} item
    shift 2 || return 0
    for item in "$@"; do out+=$separator$item; done
    printf '%s' "$out"
}

appctl() { ovs-appctl --timeout=5 "$@" 2>/dev/null; }

# Run all checks, in the order in which a person would look. Where a check needs something that is
# missing, the checks after it are left out.
# shellcheck disable=SC2034 # host-status uses what was found
examine() {
    look_at_ovs || return 0
    if ! bridge_exists; then
        finding bad bridge "$BRIDGE is not there" "run host-up"
        return 0
    fi
    FLOWS=$(ofctl --no-names dump-flows "$BRIDGE" 2>/dev/null || true)
    STARTUP_FLOWS=$(grep -F " cookie=0x$STARTUP" <<<"$FLOWS" || true)
    look_at_bridge
    look_at_hash
    look_at_nics
    look_at_guests
    look_at_mtus
    look_at_floods
    look_at_controllers
    look_at_certificates
    look_at_flows
    look_at_limit
    TAP_LINES=() HELPER_RUNS=no
    if helper_is_set_up; then look_at_helper; else finding ok helper "not asked for"; fi
    FAST_STATE='' FAST_PEERS=''
    if fast_is_set_up; then look_at_fast; else finding ok "fast path" "not asked for"; fi
    PENDING=no
    if [[ -e $STATE/pending ]]; then
        PENDING=yes
        finding warning confirmation "host-up is not confirmed and will be undone" \
            "run host-up --confirmed"
    fi
}

look_at_ovs() {
    local said number version
    said=$(ovs-vsctl --version 2>/dev/null || true)
    if ! [[ ${said%%$'\n'*} =~ \ ([0-9]+)\.([0-9]+)\.([0-9]+) ]]; then
        finding bad "Open vSwitch" "Open vSwitch is not installed" "apt install openvswitch-switch"
        return 1
    fi
    number=$((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2])) version=${BASH_REMATCH[0]# }
    if ((number < OLDEST_OVS)); then
        finding bad "Open vSwitch" "Open vSwitch $version is too old" "upgrade to 2.17 or newer"
        return 1
    elif ! database_runs; then
        finding bad "Open vSwitch" "ovsdb-server does not run" \
            "systemctl start openvswitch-switch, and see journalctl -u ovsdb-server"
        return 1
    elif ! switch_runs; then
        finding bad "Open vSwitch" "ovs-vswitchd does not run" \
            "systemctl start openvswitch-switch, and see journalctl -u ovs-vswitchd"
        return 1
    fi
    finding ok "Open vSwitch" "$version"
}

# shellcheck disable=SC2034 # host-status uses what was found
look_at_bridge() {
    NAME=$(ovs_get bridge "$BRIDGE" other_config:dp-desc)
    MAC=$(ovs_get bridge "$BRIDGE" other_config:hwaddr)
    DATAPATH=$(ovs_get bridge "$BRIDGE" datapath_type)
    DATAPATH=${DATAPATH:-system}
    read_link "$BRIDGE" || true
    MTU=${LINK_MTU:-0}
    [[ $LINK_UP == yes ]] || finding bad bridge "$BRIDGE is down" "ip link set $BRIDGE up"
    mapfile -t ADDRESSES < <(ip -o addr show dev "$BRIDGE" scope global | awk '{print $4}')
    [[ ${#ADDRESSES[@]} -gt 0 ]] ||
        finding bad bridge "$BRIDGE has no address" "give it the host's address"
    [[ $(ovs_get bridge "$BRIDGE" fail_mode) == secure ]] ||
        finding bad bridge "fail_mode is not secure: flows would go when the controller does" \
            "run host-up again"
    [[ $(ovs_get bridge "$BRIDGE" other_config:disable-in-band) == true ]] ||
        finding bad bridge "in-band control is not disabled: it can join networks into a loop" \
            "run host-up again"
    fine bridge "$BRIDGE, $DATAPATH datapath"
}

look_at_hash() {
    local said
    said=$(appctl dpif/show-dp-features "$BRIDGE" || true)
    if ! [[ $said =~ Max\ dp_hash\ algorithm:\ *([0-9]+) ]]; then
        finding warning hash "Open vSwitch does not say how it hashes" "is ovs-vswitchd busy?"
    elif [[ $DATAPATH == system && ${BASH_REMATCH[1]} == 0 ]]; then
        finding warning hash \
            "the kernel hashes by the socket's random number: a flow may move after a time-out" \
            "update the kernel"
    else
        finding ok hash "dp_hash algorithm up to ${BASH_REMATCH[1]}"
    fi
}

look_at_nics() {
    local nic port link drops speed duplex shown=() down=0
    drops=$(nft list table netdev "$NFT_TABLE" 2>/dev/null || true)
    NIC_LINES=() MIN_NIC_MTU=65535
    while read -r nic; do
        [[ -n $nic ]] || continue
        port=$(ovs_get interface "$nic" ofport)
        link=$(ovs_get interface "$nic" link_state)
        speed=$(cat "/sys/class/net/$nic/speed" 2>/dev/null || true)
        duplex=$(cat "/sys/class/net/$nic/duplex" 2>/dev/null || true)
        read_link "$nic" || true
        ((${LINK_MTU:-0} >= MIN_NIC_MTU)) || MIN_NIC_MTU=${LINK_MTU:-0}
        NIC_LINES+=("$nic ${port:-none} ${link:-unknown} $LINK_MAC $LINK_MTU")
        if [[ $speed =~ ^[1-9] ]]; then
            shown+=("$nic $speed Mbit/s $duplex")
        else
            shown+=("$nic")
        fi
        if [[ $link != up ]]; then
            down=$((down + 1))
            finding warning NICs "NIC $nic has no link" "check its cable and its switch port"
        fi
        [[ $duplex != half ]] ||
            finding bad NICs "NIC $nic runs at half duplex" \
                "check cable, switch port and autonegotiation"
        [[ $STARTUP_FLOWS == *"priority=1,in_port=${port:-none} "* ]] ||
            finding bad NICs "NIC $nic has no start-up flow" "run host-up again"
        if [[ $DATAPATH == netdev && $drops != *"device \"$nic\""* ]]; then
            finding bad NICs "NIC $nic: the kernel answers beside Open vSwitch" \
                "run host-up again; it needs nftables"
        elif [[ -e $STATE/ingress && $drops != *"device \"$nic\""* ]]; then
            finding warning NICs "NIC $nic takes floods as they come" "run host-up again"
        fi
        if [[ -n $LINK_INDEX && -s $STATE/nic.$nic/index &&
            $(<"$STATE/nic.$nic/index") != "$LINK_INDEX" ]]; then
            finding bad NICs "NIC $nic was replaced and may be deaf" "run host-up again"
        fi
    done < <(bridge_nics)
    if [[ ${#NIC_LINES[@]} -eq 0 ]]; then
        finding bad NICs "$BRIDGE has no NIC" "run host-up with --nic"
    elif ((down == ${#NIC_LINES[@]})); then
        finding bad NICs "no NIC has a link" "check cables and switch ports"
    fi
    fine NICs "$(join ', ' ${shown[@]+"${shown[@]}"})"
}

# Guests' ports are those that belong neither to NICs nor to TAPs. Where host-up was not told of a
# port, the flows treat that port as a NIC, and it receives next to nothing.
look_at_guests() {
    local port number found=()
    for port in $(vsctl list-ports "$BRIDGE"); do
        [[ $port != "$PLAIN_TAP" && $port != "$WIRE_TAP" && $port != "$HOLD_TAP" &&
            -z $(ovs_get interface "$port" external_ids:ri2n-nic) ]] || continue
        number=$(ovs_get interface "$port" ofport)
        if ((${number:-0} < FIRST_GUEST_PORT || number >= FIRST_GUEST_PORT + MAX_EXTRA_MACS)); then
            finding warning guests \
                "$port, a port of $BRIDGE, is neither a NIC nor a guest that host-up was told of" \
                "give host-up its MAC: --extra-mac MAC@$port"
        elif read_link "$port" &&
            [[ -s $STATE/guest.$port && $(<"$STATE/guest.$port") != "$LINK_INDEX" ]]; then
            finding bad guests "the guest's device $port was replaced and may be deaf" \
                "run host-up again"
        elif read_link "$port" && ((LINK_MTU > MTU)); then
            finding warning guests \
                "the guest's device $port: its MTU of $LINK_MTU is more than $BRIDGE's, $MTU" \
                "give it and the guest $MTU: what is longer is lost"
        fi
        found+=("$port")
    done
    [[ ${#found[@]} -eq 0 ]] || fine guests "$(join ', ' "${found[@]}")"
}

# A packet that a route lets through and that is too long for the bridge is lost, or sent in part.
# Only TCP is told the bridge's MTU (nics.sh).
look_at_mtus() {
    local line nic mtu route
    for line in ${NIC_LINES[@]+"${NIC_LINES[@]}"}; do
        read -r nic _ _ _ mtu <<<"$line"
        ((${mtu:-0} >= MTU)) ||
            finding bad MTU "NIC $nic: its MTU of ${mtu:-0} is less than $BRIDGE's, $MTU" \
                "run host-up again"
    done
    while read -r route; do
        [[ $route =~ \ mtu\ (lock\ )?([0-9]+) ]] || continue
        mtu=${BASH_REMATCH[2]}
        ((mtu <= MTU)) || finding bad MTU \
            "route ${route%% *}: its MTU of $mtu is more than $BRIDGE's, $MTU" \
            "run host-up again; where it comes back: systemctl enable --now ri2n-host-watch"
    done < <({
        ip -4 route show table all dev "$BRIDGE" && ip -6 route show table all dev "$BRIDGE"
    } 2>/dev/null | sort -u)
    has_segment_rules || finding bad MTU "TCP is not told the MTU of $BRIDGE" "run host-up again"
    fine MTU "$MTU"
}

look_at_floods() {
    STORM_BROADCASTS='' STORM_PROBES='' STORM_SOURCES=''
    read -r STORM_BROADCASTS STORM_PROBES STORM_SOURCES < <(storm_drops) || true
    if [[ -z $STORM_BROADCASTS ]]; then
        finding ok floods "no limit"
    else
        local dropped="dropped $STORM_BROADCASTS broadcasts, $STORM_PROBES probes"
        finding ok floods "$dropped, $STORM_SOURCES frames from new addresses"
    fi
}

# One connected controller is enough. Another one that is not connected is still a warning, because
# it may be the one that takes over.
look_at_controllers() {
    local uuid target connected why some=no end_s=$((SECONDS + CONTROLLER_PATIENCE_S)) uuids
    uuids=$(vsctl get bridge "$BRIDGE" controller | tr -d '[],')
    while :; do
        CONTROLLERS=()
        for uuid in $uuids; do
            connected=$(ovs_get controller "$uuid" is_connected)
            [[ $connected != true ]] || some=yes
            target=$(ovs_get controller "$uuid" target)
            why=$(ovs_get controller "$uuid" status:last_error)
            CONTROLLERS+=("$target $connected $why")
        done
        if [[ -z $uuids || $some == yes ]] || ((SECONDS >= end_s)); then break; fi
        sleep 0.25
    done
    for target in ${CONTROLLERS[@]+"${CONTROLLERS[@]}"}; do
        read -r target connected why <<<"$target"
        [[ $connected != true ]] || continue
        finding "$([[ $some == yes ]] && echo warning || echo bad)" controller \
            "controller $target is not connected${why:+ ($why)}" \
            "$(controller_advice "$target" "$why")"
    done
    if [[ ${#CONTROLLERS[@]} -eq 0 ]]; then
        finding warning controller "no controller is set" "run host-up with --controller"
    fi
    fine controller "connected to $(join ', ' ${CONTROLLERS[@]+"${CONTROLLERS[@]%% *}"})"
}

# What to do, by Open vSwitch's last error. Meanwhile the host forwards as the controller last told
# it to.
controller_advice() { # controller_advice TARGET WHY
    local address=${1#*:}
    case $2 in
    *refused*)
        echo "nobody listens there: is the controller running (systemctl status ri2n-controller)," \
            "with this --listen?"
        ;;
    *'timed out'* | *unreachable* | *'No route'*)
        echo "is there a way to it (ping ${address%:*})," \
            "and does a firewall let port ${1##*:} through?"
        ;;
    *'Protocol error'* | *ssl* | *SSL* | *certificate*)
        echo "do both sides use ssl:, and know each other's CA (ovs-vsctl get-ssl)?"
        ;;
    *'Connection reset'* | *'End of file'*)
        echo "the controller hangs up: it says why in ri2n status and in its log"
        ;;
    *) echo "is the controller running, and is there a way to it?" ;;
    esac
}

# The files that Open vSwitch uses for TLS. It reads new ones by itself, for its next connection.
look_at_certificates() {
    local title path end day shown=()
    for title in Certificate 'CA Certificate'; do
        path=$(ssl_file "$title")
        [[ -n $path ]] || continue
        if ! end=$(first_end "$path"); then
            finding warning TLS "$path has no certificate that can be read" \
                "put it there, or give host-up another file; where openssl is missing, install it"
            continue
        fi
        day=$(date -u -d "@$end" +%F)
        if ((end <= EPOCHSECONDS)); then
            finding bad TLS "$path has ended on $day" "put a new one there"
        elif ((end - EPOCHSECONDS < CERTIFICATE_LEFT_DAYS * 86400)); then
            finding warning TLS "$path ends on $day" "put a new one there"
        fi
        shown+=("$path until $day")
    done
    [[ ${#shown[@]} -eq 0 ]] || fine TLS "$(join ', ' "${shown[@]}")"
}

look_at_flows() {
    local ours startup foreign example
    read -r ours startup foreign example < <(count_flows "$FLOWS")
    ((startup > 0)) ||
        finding bad flows \
            "no start-up flow: after a restart the host would not find its controller" \
            "run host-up again"
    ((foreign == 0)) || finding bad flows "$foreign flows are nobody's, for example $example" \
        "remove them: ovs-ofctl -O OpenFlow15 del-flows $BRIDGE cookie=${example%%,*}/-1"
    if ((ours == 0)) && [[ " ${VERDICTS[*]} " != *' bad '* ]]; then
        finding warning flows "no controller has given this host flows yet" \
            "ri2n status tells whether it lets the host in"
    fi
    fine flows "$startup of host-up, $ours of the controller"
}

# Print how many flows belong to the controller, to host-up and to nobody, and one of the last kind.
count_flows() {
    awk -v ours=$OURS -v learned=$LEARNED -v startup=$STARTUP -v job=$JOB \
        -v failed=$FAILED -v address=$ADDRESS '
        /actions=/ {
            cookie = $1; sub(/^cookie=0x/, "", cookie); sub(/,$/, "", cookie)
            owner = substr(cookie, 1, length(cookie) - 12)
            count[owner]++
            if (owner != ours && owner != learned && owner != startup && owner != job &&
                owner != failed && owner != address) {
                foreign++; $1 = $2 = ""; sub(/^ +/, ""); example = "0x" cookie ", " $0
            }
        }
        END { print count[ours] + 0, count[startup] + 0, foreign + 0, substr(example, 1, 120) }
    ' <<<"$1"
}

look_at_limit() {
    local said current limit
    said=$(appctl upcall/show || true)
    if ! [[ $said =~ current\ ([0-9]+) ]]; then
        finding warning "flow limit" \
            "Open vSwitch does not say how many flows its datapath has" "is ovs-vswitchd busy?"
        return 0
    fi
    current=${BASH_REMATCH[1]}
    [[ $said =~ limit\ ([0-9]+) ]] || return 0
    limit=${BASH_REMATCH[1]}
    ((current * 5 <= limit * 4)) || finding warning "flow limit" \
        "$current of $limit flows of the datapath are in use" \
        "ovs-vsctl set Open_vSwitch . other_config:flow-limit=$((limit * 2))"
    fine "flow limit" "$current of $limit flows of the datapath"
}

# A TAP has a carrier as long as a process holds it.
look_at_helper() {
    local tap port link queue held=0
    HELPER_RUNS=yes
    for tap in "$PLAIN_TAP" "$WIRE_TAP"; do
        port=$(ovs_get interface "$tap" ofport)
        link=down
        if ! read_link "$tap" || [[ $port != "${TAP_PORT[$tap]}" ]]; then
            finding bad helper "TAP $tap is not port ${TAP_PORT[$tap]}" "run host-up again"
        elif [[ $STARTUP_FLOWS != *"priority=1,in_port=$port "* ]]; then
            finding bad helper "TAP $tap has no start-up flow" "run host-up again"
        fi
        if [[ $tap == "$WIRE_TAP" && -n $LINK_MTU ]] &&
            ((LINK_MTU < MIN_NIC_MTU + HELPER_BYTES + TAG_BYTES)); then
            finding bad helper \
                "TAP $tap: its MTU of $LINK_MTU is too small for the NICs' $MIN_NIC_MTU" \
                "run host-up again"
        elif [[ $tap == "$PLAIN_TAP" && -n $LINK_MTU ]] && ((LINK_MTU < MTU)); then
            finding bad helper "TAP $tap: its MTU of $LINK_MTU is less than $BRIDGE's, $MTU" \
                "run host-up again"
        fi
        if [[ $(cat "/sys/class/net/$tap/carrier" 2>/dev/null || true) == 1 ]]; then
            link=up held=$((held + 1))
        else
            HELPER_RUNS=no
        fi
        TAP_LINES+=("$tap ${port:-none} $link ${LINK_MTU:-null}")
    done
    look_at_hold
    queue=$(cat "/sys/class/net/$PLAIN_TAP/tx_queue_len" 2>/dev/null || echo 0)
    ((queue <= MAX_QUEUE_FRAMES)) ||
        finding warning helper "$queue frames may wait for the helper, which is delay" \
            "run host-up again"
    ((MTU + HELPER_BYTES <= MIN_NIC_MTU)) || finding bad helper \
        "MTU: the helper's $HELPER_BYTES bytes do not fit beside $MTU into the NICs' $MIN_NIC_MTU" \
        "run host-up again"
    if [[ $HELPER_RUNS == no ]]; then
        if ((held > 0)); then
            finding warning helper "another program holds one of the helper's TAPs" \
                "ip -d link show type tun, and end it"
        elif [[ -x $HELPER_PROGRAM ]]; then
            finding warning helper "the helper does not run" \
                "systemctl start ri2n-reorder, and see journalctl -u ri2n-reorder"
        else
            finding warning helper "the helper does not run" \
                "systemctl start ri2n-reorder; $HELPER_PROGRAM is not there: install it"
        fi
    fi
    fine helper "running"
}

# The third TAP. Nobody is without traffic where something is wrong with it.
look_at_hold() {
    local owner link=down
    hold_is_set_up || return 0
    owner=$(vsctl port-to-br "$HOLD_TAP" 2>/dev/null || true)
    [[ -z $owner ]] || finding warning helper "TAP $HOLD_TAP is in the bridge $owner" \
        "ovs-vsctl del-port $owner $HOLD_TAP"
    read_link "$HOLD_TAP" || finding warning helper "TAP $HOLD_TAP is not there" "run host-up again"
    [[ $(cat "/sys/class/net/$HOLD_TAP/carrier" 2>/dev/null || true) != 1 ]] || link=up
    TAP_LINES+=("$HOLD_TAP none $link ${LINK_MTU:-null}")
}

# Where both were asked for, helper and fast path stripe TCP together, and both must be ready for
# it. Otherwise the helper alone does it.
look_at_order() {
    local why advice="run host-up again"
    helper_is_set_up || return 0
    [[ $(fast_word order) != ready ]] || return 0
    [[ $(fast_word order_lacks) != programs ]] || return 0 # what they lack is a line of its own
    if ! hold_is_set_up; then
        why=not_asked_for # by an older host-up
    elif ! read_link "$HOLD_TAP"; then
        why=no_tap
    elif [[ -z $(fast_word order) ]]; then
        why=old_fast_path advice="install the ri2n-fast of this version, and restart it"
    elif [[ $HELPER_RUNS != yes ]]; then
        why=no_helper advice="systemctl start ri2n-reorder, and see journalctl -u ri2n-reorder"
    elif [[ $(cat "/sys/class/net/$HOLD_TAP/carrier" 2>/dev/null || true) != 1 ]]; then
        # It began before there was the TAP, or is older.
        why=not_held advice="systemctl restart ri2n-reorder, and see journalctl -u ri2n-reorder"
    else
        # They do not agree on what their shared memory means, or one waits for the other.
        why=no_maps
        advice="install one version of both, and systemctl restart ri2n-fast ri2n-reorder"
    fi
    finding warning "fast path" "TCP to hosts with a helper goes through Open vSwitch ($why)" \
        "$advice"
}

# Without ri2n-fast the programs that it attached stay in force for some seconds, and do not hear of
# a link that dies.
look_at_fast() {
    local device why number left='' attached nics rules
    local restart="systemctl restart ri2n-fast, and see journalctl -u ri2n-fast"
    FAST_STATE=silent
    ask_fast
    if [[ -z $FAST_SAYS ]]; then
        mapfile -t attached < <(fast_attached)
        if [[ ${#attached[@]} -gt 0 ]]; then
            finding bad "fast path" "nobody tells the fast path what changes" "$restart"
        elif [[ ! -x $FAST_PROGRAM ]]; then
            finding warning "fast path" "the fast path is not installed" \
                "$FAST_PROGRAM is not there: install it, or give host-up no --fast"
        else
            finding warning "fast path" "the fast path does not run" "$restart"
        fi
        return 0
    fi
    FAST_STATE=$(fast_word programs)
    mapfile -t attached < <(fast_devices true)
    if [[ $FAST_STATE == refused ]]; then
        finding warning "fast path" "the kernel refuses the programs of the fast path" \
            "$(fast_refusal)"
        return 0
    fi
    [[ $FAST_STATE == in_force ]] ||
        finding warning "fast path" "the programs of the fast path are not in force" "$restart"
    for device in $(fast_devices false); do
        finding warning "fast path" "$device has no program of the fast path" "$restart"
    done
    [[ $(fast_word filter) != missing ]] || finding warning "fast path" \
        "Open vSwitch's sockets have no filter: it gets a copy of each frame beside it" "$restart"
    if [[ $FAST_STATE == in_force ]]; then
        look_at_order
        mapfile -t nics < <(bridge_nics)
        while read -r device rules; do
            finding warning "fast path" \
                "$device: what passes beside the bridge does not meet $rules" \
                "move these rules to prerouting or input of family inet, or give host-up no --fast"
        done < <(fast_bypassed ${nics[@]+"${nics[@]}"})
    fi
    for why in "${FAST_LEFT[@]}"; do
        number=$(fast_number "$why")
        ((${number:-0} == 0)) || left+=", $number ${why//_/ }"
    done
    number=$(fast_number carried)
    FAST_PEERS="peers: ${number:-0} carried$left"
    fine "fast path" "on $(join ', ' ${attached[@]+"${attached[@]}"}); $FAST_PEERS"
}
