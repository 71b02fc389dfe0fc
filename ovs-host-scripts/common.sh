# shellcheck shell=bash
# Shared by all host scripts: options, errors, saved state, restoring it.

PROGRAM=${0##*/}
BRIDGE=br-ri2n
DB=
readonly DEFAULT_STATE_ROOT=/var/lib/ri2n
STATE_ROOT=$DEFAULT_STATE_ROOT
DRY_RUN=no
# shellcheck disable=SC2034 # the scripts that read this file use it
readonly COOKIE_MASK=0x5249000000000000/0xffff000000000000

# Port numbers of guests are above all that NICs can have (ri2n_sdn/pipeline/layout.py).
# shellcheck disable=SC2034
readonly FIRST_GUEST_PORT=2001 MAX_EXTRA_MACS=256

# A user's mistake: print one line and exit with status 2.
die() {
    printf '%s: %s\n' "$PROGRAM" "$*" >&2
    exit 2
}

# The terminal may be gone, because the NICs that carry the ssh session are being moved. So it is
# never an error when a message cannot be printed.
say() { printf '%s\n' "$*" 2>/dev/null || true; }
warn() { printf '%s: warning: %s\n' "$PROGRAM" "$*" >&2 2>/dev/null || true; }

# Every change goes through `run`; with --dry-run it prints the change instead.
run() {
    CHANGES=$((${CHANGES:-0} + 1))
    if [[ $DRY_RUN == yes ]]; then describe "$@"; else "$@"; fi
}

# Print a change as the command that an administrator would type.
describe() {
    local line
    case $1 in
    write_sysctl) say "sysctl -w ${2//\//.}=$3" ;;
    write_file) say "echo '$3' > $2" ;;
    load_flows)
        say "ovs-ofctl -O OpenFlow15 --bundle add-flows $BRIDGE - <<END"$'\n'"$2"$'\n'END
        ;;
    vsctl | vsctl_quietly) shift && printf -v line '%q ' ovs-vsctl "$@" && say "${line% }" ;;
    *) printf -v line '%q ' "$@" && say "${line% }" ;;
    esac
}

# As `run`, for a change whose failure does not matter.
try() { run "$@" 2>/dev/null || true; }

write_file() { printf '%s' "${2:+$2$'\n'}" >"$1"; }
write_sysctl() { printf '%s\n' "$2" >"/proc/sys/$1"; }

# Set where ovs-vswitchd does not run: changes go into the database, and nobody answers.
NO_WAIT=
vsctl() { ovs-vsctl --timeout=20 ${NO_WAIT:+"$NO_WAIT"} ${DB:+--db="$DB"} "$@"; }
vsctl_quietly() { vsctl "$@" >/dev/null; } # `create` prints row ids
ofctl() { ovs-ofctl -O OpenFlow15 "$@"; }

