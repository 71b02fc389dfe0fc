# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Find what on this host names a NIC that the bridge is about to take. `host-up --dry-run` lists it.
# Needs common.sh.
#
# Afterwards the host's packets go through the bridge. A firewall rule for eth0, an MPI that was
# told eth0, or a DHCP client on eth0 does not fail: it sees no packet any more. Names of NICs are
# short words, so this may also list a place where the word means something else. It is a list to
# read; nothing is refused because of it.

readonly MENTIONS_SHOWN=20

# Print one line per place, as comments between the commands of a dry run.
list_mentions() {
    local nic place places
    for nic in "$@"; do
        mapfile -t places < <(mentions_of "$nic")
        [[ ${#places[@]} -gt 0 ]] || continue
        show "# $nic is named here; what is about the host's traffic must name $BRIDGE instead:"
        for place in "${places[@]:0:MENTIONS_SHOWN}"; do
            printable "$place" # everybody may start a program with any command line
            show "#   $PRINTABLE"
        done
        ((${#places[@]} <= MENTIONS_SHOWN)) ||
            show "#   and $((${#places[@]} - MENTIONS_SHOWN)) more"
    done
}

mentions_of() { # mentions_of NIC
    mentions_in_files "$1"
    mentions_in_rules "$1"
    mentions_in_processes "$1"
}

# The NIC's name as a word of its own: eth1 is not in eth10. It is in eth1.5, which is a device on
# eth1, and in net.ipv4.conf.eth1.rp_filter.
word() { # word NIC: a regular expression
    printf '(^|[^[:alnum:]_-])%s($|[^[:alnum:]_-])' "${1//./\\.}"
}

# The host's configuration files, except RI2N's own and the files that give the NIC its name.
mentions_in_files() {
    local files
    files=$(timeout 10 grep -rIlE --exclude-dir=ri2n --exclude-dir=udev --exclude-dir=openvswitch \
        --exclude-dir=ssl --exclude=70-persistent-net.rules -- \
        "$(word "$1")" "${MENTIONS_ROOT-}/etc" 2>/dev/null || true)
    [[ -z $files ]] || sort <<<"$files"
}

mentions_in_rules() {
    local word table rules
    word=$(word "$1")
    if command -v nft >/dev/null; then
        while read -r table; do
            [[ $table != *ri2n_* ]] || continue
            # shellcheck disable=SC2086 # a family and a name
            rules=$(nft list table ${table#table } 2>/dev/null || true)
            [[ ! $rules =~ $word ]] || echo "nft $table"
        done < <(nft list tables 2>/dev/null)
    fi
    for table in iptables ip6tables; do
        rules=$("$table-legacy-save" 2>/dev/null || true)
        [[ ! $rules =~ $word ]] || echo "$table (legacy)"
    done
    rules=$({ ip -4 rule show && ip -6 rule show; } 2>/dev/null || true)
    [[ ! $rules =~ [io]if$word ]] || echo "ip rule"
}

# Programs in this network namespace that were started for the NIC, such as a DHCP client.
# A host has hundreds of processes, so no program is started to look at one.
mentions_in_processes() {
    local process line word part
    word=$(word "$1")
    for process in /proc/[0-9]*; do
        [[ $process != "/proc/$$" && $process != "/proc/$BASHPID" &&
            $process != "/proc/$PPID" ]] || continue
        line=
        # Where the program ends meanwhile, `read` fails and leaves `part` as it was.
        while part='' && { IFS= read -r -d '' part || [[ -n $part ]]; }; do
            line+="$part "
        done 2>/dev/null <"$process/cmdline" || continue
        [[ $line != *host-up* && $line =~ $word &&
            "$process/ns/net" -ef /proc/self/ns/net ]] || continue
        echo "process ${process#/proc/}: ${line:0:80}"
    done
}
