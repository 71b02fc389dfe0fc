# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # host-up uses what is set here
# Part of host-up, which sources it: NICs and guests of an earlier run that are no longer named
# leave the bridge, and NICs get back what they had.

RELEASED=()           # NICs that are no longer named
LEAVING=()            # those of them that are still in the bridge
declare -A HEIR_OF=() # of each: the NIC that has its place now
readonly LINK_WAIT_S=5

# A NIC whose saved state is there and which is not in the bridge counts, too: a run that was killed
# has taken it out of the bridge, and has not given it back.
find_released() {
    local nic saved names number heir
    bridge_exists || return 0
    names=$(bridge_nics)
    for saved in "$STATE"/nic.*; do
        [[ ! -d $saved || $saved == *.new ]] || names+=$'\n'${saved##*/nic.}
    done
    while read -r nic; do
        [[ -n $nic && " ${NAMED[*]} " != *" $nic "* ]] || continue
        RELEASED+=("$nic")
        HEIR_OF[$nic]=${NICS[0]}
        number=$(ovs_get interface "$nic" ofport_request)
        [[ -z $number ]] || LEAVING+=("$nic")
        saved=$(cat "$STATE/nic.$nic/heir" 2>/dev/null || true)
        for heir in "${NICS[@]}"; do
            if [[ -n $number && ${PORT_OF[$heir]} == "$number" || -z $number && $heir == "$saved" ]]
            then
                HEIR_OF[$nic]=$heir
            fi
        done
    done < <(sort -u <<<"$names")
}

# A NIC that was down needs seconds until it has a link. Where NICs leave the bridge, they stay
# until then. Without this, a host whose only NIC is replaced would be cut off meanwhile.
await_link() { # await_link NIC
    local end_s=$((SECONDS + LINK_WAIT_S))
    [[ ${#LEAVING[@]} -gt 0 && $DRY_RUN == no ]] || return 0
    until has_link "$1" || ((SECONDS >= end_s)); do sleep 0.1; done
}

# The kernel answers ARP for all addresses of the host on each NIC that is up. Peers would then send
# to a NIC that has left the bridge, beside all others, until its cable is pulled. So such a NIC
# answers for its own addresses alone, until the bridge has it again or is gone.
#
# Once it has left, nothing but the file `heir` tells whose place it had.
prepare_leaving() {
    local nic conf saved
    for nic in ${LEAVING[@]+"${LEAVING[@]}"}; do
        [[ ! -d $STATE/nic.$nic ]] || run write_file "$STATE/nic.$nic/heir" "${HEIR_OF[$nic]}"
        conf=net/ipv4/conf/$nic/arp_ignore saved=$STATE/quiet.$nic
        [[ -e /proc/sys/$conf && $(<"/proc/sys/$conf") == 0 ]] || continue
        [[ -e $saved ]] || run write_file "$saved" 0
        run write_sysctl "$conf" 1
    done
}

# The last step. The NICs get back what they had, but for their addresses and routes: those are on
# the bridge. host-down gives them to the NIC that has the place now, so that the host then has its
# addresses, whichever of its NICs were replaced meanwhile.
give_back_nics() {
    local nic saved
    for nic in "${NICS[@]}"; do
        unquieten "$nic"
        [[ ! -e $STATE/nic.$nic/heir ]] || run rm -f "$STATE/nic.$nic/heir"
    done
    for nic in ${RELEASED[@]+"${RELEASED[@]}"}; do
        saved=$STATE/nic.$nic
        [[ -d $saved ]] || continue
        hand_down "$saved" "$STATE/nic.${HEIR_OF[$nic]}"
        LEFT=no
        restore_nic "$nic" bare
        [[ $LEFT == no ]] || continue # the next run tries it again
        # All files go at once, because a later run would take half a state for all of it.
        run rm -rf "$saved.new"
        run mv "$saved" "$saved.new"
        run rm -rf "$saved.new"
    done
}

hand_down() { # hand_down FROM TO: two folders of saved states
    local file lines
    for file in addresses routes; do
        [[ -s $1/$file ]] || continue
        lines=$(cat "$2/$file" "$1/$file" 2>/dev/null | awk 'NF && !seen[$0]++' || true)
        # Where the host was reached by the NIC, its heir must be up with the same addresses.
        [[ $(<"$1/up") != yes && ! -e $1/inherited ]] || run write_file "$2/inherited" ""
        run write_file "$2/$file.new" "$lines"
        run mv "$2/$file.new" "$2/$file"
        run write_file "$1/$file" ""
    done
}

# Guests of an earlier run that are no longer named leave the bridge. Ports that somebody else put
# there stay.
release_guests() {
    local port saved
    bridge_exists || return 0
    for port in $(bridge_guests); do
        [[ " ${GUEST_PORTS[*]-} " == *" $port "* ]] ||
            run vsctl --if-exists del-port "$BRIDGE" "$port"
    done
    for saved in "$STATE"/guest.*; do
        [[ ! -e $saved || " ${GUEST_PORTS[*]-} " == *" ${saved##*/guest.} "* ]] ||
            run rm -f "$saved"
    done
}
