# shellcheck shell=bash
# Shared by host-up, host-down and host-status: options, errors, saved state, restoring it.

PROGRAM=${0##*/}
BRIDGE=br-ri2n
DB=
STATE_ROOT=/var/lib/ri2n
DRY_RUN=no
# shellcheck disable=SC2034 # the scripts that read this file use it
readonly COOKIE_MASK=0x5249000000000000/0xffff000000000000

# A user's mistake: one line, exit 2.
die() {
    printf '%s: %s\n' "$PROGRAM" "$*" >&2
    exit 2
}

# The terminal may be gone (the NICs that carry the ssh session are being moved): never fail on printing.
say() { printf '%s\n' "$*" 2>/dev/null || true; }
warn() { printf '%s: warning: %s\n' "$PROGRAM" "$*" >&2 2>/dev/null || true; }

# Every change goes through run: --dry-run prints it instead.
run() {
    CHANGES=$((${CHANGES:-0} + 1))
    if [[ $DRY_RUN == yes ]]; then describe "$@"; else "$@"; fi
}

# A change as the command an administrator would type.
describe() {
    local line
    case $1 in
    write_sysctl) say "sysctl -w ${2//\//.}=$3" ;;
    write_file) say "echo '$3' > $2" ;;
    load_flows) say "ovs-ofctl -O OpenFlow15 --bundle add-flows $BRIDGE - <<END"$'\n'"$2"$'\n'END ;;
    vsctl | vsctl_quietly) shift && printf -v line '%q ' ovs-vsctl "$@" && say "${line% }" ;;
    *) printf -v line '%q ' "$@" && say "${line% }" ;;
    esac
}

# run, where a failure is not worth stopping for.
try() { run "$@" 2>/dev/null || true; }

write_file() { printf '%s' "${2:+$2$'\n'}" >"$1"; }
write_sysctl() { printf '%s\n' "$2" >"/proc/sys/$1"; }

vsctl() { ovs-vsctl --timeout=20 ${DB:+--db="$DB"} "$@"; }
vsctl_quietly() { vsctl "$@" >/dev/null; } # `create` prints row ids
ofctl() { ovs-ofctl -O OpenFlow15 "$@"; }