# A column of the database without the quotes that ovs-vsctl puts around strings; empty when unset.
ovs_get() {
    local value
    value=$(vsctl --if-exists get "$@")
    [[ $value == '[]' || $value == '{}' ]] && value=
    value=${value#\"}
    printf '%s' "${value%\"}"
}

# setting FILE KEY: the last value of a key in host-up's file; empty where the file has no such key.
setting() {
    local value
    value=$(sed -n "s/^[[:space:]]*$2[[:space:]]\+\([^[:space:]#]*\).*/\1/p" "$1")
    printf '%s' "${value##*$'\n'}"
}

need_value() { [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value"; }

check_bridge_name() {
    [[ $BRIDGE =~ ^[a-zA-Z][a-zA-Z0-9_-]{0,14}$ ]] ||
        die "--bridge $BRIDGE: not a valid device name"
    # shellcheck disable=SC2034 # the scripts that read this file use it
    STATE=$STATE_ROOT/$BRIDGE
    # shellcheck disable=SC2034 # nics.sh uses it
    NFT_TABLE=ri2n_${BRIDGE//-/_}
}

# Check for root and for the programs. OVS_RUNDIR follows --db so that ovs-ofctl finds the bridge.
check_programs() {
    ((EUID == 0)) || die "must run as root: use sudo"
    local program
    for program in ovs-vsctl ovs-ofctl ip; do
        command -v "$program" >/dev/null ||
            die "$program is missing: install openvswitch-switch and iproute2"
    done
    if [[ -n $DB ]]; then
        [[ $DB == unix:/* ]] || die "--db $DB: must be unix:/PATH"
        OVS_RUNDIR=$(dirname "${DB#unix:}")
        export OVS_RUNDIR
    fi
}

database_runs() {
    ovs-vsctl --timeout=5 ${DB:+--db="$DB"} --no-wait get Open_vSwitch . _uuid >/dev/null 2>&1
}
switch_runs() { ovs-appctl --timeout=5 -t ovs-vswitchd version >/dev/null 2>&1; }

# As check_programs; also check that Open vSwitch runs and is new enough.
check_ovs() {
    local version
    check_programs
    version=$(ovs-vsctl --version 2>/dev/null || true)
    [[ ${version%%$'\n'*} =~ \ ([0-9]+)\.([0-9]+)[0-9.]*$ ]] ||
        die "cannot read the version of Open vSwitch from ovs-vsctl --version"
    if ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] < 2017)); then
        die "Open vSwitch${BASH_REMATCH[0]} is too old: 2.17 or newer is needed"
    fi
    database_runs ||
        die "Open vSwitch is not running (${DB:-default database}):" \
            "systemctl start openvswitch-switch"
    switch_runs || die "ovs-vswitchd is not running: systemctl start openvswitch-switch"
}

# Make the folder of the saved state one that only root may enter. Otherwise any user could hold the
# lock, and with it the undo and the boot.
own_state_root() {
    local mode
    if [[ ! -d $STATE_ROOT ]]; then
        mkdir -p "$STATE_ROOT"
        chmod 700 "$STATE_ROOT"
    elif mode=$(stat -c %a "$STATE_ROOT") && ((8#$mode & 8#077)); then
        [[ $STATE_ROOT == "$DEFAULT_STATE_ROOT" ]] ||
            die "--state-dir $STATE_ROOT: others may enter it: chmod 700 $STATE_ROOT"
        chmod 700 "$STATE_ROOT"
    fi
}

# Only one host-up or host-down runs at a time. The lock ends with the process.
LOCK_WAIT_S=60
lock() {
    [[ $DRY_RUN == no ]] || return 0
    own_state_root
    exec 9<"$STATE_ROOT"
    flock -w "$LOCK_WAIT_S" 9 || die "another host-up or host-down is at work"
}

# Open vSwitch is asked only once. Only host-up makes the bridge, and then it sets HAVE_BRIDGE.
HAVE_BRIDGE=
bridge_exists() {
    if [[ -z $HAVE_BRIDGE ]]; then
        if vsctl br-exists "$BRIDGE"; then HAVE_BRIDGE=yes; else HAVE_BRIDGE=no; fi
    fi
    [[ $HAVE_BRIDGE == yes ]]
}

# The NICs that host-up put into the bridge, in the order of their port numbers.
bridge_nics() {
    vsctl --format=csv --no-headings --columns=ofport_request,name \
        find Interface "external_ids:ri2n-nic=$BRIDGE" |
        sort -n | cut -d, -f2 | tr -d '"'
}

# Where the jobs of this host's bridge are kept (jobs.sh). Beside the system's own Open vSwitch,
# others may run on this machine, each with bridges and jobs of its own.
jobs_dir() {
    local socket=${DB#unix:}
    if [[ -n ${RI2N_JOB_RUN_DIR-} ]]; then
        printf '%s' "$RI2N_JOB_RUN_DIR"
    elif [[ -n $DB ]]; then
        printf '%s' "${socket%/*}/ri2n-jobs/$BRIDGE"
    else
        printf '%s' "/run/ri2n/jobs/$BRIDGE"
    fi
}

has_link() { [[ $(cat "/sys/class/net/$1/carrier" 2>/dev/null || true) == 1 ]]; } # has_link NIC

# The guests' devices that host-up put into the bridge.
bridge_guests() {
    vsctl --format=csv --no-headings --columns=name \
        find Interface "external_ids:ri2n-guest=$BRIDGE" | tr -d '"'
}

# The key, certificate and CA certificate that Open vSwitch uses, on one line; empty when none are
# set.
ssl_files() {
    vsctl get-ssl | sed -n 's/^\(Private key\|Certificate\|CA Certificate\): //p' | xargs
}

# read_link DEVICE: sets LINK_INDEX, LINK_MAC (empty when it is no Ethernet device), LINK_MTU,
# LINK_MASTER (empty when it has none) and LINK_UP (yes or no), which is the admin state, the UP
# flag, not the carrier. Fails when there is no such device.
# shellcheck disable=SC2034 # the scripts that read this file use what it finds
read_link() {
    local line
    LINK_INDEX='' LINK_MAC='' LINK_MTU='' LINK_MASTER='' LINK_UP=no
    line=$(ip -o link show dev "$1" 2>/dev/null) || return 1
    LINK_INDEX=${line%%:*}
    if [[ $line =~ \ link/ether\ ([0-9a-f:]+) ]]; then LINK_MAC=${BASH_REMATCH[1]}; fi
    if [[ $line =~ \ mtu\ ([0-9]+) ]]; then LINK_MTU=${BASH_REMATCH[1]}; fi
    if [[ $line =~ \ master\ ([^ ]+) ]]; then LINK_MASTER=${BASH_REMATCH[1]}; fi
    if [[ $line =~ [\<,]UP[,\>] ]]; then LINK_UP=yes; fi
}
