# shellcheck shell=bash
# What on this host names a NIC that the bridge is about to take: `host-up --dry-run` lists it. Needs common.sh.
#
# Packets of the host come and go by the bridge afterwards. A firewall rule for eth0, an MPI that was told eth0, or a DHCP
# client on eth0 does not fail: it sees nothing any more. Names of NICs are short words, so this may name what means
# something else: it is a list to read, and nothing is refused because of it.

readonly MENTIONS_SHOWN=20

# One line per place, as comments between the commands of a dry run.
list_mentions() {
    local nic place places
    for nic in "$@"; do
        mapfile -t places < <(mentions_of "$nic")
        [[ ${#places[@]} -gt 0 ]] || continue
        say "# $nic is named here; what is about the host's traffic must name $BRIDGE instead:"
        for place in "${places[@]:0:MENTIONS_SHOWN}"; do say "#   $place"; done
        ((${#places[@]} <= MENTIONS_SHOWN)) || say "#   and $((${#places[@]} - MENTIONS_SHOWN)) more"
    done
}

mentions_of() { # mentions_of NIC
    mentions_in_files "$1"
    mentions_in_rules "$1"
    mentions_in_processes "$1"
}

# As a word of its own: eth1 is not in eth10, but in eth1.5, which is on it, and in net.ipv4.conf.eth1.rp_filter.
word() { # word NIC: a regular expression
    printf '(^|[^[:alnum:]_-])%s($|[^[:alnum:]_-])' "${1//./\\.}"
}

# Configuration of the host, but for RI2N's own, and for what gives the NIC its name.
mentions_in_files() {
    local files
    files=$(timeout 10 grep -rIlE --exclude-dir=ri2n --exclude-dir=udev --exclude-dir=openvswitch --exclude-dir=ssl \
        --exclude=70-persistent-net.rules -- "$(word "$1")" "${MENTIONS_ROOT-}/etc" 2>/dev/null || true)
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

# Programs in this network that were started for the NIC, such as a DHCP client.
mentions_in_processes() {
    local process here line word
    word=$(word "$1")
    here=$(readlink /proc/self/ns/net)
    for process in /proc/[0-9]*; do
        [[ $process != "/proc/$$" && $process != "/proc/$BASHPID" && $process != "/proc/$PPID" ]] || continue
        line=$(tr '\0' ' ' 2>/dev/null <"$process/cmdline") || continue
        [[ -n $line && $line != *host-up* && $(readlink "$process/ns/net" 2>/dev/null) == "$here" ]] || continue
        [[ ! $line =~ $word ]] || echo "process ${process#/proc/}: ${line:0:80}"
    done
}
