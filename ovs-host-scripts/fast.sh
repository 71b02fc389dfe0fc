# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The fast path ri2n-fast, whose programs at the bridge's own port and at the NICs carry what they
# know beside Open vSwitch: asking for it, and taking it out of force. Needs common.sh.
#
# STATE/fast is there where host-up was asked for the fast path; the service does not start without
# it. STATE/fast.ending is there from the moment in which it is no longer asked for until nothing of
# it is left, so that a run that was killed is finished by the next one.

readonly FAST_PROGRAM=${RI2N_FAST:-/usr/local/lib/ri2n/ri2n-fast}
readonly MAX_FAST_BYTES=1048576 # of what it says, so much is read
readonly FAST_PRIORITY=21042      # of its tc filters (fast/src/programs/tc.rs)
# Peers with frames that the bridge keeps, by the reason, as ri2n-fast says it.
# shellcheck disable=SC2034 # examine.sh and host-metrics use it
readonly FAST_LEFT=(striped_tcp striped undecided unsupported too_many)

fast_is_set_up() { [[ -e $STATE/fast ]]; }

# Where ri2n-fast has its socket. Beside the system's own Open vSwitch, others may run on this
# machine.
fast_dir() {
    local socket=${DB#unix:}
    if [[ -n $DB ]]; then printf '%s' "${socket%/*}/ri2n-fast"; else printf '%s' /run/ri2n-fast; fi
}

# Say in one line why the fast path will not be in force, where that is so. Open vSwitch carries
# everything then.
check_fast() {
    local said
    if [[ ! -x $FAST_PROGRAM ]]; then
        warn "--fast: $FAST_PROGRAM is not there, install it; all goes through Open vSwitch"
    elif ! said=$("$FAST_PROGRAM" probe 2>&1); then
        said=${said##*$'\n'}
        warn "--fast: all goes through Open vSwitch: ${said:-ri2n-fast probe says nothing}"
    fi
}

# The service also runs where the kernel refuses the programs: it tells the controller so.
ask_for_fast() {
    local line="RI2N_FAST_OPTIONS=--bridge $BRIDGE"
    check_fast
    [[ ! -e $STATE/fast.ending ]] || run rm -f "$STATE/fast.ending"
    content "$STATE/fast"
    [[ $CONTENT == "$line" ]] || run write_file "$STATE/fast" "$line"
}

# Take the fast path out of force, with whoever watches over it.
release_fast() {
    local saved nics=()
    [[ -e $STATE/fast || -e $STATE/fast.ending ]] || return 0
    [[ ! -e $STATE/fast ]] || run mv "$STATE/fast" "$STATE/fast.ending"
    for saved in "$STATE"/nic.*; do
        [[ ! -d $saved || $saved == *.new ]] || nics+=(--nic "${saved##*/nic.}")
    done
    if [[ ! -x $FAST_PROGRAM && -n $(fast_attached) ]]; then
        warn "the programs of the fast path stay where they are: $FAST_PROGRAM is not there"
        return 1
    elif [[ -x $FAST_PROGRAM ]]; then
        # Open vSwitch may not run, or have lost the bridge. So the NICs are named.
        run "$FAST_PROGRAM" unload --bridge "$BRIDGE" "${nics[@]}" --state "$(fast_dir)" \
            ${OVS_RUNDIR:+--rundir "$OVS_RUNDIR"} || {
            warn "the fast path could not be taken out of force"
            return 1
        }
    fi
    run rm -f "$STATE/fast.ending"
}

# A NIC that has left the bridge. Who watches has let go of it, if anybody watches.
release_fast_nic() { # release_fast_nic NIC
    if fast_is_set_up && [[ -x $FAST_PROGRAM ]]; then
        try "$FAST_PROGRAM" unload --nic "$1"
    fi
}

# What ri2n-fast says of itself: one line of JSON. Afterwards FAST_SAYS has it; empty where nobody
# answers.
ask_fast() {
    FAST_SAYS=
    [[ -x $FAST_PROGRAM ]] || return 0
    FAST_SAYS=$(timeout 5 "$FAST_PROGRAM" status --json --state "$(fast_dir)" 2>/dev/null) ||
        FAST_SAYS=
    FAST_SAYS=${FAST_SAYS:0:MAX_FAST_BYTES}
}

fast_word() { # fast_word KEY: print a short word of FAST_SAYS; nothing where it has none
    local pattern="\"$1\": ?\"([a-z0-9_]{1,40})\""
    [[ ! $FAST_SAYS =~ $pattern ]] || printf '%s' "${BASH_REMATCH[1]}"
}

fast_number() { # fast_number KEY: print a number of FAST_SAYS; nothing where it has none
    local pattern="\"$1\": ?([0-9]{1,18})[,}]"
    [[ ! $FAST_SAYS =~ $pattern ]] || printf '%s' "${BASH_REMATCH[1]}"
}

# fast_devices true|false: print the devices that have, or lack, the programs.
fast_devices() {
    local rest=$FAST_SAYS object='\{[^{}]*"attached": ?(true|false)[^{}]*\}' have text
    while [[ $rest =~ $object ]]; do
        text=${BASH_REMATCH[0]} have=${BASH_REMATCH[1]}
        rest=${rest#*"$text"}
        [[ $have != "$1" || ! $text =~ \"name\":\ ?\"([^\"]{1,15})\" ]] ||
            printf '%s\n' "${BASH_REMATCH[1]}"
    done
}

fast_refusal() { # print why the programs are refused
    local pattern='"text": ?"([^"\\]{1,300})'
    if [[ $FAST_SAYS =~ $pattern ]]; then printf '%s' "${BASH_REMATCH[1]}"; else printf '?'; fi
}

# Print the devices of the bridge at which programs of the fast path stand, whoever watches.
fast_attached() {
    local device saved
    command -v tc >/dev/null || return 0
    for saved in "$STATE"/nic.*; do
        device=${saved##*/nic.}
        [[ $(tc filter show dev "$device" ingress 2>/dev/null || true) != *' ri2n-fast'* ]] ||
            printf '%s\n' "$device"
    done
}

# Print the rules of others that stand behind the programs, so that what passes beside the bridge
# does not meet them: a device and what it has, a line each.
fast_bypassed() { # fast_bypassed NIC ...
    local device chains side
    chains=$(nft -t list chains 2>/dev/null || true)
    for device in "$@" "$BRIDGE"; do
        side=ingress
        [[ $device != "$BRIDGE" ]] || side=egress # frames meet the rules of nftables there
        [[ $side == egress ]] || awk -v device="$device" -v ours="$NFT_TABLE" '
            $1 == "table" { name = $3; table = $2 " " $3 }
            / hook ingress / && name != ours {
                gsub(/["{},;]/, " ")
                if (index($0 " ", " " device " ")) print device " table " table
            }
        ' <<<"$chains" | sort -u
        { tc filter show dev "$device" "$side" 2>/dev/null || true; } |
            awk -v device="$device" -v ours="$FAST_PRIORITY" '
                $1 == "filter" {
                    for (at = 2; at < NF; at++)
                        if ($at == "pref" && $(at + 1) > ours) print device " tc filter " $(at + 1)
                }
            ' | sort -u
    done
}