# A column without the quotes that ovs-vsctl puts around strings; empty when unset.
ovs_get() {
    local value
    value=$(vsctl --if-exists get "$@")
    [[ $value == '[]' || $value == '{}' ]] && value=
    value=${value#\"}
    printf '%s' "${value%\"}"
}

need_value() { [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value"; }

check_bridge_name() {
    [[ $BRIDGE =~ ^[a-zA-Z][a-zA-Z0-9_-]{0,14}$ ]] || die "--bridge $BRIDGE: not a valid device name"
    STATE=$STATE_ROOT/$BRIDGE
    # shellcheck disable=SC2034 # nics.sh uses it
    NFT_TABLE=ri2n_${BRIDGE//-/_}
}

# Root, Open vSwitch there, running and new enough; OVS_RUNDIR follows --db so that ovs-ofctl finds the bridge.
check_ovs() {
    ((EUID == 0)) || die "must run as root: use sudo"
    local program version
    for program in ovs-vsctl ovs-ofctl ip; do
        command -v "$program" >/dev/null || die "$program is missing: install openvswitch-switch and iproute2"
    done
    if [[ -n $DB ]]; then
        [[ $DB == unix:/* ]] || die "--db $DB: must be unix:/PATH"
        OVS_RUNDIR=$(dirname "${DB#unix:}")
        export OVS_RUNDIR
    fi
    version=$(ovs-vsctl --version 2>/dev/null || true)
    [[ ${version%%$'\n'*} =~ \ ([0-9]+)\.([0-9]+)[0-9.]*$ ]] ||
        die "cannot read the version of Open vSwitch from ovs-vsctl --version"
    if ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] < 2017)); then
        die "Open vSwitch${BASH_REMATCH[0]} is too old: 2.17 or newer is needed"
    fi
    ovs-vsctl --timeout=5 ${DB:+--db="$DB"} get Open_vSwitch . _uuid >/dev/null 2>&1 ||
        die "Open vSwitch is not running (${DB:-default database}): systemctl start openvswitch-switch"
    ovs-appctl --timeout=5 -t ovs-vswitchd version >/dev/null 2>&1 ||
        die "ovs-vswitchd is not running: systemctl start openvswitch-switch"
}

# One host-up or host-down at a time; the lock ends with the process.
LOCK_WAIT_S=60
lock() {
    [[ $DRY_RUN == no ]] || return 0
    mkdir -p "$STATE_ROOT"
    exec 9<"$STATE_ROOT"
    flock -w "$LOCK_WAIT_S" 9 || die "another host-up or host-down is at work"
}

# Asked once: only host-up, which says so by setting HAVE_BRIDGE, makes the bridge.
HAVE_BRIDGE=
bridge_exists() {
    if [[ -z $HAVE_BRIDGE ]]; then
        if vsctl br-exists "$BRIDGE"; then HAVE_BRIDGE=yes; else HAVE_BRIDGE=no; fi
    fi
    [[ $HAVE_BRIDGE == yes ]]
}

# The NICs that host-up put into the bridge, in the order of their port numbers.
bridge_nics() {
    vsctl --format=csv --no-headings --columns=ofport_request,name find Interface "external_ids:ri2n-nic=$BRIDGE" |
        sort -n | cut -d, -f2 | tr -d '"'
}

# Key, certificate and CA certificate that Open vSwitch uses, on one line; empty when none are set.
ssl_files() { vsctl get-ssl | sed -n 's/^\(Private key\|Certificate\|CA Certificate\): //p' | xargs; }

# read_link DEVICE: its LINK_MAC (empty when it is no Ethernet device), LINK_MTU, LINK_MASTER (empty when it has none)
# and LINK_UP (yes or no): admin state, the UP flag, not carrier. Fails when there is no such device.
# shellcheck disable=SC2034 # the scripts that read this file use what it finds
read_link() {
    local line
    LINK_MAC='' LINK_MTU='' LINK_MASTER='' LINK_UP=no
    line=$(ip -o link show dev "$1" 2>/dev/null) || return 1
    if [[ $line =~ \ link/ether\ ([0-9a-f:]+) ]]; then LINK_MAC=${BASH_REMATCH[1]}; fi
    if [[ $line =~ \ mtu\ ([0-9]+) ]]; then LINK_MTU=${BASH_REMATCH[1]}; fi
    if [[ $line =~ \ master\ ([^ ]+) ]]; then LINK_MASTER=${BASH_REMATCH[1]}; fi
    if [[ $line =~ [\<,]UP[,\>] ]]; then LINK_UP=yes; fi
}

# Global addresses of a device, each as the arguments `ip addr add` takes.
addresses_of() {
    ip -o addr show dev "$1" scope global | awk '
        {
            line = $4; expires = ""
            for (i = 5; i <= NF; i++) {
                if ($i == "peer" || $i == "brd" || $i == "metric") { line = line " " $i " " $(i + 1); i++ }
                else if ($i == "valid_lft" || $i == "preferred_lft") {
                    value = $(i + 1); sub(/sec$/, "", value); i++
                    if (value != "forever") expires = expires " " $(i - 1) " " value
                }
                else if ($i == "noprefixroute" || $i == "home" || $i == "mngtmpaddr") line = line " " $i
            }
            if ($3 == "inet6") line = line " nodad"
            print line expires
        }'
}

# Routes through a device that its addresses do not bring by themselves: family, then the arguments of `ip route add`.
routes_of() {
    local family
    for family in -4 -6; do
        ip -o "$family" route show table all dev "$1" 2>/dev/null | awk -v family="$family" '
            $1 ~ /^(local|broadcast|multicast|anycast|unreachable)$/ || / proto kernel/ || /^ff00::\/8/ { next }
            {
                line = ""
                for (i = 1; i <= NF; i++) {
                    if ($i ~ /^(linkdown|dead|offload|trap|rt_trap)$/) continue
                    if ($i == "pref" || $i == "dev") { i++; continue }
                    if ($i == "expires") { value = $(i + 1); sub(/sec$/, "", value); line = line " expires " value; i++; continue }
                    line = line " " $i
                }
                print family line
            }'
    done
}

# Add what addresses_of and routes_of printed (files) to a device; what is there already is left alone.
add_addresses() {
    local device=$1 words
    while read -ra words; do
        [[ ${#words[@]} -gt 0 ]] && run ip addr replace "${words[@]}" dev "$device"
    done
    return 0
}

add_routes() {
    local device=$1 words later=()
    while read -ra words; do
        [[ ${#words[@]} -gt 0 ]] || continue
        if [[ " ${words[*]} " == *" via "* ]]; then
            later+=("${words[*]}")  # a gateway must be reachable first
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

# Back to how one NIC was before host-up took it.
restore_nic() {
    local nic=$1 saved=$STATE/nic.$1
    [[ -d $saved ]] || return 0
    if ! read_link "$nic"; then
        warn "NIC $nic is gone: nothing to restore on it"
        return 0
    fi
    [[ $LINK_MTU == "$(<"$saved/mtu")" ]] || run ip link set dev "$nic" mtu "$(<"$saved/mtu")"
    if [[ -s $saved/disable_ipv6 && -e /proc/sys/net/ipv6/conf/$nic/disable_ipv6 ]]; then
        run write_sysctl "net/ipv6/conf/$nic/disable_ipv6" "$(<"$saved/disable_ipv6")"
    fi
    default_queue "$nic"
    local feature
    while read -r feature; do
        try ethtool -K "$nic" "$feature" on
    done <"$saved/offloads"
    if [[ $(<"$saved/up") == yes ]]; then run ip link set dev "$nic" up; else run ip link set dev "$nic" down; fi
    add_addresses "$nic" <"$saved/addresses"
    add_routes "$nic" <"$saved/routes"
}

# The state before host-up: the bridge goes, then every NIC gets back what it had.
undo() {
    local saved nic old
    bridge_exists && run vsctl del-br "$BRIDGE"
    for saved in $(vsctl --bare --columns=_uuid find QoS "external_ids:ri2n=$BRIDGE"); do
        run vsctl destroy QoS "$saved"
    done
    no_ingress_rules
    if helper_is_set_up; then delete_taps; fi
    for saved in "$STATE"/nic.*; do
        [[ -d $saved ]] || continue
        nic=${saved##*/nic.}
        restore_nic "$nic"
    done
    if [[ -e $STATE/max-revalidator ]]; then
        old=$(<"$STATE/max-revalidator")
        if [[ -n $old ]]; then
            run vsctl set Open_vSwitch . "other_config:max-revalidator=$old"
        else
            run vsctl remove Open_vSwitch . other_config max-revalidator
        fi
    fi
    if [[ -s $STATE/ssl ]]; then
        read -ra old <"$STATE/ssl"
        run vsctl set-ssl "${old[@]}"
    elif [[ -e $STATE/ssl ]]; then
        run vsctl del-ssl
    fi
    run rm -rf "$STATE"
}
