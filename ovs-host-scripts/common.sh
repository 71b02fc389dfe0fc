# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by all host scripts: options, errors, saved state, restoring it.

PROGRAM=${0##*/}
BRIDGE=br-ri2n
DB=
readonly DEFAULT_STATE_ROOT=/var/lib/ri2n
STATE_ROOT=$DEFAULT_STATE_ROOT
DRY_RUN=no
CHANGES=0
# shellcheck disable=SC2034 # the scripts that read this file use it
readonly COOKIE_MASK=0x5249000000000000/0xffff000000000000

# Port numbers of guests are above all that NICs can have (ri2n_sdn/pipeline/layout.py).
# shellcheck disable=SC2034
readonly FIRST_GUEST_PORT=2001 MAX_EXTRA_MACS=256

# ---- messages: each is one line
#
# The terminal may be gone, because the NICs that carry the ssh session are being moved. So it is
# never an error when a message cannot be printed.

LOG_FORMAT=${RI2N_LOG_FORMAT:-text} # what options say; it counts from begin_log on
LOG_AS=text LOG_FD=2 LOG_NAME=ri2n.$PROGRAM
# So many bytes of a message are kept, and so many messages are remembered.
MAX_MESSAGE=8192
readonly MAX_SAID=100
# Where this is a number: for so many seconds, a message that comes again is held back.
HOLD_S=''
# The messages that were written less than HOLD_S ago. No text is ever an index: bash would carry
# out what stands in it.
SAID=() SAID_LEVEL=() SAID_UNTIL_S=() SAID_AGAIN=()
SAID_NEXT=0
SAID_OTHERS=0 # messages that were held back because too many are remembered

# A user's mistake: print one line and exit with status 2.
die() {
    message error "$*"
    exit 2
}

# Something of the system does not work: one line, status 1.
fail() {
    message error "$*"
    exit 1
}

say() { message info "$*"; }
warn() { message warning "$*"; }
complain() { message error "$*"; }

# Output that somebody has asked for, of any number of lines. It is no message.
show() { printf '%s\n' "$*" 2>/dev/null || true; }

# From here on, messages have the form that the options say. In JSON they go to standard error, and
# what other programs write there becomes messages, too. With RI2N_LOG_RELAYED, whoever runs this
# script makes messages of its lines.
begin_log() {
    [[ $LOG_FORMAT =~ ^(text|json)$ ]] || die "log-format $LOG_FORMAT: must be text or json"
    [[ $LOG_FORMAT == json && -z ${RI2N_LOG_RELAYED-} ]] || return 0
    exec 4>&2 || return 0
    LOG_FD=4 LOG_AS=json
    exec 2> >(relay_all)
}

# It ends when nobody is left who could write a line.
relay_all() {
    local line
    trap '' HUP INT TERM PIPE
    while IFS= read -r line || [[ -n $line ]]; do
        relay "$line"
        tell_held_back
    done
    tell_held_back all
}

# relay LINE: a line of another program as a message. Our own scripts say how bad it is.
relay() {
    local level=warning
    if [[ $1 == "$BRIDGE: "* ]]; then
        level=info
    elif [[ $1 =~ ^(host|job)-[a-z]+:\  && $1 != *': warning: '* ]]; then
        level=error
    fi
    event "$level" "$1" ''
}

# message LEVEL TEXT: LEVEL is info, warning or error. To be called by functions such as `say`,
# because it tells the place where these were called.
message() { event "$1" "$2" "${BASH_SOURCE[2]##*/}:${BASH_LINENO[1]}"; }

event() { # event LEVEL TEXT PLACE: nothing is written of what is held back
    if [[ -n $HOLD_S ]] && held_back "$1" "$2"; then return 0; fi
    write_event "$1" "$2" "$3" ''
}

# An event without a place is a line of another program, or tells of other lines.
write_event() { # write_event LEVEL TEXT PLACE LEFT-OUT
    local text
    printable "$2"
    text=$PRINTABLE
    if [[ $LOG_AS == json ]]; then
        json_event "$1" "$text" "$3" "$4"
        { printf '%s\n' "$EVENT" >&"$LOG_FD"; } 2>/dev/null || true
    elif [[ $1 == info && -n $3 ]]; then
        printf '%s\n' "$text" 2>/dev/null || true
    else
        [[ $1 != warning || -z $3 ]] || text="warning: $text"
        printf '%s\n' "${3:+$PROGRAM: }$text" >&2 2>/dev/null || true
    fi
}

# json_event LEVEL TEXT PLACE LEFT-OUT [JOB]: set EVENT to a JSON object with the keys of the
# controller's log. TEXT is printable ASCII.
json_event() {
    local text time_us=${EPOCHREALTIME/[.,]/} stamp TZ=UTC0
    json_string "$2"
    text="\"message\": $JSON_STRING${3:+, \"where\": \"$3\"}${4:+, \"left_out\": $4}"
    printf -v stamp '%(%Y-%m-%dT%H:%M:%S)T' "${time_us%??????}"
    stamp=$stamp.${time_us: -6:3}Z
    printf -v EVENT '{"time": "%s", "level": "%s", "logger": "%s", %s}' \
        "$stamp" "$1" "$LOG_NAME" "$text${5:+, \"job\": \"$5\"}"
}

# json_string TEXT: set JSON_STRING to a printable text as a JSON string.
json_string() {
    local text=${1//\\/\\\\}
    JSON_STRING="\"${text//\"/\\\"}\""
}

# printable TEXT: set PRINTABLE to the text on one line, of bounded length. Where it has characters
# that end a line, change a terminal or turn the direction of writing, all bytes that are not
# printable ASCII are written as escapes; in JSON always.
printable() {
    local LC_ALL=C byte code
    local strange=$'[[:cntrl:]]|\xc2[\x80-\x9f]|\xe2\x80[\x8b-\xae]|\xe2\x81[\xa0-\xaf]'
    PRINTABLE=${1:0:MAX_MESSAGE}
    ((${#1} <= MAX_MESSAGE)) || PRINTABLE+="... ($((${#1} - MAX_MESSAGE)) bytes more)"
    [[ $LOG_AS == json || $PRINTABLE =~ $strange ]] || return 0
    PRINTABLE=${PRINTABLE//$'\n'/'\n'}
    while [[ $PRINTABLE =~ [^\ -~] ]]; do # at most once for each byte that there is
        byte=${BASH_REMATCH[0]}
        printf -v code %d "'$byte"
        printf -v code '\\x%02x' $((code & 255))
        PRINTABLE=${PRINTABLE//"$byte"/"$code"}
    done
}

# What does not work is tried again and again, and fails in the same way. The first such message is
# written. Those that follow within HOLD_S seconds are counted, and tell_held_back says how many.
# Where more different messages come than are remembered, the others are counted as well.
held_back() { # held_back LEVEL TEXT: fails where the message is to be written
    local place text=${2:0:MAX_MESSAGE}
    for place in "${!SAID[@]}"; do
        [[ ${SAID[place]} == "$text" ]] || continue
        SAID_AGAIN[place]=$((SAID_AGAIN[place] + 1))
        return 0
    done
    if ((${#SAID[@]} >= MAX_SAID)); then
        SAID_OTHERS=$((SAID_OTHERS + 1))
        return 0
    fi
    SAID[SAID_NEXT]=$text SAID_LEVEL[SAID_NEXT]=$1 SAID_AGAIN[SAID_NEXT]=0
    SAID_UNTIL_S[SAID_NEXT]=$((EPOCHSECONDS + HOLD_S))
    SAID_NEXT=$((SAID_NEXT + 1))
    return 1
}

# tell_held_back [all]: say how often the messages came again whose time is over, and forget them;
# with `all`, of all messages. Call it once a second, and at the end.
tell_held_back() {
    local place left_s
    for place in "${!SAID[@]}"; do
        # Where the clock was set back, the time is over, too.
        left_s=$((SAID_UNTIL_S[place] - EPOCHSECONDS))
        [[ ${1-} == all ]] || ((left_s <= 0 || left_s > HOLD_S)) || continue
        ((SAID_AGAIN[place] == 0)) ||
            write_event "${SAID_LEVEL[place]}" \
                "${SAID_AGAIN[place]} more like this: ${SAID[place]}" '' "${SAID_AGAIN[place]}"
        unset "SAID[$place]" "SAID_LEVEL[$place]" "SAID_UNTIL_S[$place]" "SAID_AGAIN[$place]"
    done
    ((SAID_OTHERS > 0 && ${#SAID[@]} < MAX_SAID)) || return 0
    write_event warning "$SAID_OTHERS other messages were left out: too many came at once" '' \
        "$SAID_OTHERS"
    SAID_OTHERS=0
}

# Every change goes through `run`; with --dry-run it prints the change instead.
run() {
    CHANGES=$((CHANGES + 1))
    if [[ $DRY_RUN == yes ]]; then describe "$@"; else "$@"; fi
}

# Show a change as the command that an administrator would type.
describe() {
    local line
    case $1 in
    write_sysctl) show "sysctl -w ${2//\//.}=$3" ;;
    write_file) show "echo '$3' > $2" ;;
    load_flows)
        show "ovs-ofctl -O OpenFlow15 --bundle add-flows $BRIDGE - <<END"$'\n'"$2"$'\n'END
        ;;
    load_bundle)
        show "ovs-ofctl -O OpenFlow15 bundle $BRIDGE - <<END"$'\n'"$2"$'\n'END
        ;;
    vsctl | vsctl_quietly) shift && printf -v line '%q ' ovs-vsctl "$@" && show "${line% }" ;;
    *) printf -v line '%q ' "$@" && show "${line% }" ;;
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
    # Without the function `vsctl`, which would be one more process.
    value=$(ovs-vsctl --timeout=20 ${NO_WAIT:+"$NO_WAIT"} ${DB:+--db="$DB"} --if-exists get "$@")
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

# content FILE: set CONTENT to what a file says, without the newlines at its end; to nothing where
# it cannot be read. No process is started for it.
# shellcheck disable=SC2034 # the scripts that read this file use it
content() {
    CONTENT=
    [[ ! -r $1 ]] || { CONTENT=$(<"$1"); } 2>/dev/null || true
}

need_value() { [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value"; }

check_bridge_name() {
    [[ $BRIDGE =~ ^[a-zA-Z][a-zA-Z0-9_-]{0,14}$ ]] ||
        die "--bridge $BRIDGE: not a valid device name"
    [[ $STATE_ROOT == /* ]] || die "--state-dir $STATE_ROOT: must begin with a slash"
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
        OVS_RUNDIR=${DB#unix:}
        OVS_RUNDIR=${OVS_RUNDIR%/*}
        export OVS_RUNDIR=${OVS_RUNDIR:-/}
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
# lock, and with it the undo and the boot; and whoever owns the folder could say what is restored.
own_state_root() {
    local mode owner
    # shellcheck disable=SC2174 # the folders above it are as usual
    [[ -d $STATE_ROOT ]] || mkdir -p -m 700 -- "$STATE_ROOT" 2>/dev/null ||
        die "--state-dir $STATE_ROOT: cannot be made"
    read -r owner mode < <(stat -L -c '%u %a' -- "$STATE_ROOT")
    [[ $owner == 0 ]] || die "--state-dir $STATE_ROOT: belongs to another user: chown root it"
    ((8#$mode & 8#077)) || return 0
    [[ $STATE_ROOT == "$DEFAULT_STATE_ROOT" ]] ||
        die "--state-dir $STATE_ROOT: others may enter it: chmod 700 $STATE_ROOT"
    chmod 700 "$STATE_ROOT"
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
HAVE_BRIDGE='' BRIDGES=''
bridge_exists() {
    if [[ -z $HAVE_BRIDGE ]]; then
        HAVE_BRIDGE=no
        BRIDGES=$(vsctl list-br) || true
        [[ $'\n'$BRIDGES$'\n' != *$'\n'"$BRIDGE"$'\n'* ]] || HAVE_BRIDGE=yes
    fi
    [[ $HAVE_BRIDGE == yes ]]
}

# find_owner PORT: set OWNER to the bridge that has the port; empty where there is none.
# shellcheck disable=SC2034 # the scripts that read this file use it
find_owner() {
    OWNER=
    bridge_exists || [[ -n $BRIDGES ]] || return 0
    OWNER=$(vsctl port-to-br "$1" 2>/dev/null) || true
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

# ssl_file TITLE: the file that Open vSwitch uses as its `Certificate` or `CA Certificate`; empty
# when none is set.
ssl_file() { vsctl get-ssl 2>/dev/null | sed -n "s/^$1: //p"; }

# Of a file of certificates, so much is read.
readonly MAX_CERTIFICATE_BYTES=262144 MAX_CERTIFICATES=8

# first_end FILE: print the Unix time at which the first of the certificates in a PEM file ends.
# Fails where there is none, or one that cannot be read.
first_end() {
    local line block='' count=0 end first=''
    [[ -f $1 ]] || return 1
    while IFS= read -r line && ((count < MAX_CERTIFICATES)); do
        case $line in
        *'-----BEGIN CERTIFICATE-----'*) block=$line$'\n' ;;
        *'-----END CERTIFICATE-----'*)
            count=$((count + 1))
            end=$(openssl x509 -noout -enddate <<<"$block$line" 2>/dev/null) || return 1
            end=$(date -u -d "${end#notAfter=}" +%s 2>/dev/null) || return 1
            [[ $end =~ ^-?[0-9]{1,15}$ ]] || return 1
            if [[ -z $first ]] || ((end < first)); then first=$end; fi
            ;;
        *) block+=$line$'\n' ;;
        esac
    done < <({ head -c "$MAX_CERTIFICATE_BYTES" "$1" && echo; } 2>/dev/null | tr -d '\0')
    [[ -n $first ]] && printf '%s' "$first"
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
