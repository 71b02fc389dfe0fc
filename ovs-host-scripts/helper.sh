# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The TAPs of the helper ri2n-reorder: making, checking and removing them. Needs common.sh and
# fast.sh.
#
# The TAPs are persistent, and they are made here, never by the helper: on the netdev datapath a TAP
# that is made anew under a port that exists never receives anything again. While no helper runs,
# the TAPs have no carrier; the bridge's groups act on that.

# The host's frames, which the helper stripes, and those that came in, in order again.
readonly PLAIN_TAP=ri2n-plain
# The helper's own frames, with a VLAN tag between the helper and the bridge.
readonly WIRE_TAP=ri2n-wire
# Frames of TCP that came beside the bridge and too early, until it is their turn. It is there where
# host-up was asked for the helper and for the fast path, and is no port of the bridge.
readonly HOLD_TAP=ri2n-hold
readonly HOLD_QUEUE=1000 # frames, most of them super-packets
# shellcheck disable=SC2034 # host-up and host-status, which read this file, use it
readonly -A TAP_PORT=(["$PLAIN_TAP"]=101 ["$WIRE_TAP"]=102)
readonly HELPER_BYTES=22 # what the helper adds to each frame (docs/wire-format.md)
readonly TAG_BYTES=4
# shellcheck disable=SC2034 # host-up uses it
readonly MIN_WIRE_MTU=600 # the least that the helper accepts for --mtu-wire
# Lengths of queues in frames, except QUEUE_MS. QUEUE_UNKNOWN is for NICs that report no rate.
readonly QUEUE_MS=5 MIN_QUEUE=16 MAX_QUEUE=1000 QUEUE_UNKNOWN=32

declare -A OWNER_OF=() # of each NIC and TAP: the OVS bridge that has it

helper_is_set_up() { [[ -e $STATE/helper ]]; }

# Whether the helper was told of the third TAP. Then a device of that name is ours.
hold_is_set_up() {
    content "$STATE/helper"
    [[ " $CONTENT " == *" --hold $HOLD_TAP "* ]]
}

# Whether helper and fast path are to stripe TCP together, beside the bridge.
hold_is_wanted() { [[ $HELPER == yes && $FAST == yes ]]; }

# Before anything is changed: find devices of these names that host-up did not make. Fills in
# OWNER_OF.
check_taps() {
    local tap
    [[ -c /dev/net/tun ]] || die "--helper: /dev/net/tun is missing: modprobe tun"
    for tap in "$PLAIN_TAP" "$WIRE_TAP"; do
        find_owner "$tap"
        [[ -z $OWNER || $OWNER == "$BRIDGE" ]] ||
            die "--helper: $tap is in the OVS bridge $OWNER; one bridge per host can have it"
        if read_link "$tap" && ! helper_is_set_up; then
            die "--helper: there is a device $tap that host-up did not make: remove it"
        fi
        OWNER_OF[$tap]=$OWNER
    done
    hold_is_wanted || return 0
    find_owner "$HOLD_TAP"
    [[ -z $OWNER ]] || die "--helper: $HOLD_TAP is in the OVS bridge $OWNER, and must be in none"
    if read_link "$HOLD_TAP" && ! hold_is_set_up; then
        die "--helper: there is a device $HOLD_TAP that host-up did not make: remove it"
    fi
    OWNER_OF[$HOLD_TAP]=
}

# The options of the helper that depend on this host and on host-up's options. The netdev datapath
# takes only single frames with complete checksums.
helper_options() { # helper_options MTU-OF-THE-NICS
    local more=''
    [[ $LOG_FORMAT != json ]] || more=' --log-format json'
    ! hold_is_wanted || more+=" --fast-maps $(fast_dir)/maps.sock --hold $HOLD_TAP"
    echo "--gro $([[ $DATAPATH == system ]] && echo on || echo off) --mtu-wire $1$more"
}

# Write the file that the service reads. It also marks the TAPs as ours, so it is written before the
# first TAP is made.
tell_helper() { # tell_helper MTU-OF-THE-NICS
    local line
    line="RI2N_REORDER_OPTIONS=$(helper_options "$1")"
    [[ -e $STATE/helper && $(<"$STATE/helper") == "$line" ]] ||
        run write_file "$STATE/helper" "$line"
}

