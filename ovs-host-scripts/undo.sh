# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Part of host-up and host-down, which source it: restore what was before, at once, or by itself
# after a time unless host-up is confirmed.

LEFT=no # whether something could not be put back
WATCHER='' # the process that undoes an unconfirmed host-up

# A step of an undo that fails does not stop the other steps: everything that can be put back is.
must() {
    run "$@" && return 0
    LEFT=yes
    warn "failed: $*"
}

# restore_nic NIC [bare]: restore one NIC as it was before host-up took it, with `bare` without its
# addresses and routes, which the bridge keeps.
restore_nic() {
    local nic=$1 saved=$STATE/nic.$1 bare=${2-}
    [[ -d $saved ]] || return 0
    if ! read_link "$nic"; then
        warn "NIC $nic is gone: nothing to restore on it"
        return 0
    fi
    [[ $LINK_MTU == "$(<"$saved/mtu")" ]] || must ip link set dev "$nic" mtu "$(<"$saved/mtu")"
    if [[ -s $saved/disable_ipv6 && -e /proc/sys/net/ipv6/conf/$nic/disable_ipv6 ]]; then
        must write_sysctl "net/ipv6/conf/$nic/disable_ipv6" "$(<"$saved/disable_ipv6")"
    fi
    release_fast_nic "$nic"
    default_queue "$nic"
    local feature
    while read -r feature; do
        try ethtool -K "$nic" "$feature" on
    done <"$saved/offloads"
    if [[ $(<"$saved/up") == yes || -z $bare && -e $saved/inherited ]]; then
        must ip link set dev "$nic" up
    else
        must ip link set dev "$nic" down
    fi
    [[ -z $bare ]] || return 0
    add_addresses "$nic" <"$saved/addresses" || LEFT=yes
    add_routes "$nic" <"$saved/routes"
    announce "$nic"
}

# A NIC that left the bridge answers for its own addresses alone (release.sh). That ends.
unquieten() { # unquieten NIC
    local conf=net/ipv4/conf/$1/arp_ignore saved=$STATE/quiet.$1
    [[ -e $saved ]] || return 0
    [[ ! -e /proc/sys/$conf ]] || must write_sysctl "$conf" "$(<"$saved")"
    run rm -f "$saved"
}

