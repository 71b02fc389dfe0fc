# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2004,SC2034,SC2153 # the files that source each other share these
# Part of job-begin, job-end, job-ls, host-watch and host-down, which source it after jobs.sh: make
# the firewall, the bridge and the queue hold what the files of jobs say.
#
# How a packet gets its class (docs/jobs-marking.md), all in the egress hook of the bridge's device:
# 1. The sender's uid chooses the chain of a class, which writes the class into the source MAC.
# 2. A packet without an owner is the kernel's: data and FIN of a closed socket, RST, the last ACK.
#    The chain of a class remembers the TCP connections of its packets, and packets without an
#    owner take the class of their connection. nft 1.0.6 cannot load a longer key in a map than 16
#    bytes. So the key of IPv6 lacks the first four bytes of the address.
# 3. Jobs that are marked by cgroup need one hook more, because nft knows the sender's cgroup only
#    in the output hook of the IP stack: there the upper bits of the mark say which class.

# The bits of the mark that are ours while a job is marked by cgroup. Other software may use the
# other bits.
readonly CLASS_BITS=0xff000000 OTHER_BITS=0x00ffffff
readonly REMEMBERED=262144 REMEMBERED_S=150 # TCP repeats a segment after at most 120 s
readonly HTB_HANDLE=524a

VANISHED=' ' # jobs whose adopted cgroup has gone

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