# How many frames may wait in a TAP until the helper reads them: QUEUE_MS at the sum of the NICs'
# rates.
queue_frames() { # queue_frames MBITS
    local frames=$QUEUE_UNKNOWN
    if (($1 > 0)); then frames=$(($1 * 1000 * QUEUE_MS / 8 / 1518)); fi
    ((frames >= MIN_QUEUE)) || frames=$MIN_QUEUE
    ((frames <= MAX_QUEUE)) || frames=$MAX_QUEUE
    echo "$frames"
}

# The sum of the rates that the NICs report, in Mbit/s; 0 when a NIC reports none.
reported_rate_mbps() {
    local nic speed sum=0
    for nic in "$@"; do
        speed=$(cat "/sys/class/net/$nic/speed" 2>/dev/null || true)
        [[ $speed =~ ^[1-9][0-9]*$ ]] || { echo 0 && return 0; }
        sum=$((sum + speed))
    done
    echo "$sum"
}

# make_taps MTU-OF-THE-ADDRESS MTU-OF-THE-NICS QUEUE-IN-FRAMES: make the TAPs, up, with no IPv6 of
# their own.
make_taps() {
    local plain_mtu=$1 wire_mtu=$(($2 + HELPER_BYTES + TAG_BYTES)) queue=$3
    # The third one is ours as long as the options name it, so it goes before they change.
    hold_is_wanted || delete_hold
    tell_helper "$2"
    ! hold_is_wanted || make_tap "$HOLD_TAP" "$2" "$HOLD_QUEUE"
    make_tap "$PLAIN_TAP" "$plain_mtu" "$queue"
    make_tap "$WIRE_TAP" "$wire_mtu" "$MAX_QUEUE" # what came over the wire must not be lost here
    # A TAP takes every frame that its queueing discipline hands it, and drops the frames for which
    # its own queue has no room. So far (Linux 6.18) only the bound above counts. A kernel that
    # holds frames back finds the right discipline here.
    if kernel_has_fq_codel &&
        [[ $(tc qdisc show dev "$PLAIN_TAP" root 2>/dev/null || true) != *'fq_codel 5249:'* ]]; then
        run tc qdisc replace dev "$PLAIN_TAP" root handle 5249: \
            fq_codel limit "$MAX_QUEUE" target 1ms interval 20ms ecn
    fi
}

make_tap() { # make_tap NAME MTU FRAMES
    local conf=net/ipv6/conf/$1/disable_ipv6
    if ! read_link "$1"; then
        # If its port exists, that port is bound to a TAP that is gone, and on netdev it would never
        # receive anything again.
        [[ -z ${OWNER_OF[$1]} ]] || run vsctl del-port "$BRIDGE" "$1"
        OWNER_OF[$1]=
        run ip tuntap add dev "$1" mode tap
    fi
    if [[ $DRY_RUN == yes && -z $LINK_MTU && -d /proc/sys/net/ipv6 ||
        -e /proc/sys/$conf && $(<"/proc/sys/$conf") != 1 ]]; then
        run write_sysctl "$conf" 1
    fi
    [[ $LINK_MTU == "$2" ]] || run ip link set dev "$1" mtu "$2"
    [[ $(cat "/sys/class/net/$1/tx_queue_len" 2>/dev/null || true) == "$3" ]] ||
        run ip link set dev "$1" txqueuelen "$3"
    [[ $LINK_UP == yes ]] || run ip link set dev "$1" up
}

# Take the TAPs out of a bridge that stays, and remove them.
release_taps() {
    local tap
    for tap in "$PLAIN_TAP" "$WIRE_TAP"; do
        [[ -z $(vsctl port-to-br "$tap" 2>/dev/null || true) ]] ||
            run vsctl del-port "$BRIDGE" "$tap"
    done
    delete_taps
}

# Remove the TAPs. A helper that runs notices that its devices are gone, and ends.
delete_taps() {
    local tap
    for tap in "$PLAIN_TAP" "$WIRE_TAP"; do
        ! read_link "$tap" || run ip link del dev "$tap"
    done
    # By then the helper has ended, and no frame is given to it any more.
    delete_hold
    run rm -f "$STATE/helper"
}

delete_hold() {
    if hold_is_set_up && read_link "$HOLD_TAP"; then run ip link del dev "$HOLD_TAP"; fi
}
