# shellcheck shell=bash
# The two TAPs of the helper ri2n-reorder: making, checking and removing them. Needs common.sh.
#
# They are persistent and made here, never by the helper: on the netdev datapath a TAP that is made anew under a port
# that exists is never heard again. No helper running means no carrier, and that is what the bridge's groups go by.

readonly PLAIN_TAP=ri2n-plain # the host's frames, to be striped, and those that came in, in order again
readonly WIRE_TAP=ri2n-wire   # the helper's own frames, with a VLAN tag between it and the bridge
# shellcheck disable=SC2034 # host-up and host-status, which read this file, use it
readonly -A TAP_PORT=(["$PLAIN_TAP"]=101 ["$WIRE_TAP"]=102)
readonly HELPER_BYTES=22 # what the helper adds to each frame (docs/wire-format.md)
readonly TAG_BYTES=4
# shellcheck disable=SC2034 # host-up uses it
readonly LEAST_WIRE_MTU=600 # what the helper takes for --mtu-wire
readonly QUEUE_MS=5 QUEUE_LEAST=16 MAX_QUEUE=1000 QUEUE_UNKNOWN=32

declare -A OWNER_OF=() # of NICs and TAPs: the OVS bridge that has it

helper_is_set_up() { [[ -e $STATE/helper ]]; }

# Before anything is changed: devices of these names that are not ours. Fills in OWNER_OF.
check_taps() {
    local tap owner
    [[ -c /dev/net/tun ]] || die "--helper: /dev/net/tun is missing: modprobe tun"
    for tap in "$PLAIN_TAP" "$WIRE_TAP"; do
        owner=$(vsctl port-to-br "$tap" 2>/dev/null || true)
        [[ -z $owner || $owner == "$BRIDGE" ]] || die "--helper: $tap is in the OVS bridge $owner; one bridge per host can have it"
        if read_link "$tap" && ! helper_is_set_up; then
            die "--helper: there is a device $tap that host-up did not make: remove it"
        fi
        OWNER_OF[$tap]=$owner
    done
}

# The options that the helper needs to know from here: the netdev datapath takes single frames with complete checksums.
helper_options() { # helper_options MTU-OF-THE-NICS
    echo "--gro $([[ $DATAPATH == system ]] && echo on || echo off) --mtu-wire $1"
}

# The mark that the TAPs are ours, and the file that the service reads; written before the first TAP is made.
tell_helper() { # tell_helper MTU-OF-THE-NICS
    local line
    line="RI2N_REORDER_OPTIONS=$(helper_options "$1")"
    [[ -e $STATE/helper && $(<"$STATE/helper") == "$line" ]] || run write_file "$STATE/helper" "$line"
}

# Frames that may wait in a TAP until the helper reads them: QUEUE_MS at the sum of the NICs' rates.
queue_frames() { # queue_frames MBITS
    local frames=$QUEUE_UNKNOWN
    if (($1 > 0)); then frames=$(($1 * 1000 * QUEUE_MS / 8 / 1518)); fi
    ((frames >= QUEUE_LEAST)) || frames=$QUEUE_LEAST
    ((frames <= MAX_QUEUE)) || frames=$MAX_QUEUE
    echo "$frames"
}

# What the NICs say their rates are, added up, in Mbit/s; 0 when one does not say.
told_rate_mbps() {
    local nic speed sum=0
    for nic in "$@"; do
        speed=$(cat "/sys/class/net/$nic/speed" 2>/dev/null || true)
        [[ $speed =~ ^[1-9][0-9]*$ ]] || { echo 0 && return 0; }
        sum=$((sum + speed))
    done
    echo "$sum"
}

# make_taps MTU-OF-THE-ADDRESS MTU-OF-THE-NICS QUEUE-IN-FRAMES: both TAPs, up, with no IPv6 of their own.
make_taps() {
    local plain_mtu=$1 wire_mtu=$(($2 + HELPER_BYTES + TAG_BYTES)) queue=$3
    tell_helper "$2"
    make_tap "$PLAIN_TAP" "$plain_mtu" "$queue"
    make_tap "$WIRE_TAP" "$wire_mtu" "$MAX_QUEUE" # what has come over the wire must not be lost here
    # A TAP takes whatever its queueing discipline hands it, and drops what its own queue has no room for: so far
    # (Linux 6.18) the bound above is what counts. A kernel that holds frames back finds the right discipline here.
    if kernel_has_fq_codel && [[ $(tc qdisc show dev "$PLAIN_TAP" root 2>/dev/null || true) != *'fq_codel 5249:'* ]]; then
        run tc qdisc replace dev "$PLAIN_TAP" root handle 5249: fq_codel limit "$MAX_QUEUE" target 1ms interval 20ms ecn
    fi
}

make_tap() { # make_tap NAME MTU FRAMES
    local conf=net/ipv6/conf/$1/disable_ipv6
    if ! read_link "$1"; then
        # Its port, if it has one, is bound to a TAP that is gone, and would stay deaf on netdev.
        [[ -z ${OWNER_OF[$1]} ]] || run vsctl del-port "$BRIDGE" "$1"
        OWNER_OF[$1]=
        run ip tuntap add dev "$1" mode tap
    fi
    if [[ $DRY_RUN == yes && -z $LINK_MTU && -d /proc/sys/net/ipv6 || -e /proc/sys/$conf && $(<"/proc/sys/$conf") != 1 ]]; then
        run write_sysctl "$conf" 1
    fi
    [[ $LINK_MTU == "$2" ]] || run ip link set dev "$1" mtu "$2"
    [[ $(cat "/sys/class/net/$1/tx_queue_len" 2>/dev/null || true) == "$3" ]] || run ip link set dev "$1" txqueuelen "$3"
    [[ $LINK_UP == yes ]] || run ip link set dev "$1" up
}

# The TAPs out of a bridge that stays.
release_taps() {
    local tap
    for tap in "$PLAIN_TAP" "$WIRE_TAP"; do
        [[ -z $(vsctl port-to-br "$tap" 2>/dev/null || true) ]] || run vsctl del-port "$BRIDGE" "$tap"
    done
    delete_taps
}

# A helper that runs sees its devices go, and ends.
delete_taps() {
    local tap
    for tap in "$PLAIN_TAP" "$WIRE_TAP"; do
        ! read_link "$tap" || run ip link del dev "$tap"
    done
    run rm -f "$STATE/helper"
}
