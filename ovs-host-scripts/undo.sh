# shellcheck shell=bash
# Part of host-up and host-down, which source it: back to what was before, at once or by itself unless confirmed.

LEFT=no # whether something could not be put back

# A step of an undo that fails stops no other: what can be put back is put back.
must() {
    run "$@" && return 0
    LEFT=yes
    warn "failed: $*"
}

# Back to how one NIC was before host-up took it.
restore_nic() {
    local nic=$1 saved=$STATE/nic.$1
    [[ -d $saved ]] || return 0
    if ! read_link "$nic"; then
        warn "NIC $nic is gone: nothing to restore on it"
        return 0
    fi
    [[ $LINK_MTU == "$(<"$saved/mtu")" ]] || must ip link set dev "$nic" mtu "$(<"$saved/mtu")"
    if [[ -s $saved/disable_ipv6 && -e /proc/sys/net/ipv6/conf/$nic/disable_ipv6 ]]; then
        must write_sysctl "net/ipv6/conf/$nic/disable_ipv6" "$(<"$saved/disable_ipv6")"
    fi
    default_queue "$nic"
    local feature
    while read -r feature; do
        try ethtool -K "$nic" "$feature" on
    done <"$saved/offloads"
    if [[ $(<"$saved/up") == yes ]]; then must ip link set dev "$nic" up; else must ip link set dev "$nic" down; fi
    add_addresses "$nic" <"$saved/addresses" || LEFT=yes
    add_routes "$nic" <"$saved/routes"
    announce "$nic"
}

# Who has learned the bridge's MAC for the host's addresses, which is everybody, hears of the NIC's.
announce() { # announce NIC
    local conf before saved=$STATE/nic.$1
    if [[ $(<"$saved/up") != yes || ! -s $saved/addresses ]] || ! read_link "$1"; then return 0; fi
    local settings=("net/ipv4/conf/$1/arp_notify" "net/ipv6/conf/$1/ndisc_notify")
    for conf in "${settings[@]}"; do
        [[ -e /proc/sys/$conf ]] || continue
        before=$saved/${conf##*/}
        [[ -e $before ]] || try write_file "$before" "$(<"/proc/sys/$conf")" # for the next run, should this one be killed
        try write_sysctl "$conf" 1
    done
    try ip link set dev "$1" address "$LINK_MAC" # the one it has: setting it is what the kernel tells neighbours of
    for conf in "${settings[@]}"; do
        [[ ! -e $saved/${conf##*/} ]] || try write_sysctl "$conf" "$(<"$saved/${conf##*/}")"
    done
}

# The state before host-up: the bridge goes, then every NIC gets back what it had.
#
# Whoever needs an undo needs it most where something is broken: without ovs-vswitchd the database forgets the bridge, and
# the kernel's datapath is emptied by hand; without the database, too, the NICs are restored all the same. Then the saved
# state stays and the status is 1, as when anything could not be put back: run once more when Open vSwitch is there.
undo() {
    local saved nic
    LEFT=no
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
    [[ $LEFT == no ]] || return 1
    # At once: half a state would be taken for all of it.
    run rm -rf "$STATE_ROOT/.gone.$BRIDGE"
    run mv "$STATE" "$STATE_ROOT/.gone.$BRIDGE"
    run rm -rf "$STATE_ROOT/.gone.$BRIDGE"
}

# Out of the database, with the settings that were changed.
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

# Nobody takes the ports out of the kernel's datapath, or the host's own port with its addresses away: here it is done.
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

# The admin may lose the very session this runs in: the watcher is armed before the first change and outlives it. It tries
# until it has succeeded, whatever does not work meanwhile. While it lives it holds a lock on its log: what waits for a
# confirmation that nobody holds lost its watcher, with the power, say, and is undone at boot (host-down --unconfirmed).
arm_confirm() {
    [[ -n $CONFIRM ]] || return 0
    local token=$STATE/pending
    run write_file "$token" "$$ $(date +%s) $CONFIRM"
    CHANGES=$((${CHANGES:-1} - 1))
    if [[ $DRY_RUN == yes ]]; then
        say "# in $CONFIRM s, unless confirmed: host-down --bridge $BRIDGE"
        return 0
    fi
    local mine
    mine=$(<"$token")
    # shellcheck disable=SC2016
    setsid bash -c '
        exec 8>>"$1"
        flock -n 8 || true # the one of an earlier host-up lives yet
        sleep "$2"
        until "${@:3}" >"$1" 2>&1; do sleep 2; done
    ' ri2n-undo "$STATE_ROOT/$BRIDGE.undo.log" "$CONFIRM" "$HERE/host-down" --if-pending "$mine" --bridge "$BRIDGE" \
        ${DB:+--db "$DB"} --state-dir "$STATE_ROOT" </dev/null >/dev/null 2>&1 9<&- &
    WATCHER=$!
    disown
    if [[ -d /run/systemd/system ]] && ! systemctl -q is-enabled ri2n-unconfirmed 2>/dev/null; then
        warn "a loss of power before you confirm would not be undone at boot: systemctl enable ri2n-unconfirmed"
    fi
}

# A host-up that has undone itself leaves no watcher, which is the leader of a session, and no log of one.
disarm_confirm() {
    [[ -n ${WATCHER-} ]] || return 0
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
