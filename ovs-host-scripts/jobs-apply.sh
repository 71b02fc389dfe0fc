# shellcheck shell=bash disable=SC2004,SC2034,SC2153 # the files that source each other share these
# Part of job-begin, job-end, job-ls, host-watch and host-down, which source it after jobs.sh: make
# the firewall, the bridge and the queue hold what the files of jobs say.
#
# How a packet gets its class (docs/jobs-marking.md):
# 1. Output hook of the IP stack, only for packets that leave by the bridge: our bits of the mark
#    are cleared; the sender's cgroup or uid chooses the chain of a class, which sets the bits.
# 2. A packet without an owner is the kernel's: data and FIN of a closed socket, RST, the last ACK.
#    The chain of a class remembers the TCP connections of its packets, and packets without an
#    owner take the class of their connection. nft 1.0.6 cannot load a longer key in a map than 16
#    bytes. So the key of IPv6 lacks the first four bytes of the address.
# 3. Egress hook of the bridge's device: the mark's class becomes the source MAC.

# The bits of the mark that are ours. Other software may use the other bits.
readonly CLASS_BITS=0xff000000 OTHER_BITS=0x00ffffff
readonly REMEMBERED=262144 REMEMBERED_S=150 # TCP repeats a segment after at most 120 s
readonly HTB_HANDLE=524a