# group_of ID: set GROUP to the cgroup of a job's class, from the root of the tree, DEEP to a match
# that its packets must meet, too, and add its depth to DEPTHS. Fails where no packet can be
# matched: the job is marked by user, or its cgroup is not named yet or has gone.
#
# A job manager's daemons may be in a cgroup that was adopted (slurmstepd is), less deep than the
# job's own processes. Their packets are not the job's, and an isolated job must not cut them off
# from their controller. Users do not tell them apart: slurmstepd opens sockets as the job's user.
group_of() {
    local slashes stars
    DEEP=''
    if [[ -n ${JOB_CGROUP[$1]} ]]; then
        GROUP=${JOB_CGROUP[$1]#"$CGROUP_MOUNT/"}
        GROUP=${GROUP%/*}
    elif [[ ${JOB_ADOPTED[$1]} == /* && $VANISHED != *" $1 "* ]]; then
        GROUP=${JOB_ADOPTED[$1]%%/\**}
        GROUP=${GROUP#"$CGROUP_MOUNT/"}
        stars=${JOB_ADOPTED[$1]//[!*]/}
        slashes=${GROUP//[!\/]/}
        # A socket that is not that deep has no such level, and the match fails. Where it has, the
        # cgroup on that level is below the one that was adopted.
        [[ -z $stars ]] || DEEP="socket cgroupv2 level $((${#slashes} + 1 + ${#stars}))"
        DEEP+=${stars:+" != \"$CGROUP_PREFIX$GROUP\" "}
    else
        return 1
    fi
    slashes=${GROUP//[!\/]/}
    [[ " $DEPTHS " == *" $((${#slashes} + 1)) "* ]] || DEPTHS+=" $((${#slashes} + 1))"
}

# Print the firewall's rules for all jobs.
marking_rules() {
    local N="netdev $JOB_TABLE" id class hex kept_mark syn DEPTHS=''
    local groups='' users='' kept='' marks='' in_use=''
    local tcp4='meta protocol ip meta l4proto tcp' key4='@th,0,32 . ip daddr'
    local tcp6='meta protocol ip6 meta l4proto tcp' key6='@th,0,32 . @nh,224,96'
    local flags="size $REMEMBERED; flags dynamic,timeout"
    local hook="type filter hook egress device \"$BRIDGE\" priority 0; policy accept;"
    printf '%s\n' "add table $N" \
        "add map $N users { type uid : verdict; }" \
        "add map $N marks { type mark : verdict; }" \
        "add map $N kept { type mark : verdict; }" \
        "add map $N seen4 { typeof $key4 : meta mark; $flags; timeout ${REMEMBERED_S}s; }" \
        "add map $N seen6 { typeof $key6 : meta mark; $flags; timeout ${REMEMBERED_S}s; }" \
        "add chain $N egress { $hook }" \
        "add chain $N own" \
        "add chain $N no_job" \
        "flush map $N users; flush map $N marks; flush map $N kept" \
        "flush chain $N egress; flush chain $N own; flush chain $N no_job"
    for id in "${JOB_IDS[@]}"; do
        class=${JOB_CLASS[$id]}
        in_use+=" $class"
        printf -v hex '%02x' "$class"
        printf -v kept_mark '0x%s%06x' "$hex" "${JOB_SERIAL[$id]}"
        # The frame of a packet socket has no route, so it has no class of routes either. A VLAN
        # device on top of the bridge's may have the same MAC.
        printf '%s\n' "add chain $N class_$class; flush chain $N class_$class" \
            "add rule $N class_$class meta rtclassid 0xffffffff accept" \
            "add rule $N class_$class ether type vlan accept" \
            "add rule $N class_$class ether saddr set 02:52:4a:00:00:$hex"
        [[ -z ${JOB_MAX_RATE[$id]} ]] ||
            echo "add rule $N class_$class meta priority set $HTB_HANDLE:$hex"
        echo "add rule $N class_$class $tcp4 update @seen4 { $key4 : $kept_mark } accept"
        echo "add rule $N class_$class $tcp6 update @seen6 { $key6 : $kept_mark }"
        kept+="${kept:+, }$kept_mark : goto class_$class"
        if group_of "$id"; then
            groups+="${groups:+, }\"$CGROUP_PREFIX$GROUP\" : goto mark_$class"
            marks+="${marks:+, }0x${hex}000000 : goto class_$class"
        elif [[ -z ${JOB_ADOPTED[$id]} ]]; then
            users+="${users:+, }${JOB_UID[$id]} : goto class_$class"
        fi
    done
    echo "add element $N kept { $kept }"
    [[ -z $marks ]] || echo "add element $N marks { $marks }"
    [[ -z $users ]] || echo "add element $N users { $users }"
    for class in ${LEFT_CLASSES[@]+"${LEFT_CLASSES[@]}"}; do
        [[ " $in_use " != *" $class "* && $class -gt 0 ]] || continue
        echo "add chain $N class_$class; flush chain $N class_$class; delete chain $N class_$class"
    done
    # A device on top of the bridge's has a MAC of its own. And nobody sends with a class's MAC.
    echo "add rule $N egress ether saddr $LINK_MAC goto own"
    echo "add rule $N egress ether saddr & ff:ff:ff:ff:ff:00 == 02:52:4a:00:00:00 counter drop"
    [[ -z $marks ]] || echo "add rule $N own meta mark & $CLASS_BITS vmap @marks"
    echo "add rule $N own meta skuid vmap @users"
    echo "add rule $N own meta l4proto != tcp accept"
    # 4294967295 is no user. The match fails where there is no owner.
    echo "add rule $N own meta skuid != 4294967295 goto no_job"
    echo "add rule $N own meta protocol ip meta mark set $key4 map @seen4 meta mark vmap @kept"
    echo "add rule $N own meta protocol ip6 meta mark set $key6 map @seen6 meta mark vmap @kept"
    # Somebody else opens a connection that was a job's.
    syn='tcp flags & syn == syn'
    echo "add rule $N no_job meta protocol ip $syn delete @seen4 { $key4 : 0 }"
    echo "add rule $N no_job meta protocol ip6 $syn delete @seen6 { $key6 : 0 }"
    group_rules
}

# Print the rules that mark by cgroup; where no job is marked so, nothing stays of them. Part of
# marking_rules, whose variables it shares.
group_rules() {
    local T="inet $JOB_TABLE" id depth
    echo "add table $T; delete table $T"
    [[ -n $groups ]] || return 0
    printf '%s\n' "add table $T" \
        "add map $T groups { type cgroupsv2 : verdict; }" \
        "add chain $T out { type filter hook output priority 300; policy accept; }" \
        "add chain $T through { type filter hook forward priority 300; policy accept; }"
    for id in "${JOB_IDS[@]}"; do
        group_of "$id" || continue
        class=${JOB_CLASS[$id]}
        echo "add chain $T mark_$class"
        printf 'add rule %s mark_%d %smeta mark set meta mark | 0x%02x000000\n' \
            "$T" "$class" "$DEEP" "$class"
    done
    echo "add element $T groups { $groups }"
    echo "add rule $T out oifname != \"$BRIDGE\" accept"
    # Whatever a program has set itself goes.
    echo "add rule $T out meta mark set meta mark & $OTHER_BITS"
    for depth in $DEPTHS; do
        echo "add rule $T out socket cgroupv2 level $depth vmap @groups"
    done
    # What is routed through this host is not its jobs'.
    echo "add rule $T through oifname \"$BRIDGE\" meta mark set meta mark & $OTHER_BITS"
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
    for class in ${NEW_CLASSES[@]+"${NEW_CLASSES[@]}"}; do
        echo "flow delete table=$ANSWERS,in_port=LOCAL,reg6=$class"
    done
    for id in ${JOB_IDS[@]+"${JOB_IDS[@]}"}; do
        class=${JOB_CLASS[$id]}
        echo "flow add cookie=$JOB_COOKIE${JOB_HASH[$id]},table=$DECLARATIONS,priority=$class," \
            "in_port=LOCAL,reg6=$class,actions=note:${JOB_HEX[$id]}"
    done
    echo "packet-out in_port=LOCAL,packet=$NUDGE,actions=CONTROLLER"
}

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

# Set VANISHED to the jobs whose adopted cgroup has gone: its owner has removed it, and will soon
# end the job. nft cannot load the path of a cgroup that is not there.
find_vanished() {
    local id
    VANISHED=' '
    for id in "${JOB_IDS[@]}"; do
        [[ ${JOB_ADOPTED[$id]} == /* && ! -d ${JOB_ADOPTED[$id]%%/\**} ]] || continue
        VANISHED+="$id "
    done
}

# overlaps ID PATH: whether the cgroup at PATH is in that of another job than ID, or the other way
# round; OVERLAP says so. A packet can have one class only.
overlaps() {
    local id other path=${2%%/\**}
    [[ $path == /* ]] || return 1
    for id in ${JOB_IDS[@]+"${JOB_IDS[@]}"}; do
        other=${JOB_ADOPTED[$id]:-${JOB_CGROUP[$id]%/*}}
        other=${other%%/\**}
        [[ $id != "$1" && $other == /* ]] || continue
        [[ $path/ == "$other"/* || $other/ == "$path"/* ]] || continue
        OVERLAP="--cgroup-path $2: job $id has the cgroup $other"
        return 0
    done
    return 1
}

# Load the firewall's rules, by way of the file TEXT. A cgroup that is not ours may go at any time,
# also between a look and the load. Then the rules of all other jobs must hold all the same.
load_rules() { # load_rules TEXT
    local before='' id
    find_vanished
    while [[ $VANISHED != "$before" ]]; do
        before=$VANISHED
        marking_rules 2>/dev/null >"$1" || { WHY="cannot write $1" && return 1; }
        if attempt nft -f - <"$1"; then
            for id in $VANISHED; do
                warn "the cgroup of job $id has gone, and nothing of it is marked:" \
                    "${JOB_ADOPTED[$id]}"
            done
            return 0
        fi
        find_vanished
    done
    return 1
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
# other packets pass by the classes.
#
# HTB lets a super-packet of TCP pass whole, and at low rates one or two of 64 KB are more than a
# hundredth of a second's bits. TBF cuts them up. So below SPLIT_BELOW_BPS a TBF inside the class
# holds the rate, and the class has twice the rate. The kernel's log then says once for each such
# job that HTB did not expect a queue that waits. Above, HTB holds the rate alone, and super-packets
# stay whole, which saves CPU time: a class may send 1.25 ms of its rate at once.
readonly SPLIT_BELOW_BPS=200000000
apply_limits() { # apply_limits CLASSES: those that have a limit, each with a blank after it
    local id have wanted=$1 batch='' rate burst class number hex inside split
    [[ -n ${LINK_INDEX-} ]] || { rm -f "$RUN_DIR/limits" && return 0; }
    : >"$RUN_DIR/limits"
    have=$(tc qdisc show dev "$BRIDGE") || return 1
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
        printf -v hex '%02x' "${JOB_CLASS[$id]}"
        class=$HTB_HANDLE:${hex#0}
        inside="dev $BRIDGE parent $class handle 53$hex:"
        if ((rate < SPLIT_BELOW_BPS)); then
            split=" $inside tbf rate ${rate}bit burst $((2 * (LINK_MTU + 18)))"
            split+=" limit $((rate / 80 > 262144 ? rate / 80 : 262144))"
            rate=$((2 * rate))
        else
            split=''
            [[ $have != *"tbf 53$hex: "* ]] || batch+="qdisc del $inside"$'\n'
        fi
        burst=$((rate / 800))
        ((burst >= LINK_MTU + 18)) || burst=$((LINK_MTU + 18))
        ((burst <= 100000000)) || burst=100000000
        batch+="class replace dev $BRIDGE parent $HTB_HANDLE: classid $class htb rate ${rate}bit"
        batch+=" burst $burst cburst $burst quantum 20000"$'\n'
        batch+=${split:+"qdisc replace$split"$'\n'}
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

NEW_CLASSES=() # of the jobs that begin
NO_SWITCH=0    # 1: where ovs-vswitchd has ended, so have its rows, and that is fine
TRASH=()       # files that are needed no more

# Make everything as the files say. Call it with the lock and after load_jobs. With no jobs, nothing
# of ours stays. Where something does not work, WHY says what, and this fails.
apply_jobs() { make_jobs && sweep; }

# As apply_jobs; call `sweep` later, which removes the files of what has gone.
make_jobs() {
    local id limited='' said text=$RUN_DIR/.text
    WHY='' TRASH+=("$text")
    if ! read_link "$BRIDGE" && [[ ${#JOB_IDS[@]} -gt 0 ]]; then
        WHY="there is no device $BRIDGE"
        return 1
    fi
    # A file in memory costs no process, as a pipe would.
    if [[ ${#JOB_IDS[@]} -eq 0 ]]; then
        no_marking_rules 2>/dev/null >"$text" || { WHY="cannot write $text" && return 1; }
        attempt nft -f - <"$text" || return 1
    else
        for id in "${JOB_IDS[@]}"; do
            [[ -z ${JOB_CGROUP[$id]}${JOB_ADOPTED[$id]} ]] || { find_cgroup2 || true && break; }
        done
        make_cgroups 2>/dev/null || { WHY="cannot make a cgroup" && return 1; }
        load_rules "$text" || return 1
    fi
    for id in ${JOB_IDS[@]+"${JOB_IDS[@]}"}; do
        [[ -z ${JOB_MAX_RATE[$id]} ]] || limited+="${JOB_CLASS[$id]} "
    done
    if [[ -n $limited || -e $RUN_DIR/limits ]]; then
        said=$(apply_limits "$limited" 2>&1 >/dev/null) || {
            WHY="tc: ${said%%$'\n'*}"
            return 1
        }
    fi
    if [[ -S $OVS_RUNDIR/$BRIDGE.mgmt ]]; then
        declarations 2>/dev/null >"$text" || { WHY="cannot write $text" && return 1; }
        attempt ovs-ofctl -O OpenFlow15 --timeout=10 bundle "$BRIDGE" - <"$text" ||
            { ((NO_SWITCH)) && [[ $WHY == *'Connection refused'* ]]; } || return 1
    elif [[ ${#JOB_IDS[@]} -gt 0 ]]; then
        WHY="Open vSwitch has no bridge $BRIDGE"
        return 1
    fi
    clear_left || return 1
    printf '%s\n' "$LINK_INDEX $LINK_MAC" >"$RUN_DIR/applied"
}

# attempt PROGRAM...: where it fails, WHY is the first line of what it said.
attempt() {
    local said
    said=$(exec "$@" 2>&1 >/dev/null) && return 0
    said=${said%%$'\n'*}
    WHY="$1: ${said#"$1: "}"
    return 1
}

# Remove files that are needed no more, with one call.
sweep() {
    [[ ${#TRASH[@]} -eq 0 ]] || rm -f "${TRASH[@]}"
    TRASH=()
}

# What has gone, and what killed scripts have left.
clear_left() {
    local left file class cgroup
    for left in ${LEFT[@]+"${LEFT[@]}"}; do
        read -r file class cgroup <<<"$left"
        [[ -z $cgroup ]] || remove_cgroup "$cgroup" || {
            WHY="cannot empty the cgroup $cgroup"
            return 1
        }
        TRASH+=("$RUN_DIR/$file")
    done
    [[ ! -e $RUN_DIR/.part ]] || TRASH+=("$RUN_DIR/.part")
}