# Everybody has learned the bridge's MAC for the host's addresses. Announce the NIC's MAC to them.
announce() { # announce NIC
    local conf before saved=$STATE/nic.$1
    if [[ $(<"$saved/up") != yes || ! -s $saved/addresses ]] || ! read_link "$1"; then return 0; fi
    local settings=("net/ipv4/conf/$1/arp_notify" "net/ipv6/conf/$1/ndisc_notify")
    for conf in "${settings[@]}"; do
        [[ -e /proc/sys/$conf ]] || continue
        before=$saved/${conf##*/}
        # The value is saved for the next run, in case this one is killed.
        [[ -e $before ]] || try write_file "$before" "$(<"/proc/sys/$conf")"
        try write_sysctl "$conf" 1
    done
    # The NIC keeps its MAC. The kernel announces a MAC to neighbours when it is set.
    try ip link set dev "$1" address "$LINK_MAC"
    for conf in "${settings[@]}"; do
        [[ ! -e $saved/${conf##*/} ]] || try write_sysctl "$conf" "$(<"$saved/${conf##*/}")"
    done
}

# Restore the state before host-up: the bridge goes, then every NIC gets back what it had.
#
# An undo is needed most where something is broken. Without ovs-vswitchd, the bridge is removed from
# the database, and the kernel's datapath is emptied by hand. Without the database too, the NICs are
# restored all the same. Then, and whenever something could not be put back, the saved state stays
# and the status is 1: run host-down once more when Open vSwitch runs.
undo() {
    local saved nic
    LEFT=no
    release_fast || LEFT=yes # while the bridge can take over
    end_jobs
    if database_runs; then
        forget_bridge
        [[ -z $NO_WAIT ]] || leave_datapath
    else
        LEFT=yes
        warn "Open vSwitch does not run: the NICs are restored without it"
        leave_datapath
    fi
    no_ingress_rules
    no_segment_rules
    if helper_is_set_up; then delete_taps; fi
    for saved in "$STATE"/nic.*; do
        [[ -d $saved && $saved != *.new ]] || continue
        nic=${saved##*/nic.}
        restore_nic "$nic"
    done
    for saved in "$STATE"/quiet.*; do
        [[ ! -e $saved ]] || unquieten "${saved##*/quiet.}"
    done
    [[ $LEFT == no ]] || return 1
    # All files go at once, because a later run would take half a state for all of it.
    run rm -rf "$STATE_ROOT/.gone.$BRIDGE"
    run mv "$STATE" "$STATE_ROOT/.gone.$BRIDGE"
    run rm -rf "$STATE_ROOT/.gone.$BRIDGE"
}

# Without the bridge, no packet of a job needs a mark.
end_jobs() {
    local folder
    folder=$(jobs_dir)
    [[ -d $folder ]] || return 0
    must "$HERE/job-end" --all --bridge "$BRIDGE" ${DB:+--db "$DB"} --run-dir "$folder"
    try rmdir "$folder"/{ask,new,gone} "$folder"
}

# Remove the bridge from the database, and put back the settings that were changed.
forget_bridge() {
    local row old
    switch_runs || NO_WAIT=--no-wait
    # shellcheck disable=SC2034 # bridge_exists asks once
    HAVE_BRIDGE=
    if bridge_exists; then must vsctl del-br "$BRIDGE"; fi
    for row in $(vsctl --bare --columns=_uuid find QoS "external_ids:ri2n=$BRIDGE"); do
        must vsctl destroy QoS "$row"
    done
    if [[ -e $STATE/max-revalidator ]]; then
        old=$(<"$STATE/max-revalidator")
        if [[ -n $old ]]; then
            must vsctl set Open_vSwitch . "other_config:max-revalidator=$old"
        else
            must vsctl remove Open_vSwitch . other_config max-revalidator
        fi
    fi
    if [[ -s $STATE/ssl ]]; then
        read -ra old <"$STATE/ssl"
        must vsctl set-ssl "${old[@]}"
    elif [[ -e $STATE/ssl ]]; then
        must vsctl del-ssl
    fi
}

# Nobody else takes the ports out of the kernel's datapath, or removes the host's own port with its
# addresses. So it is done here.
leave_datapath() {
    local saved
    for saved in "$STATE"/nic.*; do
        [[ ! -d $saved ]] || try ovs-dpctl del-if system@ovs-system "${saved##*/nic.}"
    done
    try ovs-dpctl del-if system@ovs-system "$BRIDGE"
    read_link "$BRIDGE" || return 0
    try ip addr flush dev "$BRIDGE"
    try ip link set dev "$BRIDGE" down
    try ip link del dev "$BRIDGE"
}

# The administrator may lose the very session in which this runs. So a watcher is started before the
# first change, and outlives the session. It tries to undo until it succeeds, whatever does not work
# meanwhile. While it is alive it holds a lock on its log. Where a confirmation is pending and
# nobody holds that lock, the watcher is gone (after a loss of power, say), and the undo is done at
# boot (host-down --unconfirmed).
arm_confirm() {
    [[ -n $CONFIRM ]] || return 0
    local token=$STATE/pending
    run write_file "$token" "$$ $(date +%s) $CONFIRM"
    CHANGES=$((CHANGES - 1))
    if [[ $DRY_RUN == yes ]]; then
        show "# in $CONFIRM s, unless confirmed: host-down --bridge $BRIDGE"
        return 0
    fi
    local mine
    mine=$(<"$token")
    # shellcheck disable=SC2016
    setsid bash -c '
        exec 8>>"$1"
        flock -n 8 || true # the watcher of an earlier host-up may still be alive
        sleep "$2"
        until "${@:3}" >"$1" 2>&1; do sleep 2; done
    ' ri2n-undo "$STATE_ROOT/$BRIDGE.undo.log" "$CONFIRM" \
        "$HERE/host-down" --if-pending "$mine" --bridge "$BRIDGE" \
        ${DB:+--db "$DB"} --state-dir "$STATE_ROOT" </dev/null >/dev/null 2>&1 4>&- 9<&- &
    WATCHER=$!
    disown
    if [[ -d /run/systemd/system ]] && ! systemctl -q is-enabled ri2n-unconfirmed 2>/dev/null; then
        warn "a loss of power before you confirm would not be undone at boot:" \
            "systemctl enable ri2n-unconfirmed"
    fi
}

# A host-up that has undone itself leaves no watcher and no log of one. The watcher is the leader of
# a session.
disarm_confirm() {
    [[ -n $WATCHER ]] || return 0
    kill -- "-$WATCHER" 2>/dev/null || kill "$WATCHER" 2>/dev/null || true
    rm -f "$STATE_ROOT/$BRIDGE.undo.log"
}

confirmed() {
    check_bridge_name
    ((EUID == 0)) || die "must run as root: use sudo"
    lock
    rm "$STATE/pending" 2>/dev/null || die "nothing waits to be confirmed"
    say "confirmed"
}