# Where the tree of cgroup2 is mounted. nft names its paths from /sys/fs/cgroup.
find_cgroup2() {
    local where kind
    CGROUP_MOUNT='' CGROUP_PREFIX=''
    while read -r _ where kind _; do
        [[ $kind == cgroup2 && $where == /sys/fs/cgroup* ]] || continue
        CGROUP_MOUNT=$where
        CGROUP_PREFIX=${where#/sys/fs/cgroup}
        CGROUP_PREFIX=${CGROUP_PREFIX#/}
        CGROUP_PREFIX=${CGROUP_PREFIX:+$CGROUP_PREFIX/}
    done </proc/self/mounts
    [[ -n $CGROUP_MOUNT ]]
}

# group_of ID: set GROUP to the cgroup of a job's class, from the root of the tree, and add its
# depth to DEPTHS.
group_of() {
    local slashes
    GROUP=${JOB_CGROUP[$1]#"$CGROUP_MOUNT/"}
    GROUP=${GROUP%/*}
    slashes=${GROUP//[!\/]/}
    [[ " $DEPTHS " == *" $((${#slashes} + 1)) "* ]] || DEPTHS+=" $((${#slashes} + 1))"
}

# Print the firewall's rules for all jobs.
marking_rules() {
    local T="inet $JOB_TABLE" N="netdev $JOB_TABLE" routed='meta rtclassid != 0xffffffff'
    local id class hex kept_mark new depth groups='' users='' kept='' macs='' in_use=''
    local DEPTHS='' tcp4='meta nfproto ipv4 meta l4proto tcp' key4='@th,0,32 . ip daddr'
    local tcp6='meta nfproto ipv6 meta l4proto tcp' key6='@th,0,32 . @nh,224,96'
    local flags="size $REMEMBERED; flags dynamic,timeout"
    for id in "${JOB_IDS[@]}"; do [[ -z ${JOB_CGROUP[$id]} ]] || group_of "$id"; done
    printf '%s\n' "add table $T" \
        "add map $T users { type uid : verdict; }" \
        "add map $T groups { type cgroupsv2 : verdict; }" \
        "add map $T kept { type mark : verdict; }" \
        "add map $T seen4 { typeof $key4 : meta mark; $flags; timeout ${REMEMBERED_S}s; }" \
        "add map $T seen6 { typeof $key6 : meta mark; $flags; timeout ${REMEMBERED_S}s; }" \
        "add chain $T owned" \
        "add chain $T unowned" \
        "add chain $T out { type filter hook output priority 300; policy accept; }" \
        "add chain $T through { type filter hook forward priority 300; policy accept; }" \
        "flush map $T users; flush map $T groups; flush map $T kept" \
        "flush chain $T owned; flush chain $T unowned; flush chain $T out; flush chain $T through"
    for id in "${JOB_IDS[@]}"; do
        class=${JOB_CLASS[$id]}
        in_use+=" $class"
        printf -v hex '0x%02x000000' "$class"
        printf -v kept_mark '0x%02x%06x' "$class" "${JOB_SERIAL[$id]}"
        echo "add chain $T class_$class; flush chain $T class_$class"
        echo "add chain $T old_$class; flush chain $T old_$class"
        echo "add rule $T class_$class meta mark set meta mark & $OTHER_BITS | $hex"
        [[ -z ${JOB_MAX_RATE[$id]} ]] ||
            printf 'add rule %s class_%d meta priority set %s:%x\n' \
                "$T" "$class" "$HTB_HANDLE" "$class"
        echo "add rule $T class_$class $tcp4 update @seen4 { $key4 : $kept_mark }"
        echo "add rule $T class_$class $tcp6 update @seen6 { $key6 : $kept_mark }"
        echo "add rule $T old_$class meta mark set $hex goto class_$class"
        kept+="${kept:+, }$kept_mark : goto old_$class"
        if [[ -n ${JOB_CGROUP[$id]} ]]; then
            group_of "$id"
            groups+="${groups:+, }\"$CGROUP_PREFIX$GROUP\" : goto class_$class"
        else
            users+="${users:+, }${JOB_UID[$id]} : goto class_$class"
        fi
    done
    echo "add element $T kept { $kept }"
    [[ -z $groups ]] || echo "add element $T groups { $groups }"
    [[ -z $users ]] || echo "add element $T users { $users }"
    for id in ${LEFT_CLASSES[@]+"${LEFT_CLASSES[@]}"}; do
        [[ " $in_use " != *" $id "* && $id -gt 0 ]] || continue
        echo "add chain $T old_$id; flush chain $T old_$id; delete chain $T old_$id"
        echo "add chain $T class_$id; flush chain $T class_$id; delete chain $T class_$id"
    done
    new='tcp flags & syn == syn delete'
    echo "add rule $T owned meta nfproto ipv4 $new @seen4 { $key4 : 0 }"
    echo "add rule $T owned meta nfproto ipv6 $new @seen6 { $key6 : 0 }"
    echo "add rule $T unowned meta nfproto ipv4 meta mark set $key4 map @seen4"
    echo "add rule $T unowned meta nfproto ipv6 meta mark set $key6 map @seen6"
    echo "add rule $T unowned meta mark vmap @kept"
    # What is remembered of a job that has ended.
    echo "add rule $T unowned meta mark & $CLASS_BITS != 0 meta mark set 0"
    echo "add rule $T out oifname != \"$BRIDGE\" accept"
    echo "add rule $T out meta mark set meta mark & $OTHER_BITS"
    for depth in $DEPTHS; do
        echo "add rule $T out socket cgroupv2 level $depth vmap @groups"
    done
    echo "add rule $T out meta skuid vmap @users"
    echo "add rule $T out meta l4proto != tcp accept"
    # 4294967295 is no user. The match fails where there is no owner.
    echo "add rule $T out meta skuid != 4294967295 goto owned"
    echo "add rule $T out goto unowned"
    # What is routed through this host is not its jobs'.
    echo "add rule $T through oifname \"$BRIDGE\" meta mark set meta mark & $OTHER_BITS"

    # Nobody else may send with a class: neither by such a source MAC, nor by the mark of a packet
    # socket (it has no route, so it has no class of routes either), nor from a device on top of
    # this one, which has a MAC or a VLAN of its own.
    for ((class = 1; class <= MAX_CLASS; class++)); do
        printf -v hex '%02x' "$class"
        macs+="${macs:+, }0x${hex}000000 : 02:52:4a:00:00:$hex"
    done
    local hook="type filter hook egress device \"$BRIDGE\" priority 0; policy accept;"
    printf '%s\n' "add table $N" "add chain $N egress { $hook }" "flush chain $N egress" \
        "add rule $N egress ether saddr & ff:ff:ff:ff:ff:00 == 02:52:4a:00:00:00 counter drop" \
        "add rule $N egress meta mark & $CLASS_BITS == 0 accept" \
        "add rule $N egress ether saddr != $LINK_MAC accept" \
        "add rule $N egress ether type vlan accept" \
        "add rule $N egress $routed ether saddr set meta mark & $CLASS_BITS map { $macs }"
}

no_marking_rules() {
    printf 'add table %s; delete table %s\n' "inet $JOB_TABLE" "inet $JOB_TABLE" \
        "netdev $JOB_TABLE" "netdev $JOB_TABLE"
}

# Print what the bridge is told: all declarations anew, in one bundle, and the frame that makes the
# controller look.
declarations() {
    local id class
    echo "flow delete cookie=${JOB_COOKIE}000000000000/0xffff000000000000,table=$DECLARATIONS"
    # An answer to the job that had the class before is none to this job.
    [[ -z ${NEW_CLASS-} ]] ||
        echo "flow delete table=$ANSWERS,in_port=LOCAL,reg6=$NEW_CLASS"
    for id in ${JOB_IDS[@]+"${JOB_IDS[@]}"}; do
        class=${JOB_CLASS[$id]}
        echo "flow add cookie=$JOB_COOKIE${JOB_HASH[$id]},table=$DECLARATIONS,priority=$class," \
            "in_port=LOCAL,reg6=$class,actions=note:${JOB_HEX[$id]}"
    done
    # To 03:00:00:52:49:4a, EtherType 0x88b5, "JOBS"; the source says nothing.
    echo "packet-out in_port=LOCAL,packet=$NUDGE,actions=CONTROLLER"
}
readonly NUDGE=03000052494a02524a00000088b54a4f4253

# ---- cgroups

# Make the cgroups of all jobs that are marked by cgroup. A cgroup must exist when nft loads its
# rule, and a rule is for the one cgroup, not for the next one of its name. So the rules are loaded
# anew each time, after this.
make_cgroups() {
    local id
    for id in "${JOB_IDS[@]}"; do
        [[ -z ${JOB_CGROUP[$id]} || -d ${JOB_CGROUP[$id]} ]] ||
            mkdir -p "${JOB_CGROUP[$id]}" || return 1
    done
}

# remove_cgroup FOLDER: processes that are still in it go to the root of the tree.
remove_cgroup() {
    local folder pid tries
    find_cgroup2 || return 0
    [[ $1 == "$CGROUP_MOUNT"/*/class_*/job_* ]] || return 1
    for ((tries = 0; tries < 20; tries++)); do
        [[ -d $1 ]] || break
        while read -r folder; do
            while read -r pid; do
                # A process that ends meanwhile cannot be moved, and need not be.
                { echo "$pid" >"$CGROUP_MOUNT/cgroup.procs"; } 2>/dev/null || true
            done <"$folder/cgroup.procs"
            rmdir "$folder" 2>/dev/null || true
        done < <(find "$1" -depth -type d 2>/dev/null)
    done
    [[ ! -d $1 ]] || return 1
    # The class's, and ours, as soon as nothing is in them.
    folder=${1%/*}
    while [[ $folder != "$CGROUP_MOUNT" && ${#folder} -gt ${#CGROUP_MOUNT} ]]; do
        # A script that was killed may have removed some of them.
        rmdir "$folder" 2>/dev/null || [[ ! -d $folder ]] || break
        folder=${folder%/*}
    done
}

# ---- rates

# A job's packets have its HTB class as their priority, which the chain of their class has set. All
# other packets pass by the classes. A class may send 10 ms of its rate at once, so no second has
# more than a hundredth too much.
apply_limits() { # apply_limits CLASSES: those that have a limit, each with a blank after it
    local id have wanted=$1 batch='' rate burst class number
    [[ -n ${LINK_INDEX-} ]] || { rm -f "$RUN_DIR/limits" && return 0; }
    : >"$RUN_DIR/limits"
    have=$(tc qdisc show dev "$BRIDGE" root) || return 1
    if [[ -z $wanted ]]; then
        [[ $have != *"htb $HTB_HANDLE:"* ]] || tc qdisc del dev "$BRIDGE" root || return 1
        rm -f "$RUN_DIR/limits"
        return 0
    fi
    if [[ $have == *"htb $HTB_HANDLE:"* ]]; then
        while read -r _ _ class _; do
            [[ $class =~ ^$HTB_HANDLE:([0-9a-f]+)$ ]] || continue
            number=$((16#${BASH_REMATCH[1]}))
            [[ " $wanted" == *" $number "* ]] ||
                batch+="class del dev $BRIDGE classid $class"$'\n'
        done < <(tc class show dev "$BRIDGE")
    else
        batch+="qdisc replace dev $BRIDGE root handle $HTB_HANDLE: htb"$'\n'
    fi
    for id in "${JOB_IDS[@]}"; do
        rate=${JOB_MAX_RATE[$id]}
        [[ -n $rate ]] || continue
        burst=$((rate / 800))
        ((burst >= LINK_MTU + 18)) || burst=$((LINK_MTU + 18))
        ((burst <= 100000000)) || burst=100000000
        printf -v class '%s:%x' "$HTB_HANDLE" "${JOB_CLASS[$id]}"
        batch+="class replace dev $BRIDGE parent $HTB_HANDLE: classid $class htb rate ${rate}bit"
        batch+=" burst $burst cburst $burst quantum 20000"$'\n'
    done
    tc -batch - <<<"${batch%$'\n'}"
}

# An administrator who has chosen a queueing discipline has a reason.
check_limits() {
    local have
    command -v tc >/dev/null || die "tc is missing: install iproute2 (--max-rate needs it)"
    have=$(tc qdisc show dev "$BRIDGE" root 2>/dev/null) || true
    [[ ! $have =~ ^qdisc\ ([a-z_]+)\ ([0-9a-f]+): || ${BASH_REMATCH[2]} =~ ^(0|$HTB_HANDLE)$ ]] ||
        die "--max-rate: $BRIDGE has a queueing discipline of its own (${BASH_REMATCH[1]}):" \
            "tc qdisc del dev $BRIDGE root"
}

# ---- all of it

# Make everything as the files say. Call it with the lock and after load_jobs. With no jobs, nothing
# of ours stays. Where something does not work, WHY says what, and this fails.
apply_jobs() {
    local rules id limited=''
    WHY=''
    if ! read_link "$BRIDGE" && [[ ${#JOB_IDS[@]} -gt 0 ]]; then
        WHY="there is no device $BRIDGE"
        return 1
    fi
    if [[ ${#JOB_IDS[@]} -eq 0 ]]; then
        rules=$(no_marking_rules)
    else
        find_cgroup2 || true
        make_cgroups 2>/dev/null || { WHY="cannot make a cgroup" && return 1; }
        rules=$(marking_rules)
    fi
    attempt nft -f - <<<"$rules" || return 1
    for id in ${JOB_IDS[@]+"${JOB_IDS[@]}"}; do
        [[ -z ${JOB_MAX_RATE[$id]} ]] || limited+="${JOB_CLASS[$id]} "
    done
    if [[ -n $limited || -e $RUN_DIR/limits ]]; then attempt apply_limits "$limited" || return 1; fi
    if [[ -S $OVS_RUNDIR/$BRIDGE.mgmt ]]; then
        attempt ofctl --timeout=10 bundle "$BRIDGE" - < <(declarations) ||
            [[ -n ${NO_SWITCH-} && $WHY == *'Connection refused'* ]] || return 1
    elif [[ ${#JOB_IDS[@]} -gt 0 ]]; then
        WHY="Open vSwitch has no bridge $BRIDGE"
        return 1
    fi
    clear_left || return 1
    printf '%s\n' "$LINK_INDEX $LINK_MAC" >"$RUN_DIR/applied"
}

# attempt COMMAND...: where it fails, WHY is the first line of what it said.
attempt() {
    local said
    said=$("$@" 2>&1 >/dev/null) && return 0
    said=${said//$'\n'*/}
    WHY="$1: ${said#"$1: "}"
    return 1
}

# What killed scripts have left.
clear_left() {
    local left file class cgroup files=()
    for left in ${LEFT[@]+"${LEFT[@]}"}; do
        read -r file class cgroup <<<"$left"
        [[ -z $cgroup ]] || remove_cgroup "$cgroup" || {
            WHY="cannot empty the cgroup $cgroup"
            return 1
        }
        files+=("$RUN_DIR/$file")
    done
    [[ ! -e $RUN_DIR/.part ]] || files+=("$RUN_DIR/.part")
    [[ ${#files[@]} -eq 0 ]] || rm -f "${files[@]}"
}
