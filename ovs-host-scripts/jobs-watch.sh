# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2004,SC2034,SC2153 # the files that source each other share these
# Part of host-watch, which sources it after jobs.sh and jobs-declare.sh: keep what this host marks
# and declares as the files of jobs say, and carry out the controller's orders.
#
# Marks go when somebody flushes the firewall. Declarations go when ovs-vswitchd ends, and with them
# on netdev the bridge's device. A killed script leaves a file. `job-begin --repair` puts all of
# that right.

readonly MOST_PAUSE_S=30
declare -A ORDER_TEXT=() # what was carried out, by the job's id
declare -A ORDER_NOT_BEFORE_S=() ORDER_PAUSE_S=()
# Why the last try of an order failed, by the job's id: the note for the controller, in hex.
# FAILED_TOLD is what the bridge holds of them, as far as is known.
declare -A ORDER_FAILED=()
readonly MOST_FAILED=64 MOST_WHY=200
FAILED_TOLD=unknown
REPAIR_NOT_BEFORE_S=0 REPAIR_PAUSE_S=1

# Call it once a second. Nothing that goes wrong ends host-watch.
watch_jobs() {
    local rows
    [[ -S $OVS_RUNDIR/$BRIDGE.mgmt ]] || return 0
    # The rows of a switch that does not answer are not known.
    rows=$(ofctl --timeout=2 --no-names --no-stats dump-flows "$BRIDGE" "table=$ANSWERS" 2>&1) ||
        return 0
    load_jobs
    if [[ ${#JOB_IDS[@]} -gt 0 || ${#LEFT[@]} -gt 0 ]]; then repair_jobs; fi
    if [[ ${#JOB_IDS[@]} -gt 0 || ${#ORDER_FAILED[@]} -gt 0 || $rows == *reg7=* ]]; then
        carry_out_orders "$rows"
    fi
    tell_failed
}

# ---- repairs

repair_jobs() {
    ((EPOCHSECONDS >= REPAIR_NOT_BEFORE_S)) || return 0
    # A script that is at work has not finished yet.
    [[ -d $RUN_DIR ]] && flock -n "$RUN_DIR" true || return 0
    # It may have finished since the files were read.
    load_jobs
    ! are_right || return 0
    say "jobs: marks or declarations are not as they should be: made again"
    if relayed job-begin --repair; then
        REPAIR_PAUSE_S=1
    else
        REPAIR_NOT_BEFORE_S=$((EPOCHSECONDS + REPAIR_PAUSE_S))
        REPAIR_PAUSE_S=$((REPAIR_PAUSE_S < MOST_PAUSE_S ? 2 * REPAIR_PAUSE_S : MOST_PAUSE_S))
    fi
}

# Whether what this host has is what the files say, as far as can be seen cheaply.
are_right() {
    local id group rows wanted='' have='' before='' line by_group=no
    ((${#LEFT[@]} == 0)) || return 1
    [[ ${#JOB_IDS[@]} -gt 0 ]] || return 0
    read_link "$BRIDGE" || return 0 # nothing can be done before the device is back
    read -r before 2>/dev/null <"$RUN_DIR/applied" || true
    [[ $before == "$LINK_INDEX $LINK_MAC" ]] || return 1
    rows=$(ofctl --timeout=2 --no-names --no-stats dump-flows "$BRIDGE" \
        "table=$DECLARATIONS" 2>/dev/null) || return 0
    for id in "${JOB_IDS[@]}"; do
        wanted+="$JOB_COOKIE${JOB_HASH[$id]} ${JOB_CLASS[$id]}"$'\n'
        # Nothing is marked of a job whose cgroup its owner has removed.
        [[ -z ${JOB_CGROUP[$id]} ]] || by_group=yes
        group=${JOB_ADOPTED[$id]%%/\**}
        [[ $group != /* || ! -d $group ]] || by_group=yes
    done
    while read -r line; do
        [[ $line =~ cookie=(${JOB_COOKIE}[0-9a-f]{12}),.*priority=([0-9]+) ]] || continue
        have+="${BASH_REMATCH[1]} ${BASH_REMATCH[2]}"$'\n'
    done <<<"$rows"
    if [[ $have != "$wanted" ]]; then # Open vSwitch has an order of its own
        [[ $(sort <<<"$have") == "$(sort <<<"$wanted")" ]] || return 1
    fi
    nft list chain netdev "$JOB_TABLE" no_job >/dev/null 2>&1 || return 1
    [[ $by_group == no ]] || nft list chain inet "$JOB_TABLE" through >/dev/null 2>&1 || return 1
    [[ ! -e $RUN_DIR/limits || $(tc qdisc show dev "$BRIDGE" root) == *' 524a:'* ]]
}

# ---- orders

carry_out_orders() { # carry_out_orders ROWS
    local line id unreadable=no source
    local -A ordered=()
    while read -r line; do
        [[ $line =~ priority=([0-9]+),.*\ actions=note:([0-9a-f.]+)$ ]] || continue
        ((BASH_REMATCH[1] >= 1000)) || continue
        if ! from_hex "${BASH_REMATCH[2]}" || ! read_order "$TEXT"; then
            unreadable=yes
            continue
        fi
        ordered[$ORDER_ID]=yes
        carry_out "$ORDER_ID" "$TEXT"
    done <<<"$1"
    # A controller that is not there, or has only begun, has given no order up.
    [[ $unreadable == no ]] || return 0
    for id in "${!ORDER_FAILED[@]}"; do
        [[ -n ${ordered[$id]-} ]] || unset "ORDER_FAILED[$id]"
    done
    for id in ${JOB_IDS[@]+"${JOB_IDS[@]}"}; do
        [[ -z ${ordered[$id]-} ]] || continue
        json_value source "${JOB_TEXT[$id]}"
        [[ $VALUE == order ]] || continue
        has_canary || return 0
        say "jobs: the order of job $id has gone"
        relayed job-end --id "$id" --if-known || true
        unset "ORDER_TEXT[$id]"
    done
}

has_canary() {
    [[ $(ofctl --timeout=2 --no-stats dump-flows "$BRIDGE" table=249 2>/dev/null) == *actions=* ]]
}

# carry_out ID TEXT: begin the job of an order, or change it. What failed is tried again later.
carry_out() {
    local id=$1 said change=()
    [[ ${ORDER_TEXT[$id]-} != "$2" || -z ${JOB_CLASS[$id]-} ]] || return 0
    if [[ ${ORDER_TEXT[$id]-} == "$2" || -z ${ORDER_TEXT[$id]-} ]]; then
        ((EPOCHSECONDS >= ${ORDER_NOT_BEFORE_S[$id]:-0})) || return 0
    fi
    if [[ -n ${JOB_CLASS[$id]-} ]]; then
        json_value source "${JOB_TEXT[$id]}"
        if [[ $VALUE == host ]]; then
            ORDER_TEXT[$id]=$2
            note_failed "$id" "this host's job manager has begun a job with this id"
            return 0
        fi
        change=(--change)
    fi
    say "jobs: the controller orders job $id"
    if said=$(job_script job-begin --order "${ORDER_ARGUMENTS[@]}" ${change[@]+"${change[@]}"} \
        2>&1); then
        ORDER_TEXT[$id]=$2 ORDER_PAUSE_S[$id]=1
        unset "ORDER_FAILED[$id]"
    else
        unset "ORDER_TEXT[$id]"
        note_failed "$id" "$said"
        ORDER_NOT_BEFORE_S[$id]=$((EPOCHSECONDS + ${ORDER_PAUSE_S[$id]:-1}))
        ORDER_PAUSE_S[$id]=$((2 * ${ORDER_PAUSE_S[$id]:-1}))
        ((ORDER_PAUSE_S[$id] <= MOST_PAUSE_S)) || ORDER_PAUSE_S[$id]=$MOST_PAUSE_S
    fi
    relay_text "$said"
    # No more is remembered than a host can have orders.
    if ((${#ORDER_PAUSE_S[@]} > 1000)); then ORDER_PAUSE_S=() ORDER_NOT_BEFORE_S=(); fi
}

# note_failed ID SAID: remember why an order could not be carried out, which is the last line of
# what job-begin said. The controller takes MOST_WHY characters of printable ASCII.
note_failed() {
    local LC_ALL=C why=${2##*$'\n'} hex
    why=${why#job-begin: }
    why=${why:-job-begin has failed}
    why=${why//[^ -~]/?}
    why=${why:0:MOST_WHY}
    why=${why//\\/\\\\}
    why="{\"v\":1,\"id\":\"$1\",\"failed\":true,\"why\":\"${why//\"/\\\"}\"}"
    hex=$(od -An -v -tx1 -w4096 <<<"$why")
    hex=${hex# }
    hex=${hex% 0a} # the end of the line
    ORDER_FAILED[$1]=${hex// /.}
}

# Have a row in the bridge for each order that failed, and no other. A row goes when ovs-vswitchd
# ends, and one may be there that a killed host-watch has left.
tell_failed() {
    local id line there number=0 wanted='' rows=''
    local -a held=()
    for id in "${!ORDER_FAILED[@]}"; do
        ((number < MOST_FAILED)) || break
        wanted+="$number ${ORDER_FAILED[$id]}"$'\n'
        rows+="flow add cookie=${FAILED_COOKIE}000000000000,table=$DECLARATIONS,"
        rows+="priority=$((1000 + number)),in_port=LOCAL,reg6=0,reg7=$number,"
        rows+="actions=note:${ORDER_FAILED[$id]}"$'\n'
        number=$((number + 1))
    done
    [[ -n $wanted || $FAILED_TOLD != "$wanted" ]] || return 0
    FAILED_TOLD=unknown
    there=$(ofctl --timeout=2 --no-names --no-stats dump-flows "$BRIDGE" \
        "cookie=${FAILED_COOKIE}000000000000/0xffff000000000000,table=$DECLARATIONS" \
        2>/dev/null) || return 0
    while read -r line; do
        [[ $line =~ priority=([0-9]+),.*\ actions=note:([0-9a-f.]+)$ ]] || continue
        number=$((BASH_REMATCH[1] - 1000)) line=${BASH_REMATCH[2]}
        while [[ $line == *.00 ]]; do line=${line%.00}; done
        ((number >= 0)) || number=$MOST_FAILED # none of ours, so all are made anew
        held[number]="$number $line"
    done <<<"$there"
    there=''
    [[ ${#held[@]} -eq 0 ]] || printf -v there '%s\n' "${held[@]}"
    if [[ $there != "$wanted" ]]; then
        {
            echo "flow delete cookie=${FAILED_COOKIE}000000000000/0xffff000000000000," \
                "table=$DECLARATIONS"
            printf '%s' "$rows"
            echo "packet-out in_port=LOCAL,packet=$NUDGE,actions=CONTROLLER"
        } | ofctl --timeout=2 bundle "$BRIDGE" - >/dev/null 2>&1 || return 0
    fi
    FAILED_TOLD=$wanted
}

# As job_script, with its lines as messages.
relayed() {
    local said status=0
    said=$(job_script "$@" 2>&1) || status=$?
    relay_text "$said"
    return "$status"
}

relay_text() {
    local line
    while IFS= read -r line; do [[ -z $line ]] || relay "$line"; done <<<"$1"
}

# The scripts check everything that an order says.
job_script() { # job_script SCRIPT ARGUMENT...
    env -i PATH="$PATH" "$HERE/$1" "${@:2}" --bridge "$BRIDGE" ${DB:+--db "$DB"} \
        --run-dir "$RUN_DIR" --cgroup-root "$CGROUP_ROOT" </dev/null
}

# read_order TEXT: set ORDER_ID, and ORDER_ARGUMENTS to job-begin's. Fails when it is no order. No
# value of an order has a blank, a quote or a backslash in it.
read_order() {
    local body key value word order=no version='' list='\["[^"\\]*"(,"[^"\\]*")*\]'
    local table="\\{\"dscp\":[0-9]{1,2},\"paths\":$list\\}" values
    values="\"[^\"\\]*\"|[0-9.]{1,32}|true|null|\[\]|$list|\[$table(,$table)*\]"
    ORDER_ID='' ORDER_ARGUMENTS=()
    body=${1//[[:space:]]/}
    [[ $body =~ ^\{(.*)\}$ ]] || return 1
    body=,${BASH_REMATCH[1]}
    while [[ -n $body ]]; do
        [[ $body =~ ^,\"([a-z_]{1,16})\":($values) ]] || return 1
        key=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
        body=${body:${#BASH_REMATCH[0]}}
        word=${value#[}
        word=${word%]}
        word=${word//\"/}
        [[ -n $word && $value != null ]] || continue
        case $key in
        v) version=$value ;;
        order) order=$value ;;
        user | source) ;;
        id) ORDER_ID=$word && ORDER_ARGUMENTS+=(--id "$word") ;;
        uid) ORDER_ARGUMENTS+=(--user "$word") ;;
        hosts | policy | paths) ORDER_ARGUMENTS+=("--$key" "$word") ;;
        tables)
            while [[ $value =~ \{\"dscp\":([0-9]+),\"paths\":\[([^]]*)\] ]]; do
                value=${value#*"${BASH_REMATCH[0]}"}
                ORDER_ARGUMENTS+=(--table "${BASH_REMATCH[1]}=${BASH_REMATCH[2]//\"/}")
            done
            ;;
        services)
            for word in ${word//,/ }; do ORDER_ARGUMENTS+=(--service "$word"); done
            ;;
        min_rate_bps) ORDER_ARGUMENTS+=(--min-rate "$word") ;;
        max_rate_bps) ORDER_ARGUMENTS+=(--max-rate "$word") ;;
        begin_s) ORDER_ARGUMENTS+=(--begin "$word") ;;
        end_s) ORDER_ARGUMENTS+=(--until "$word") ;;
        *) return 1 ;;
        esac
    done
    [[ $order == true && $version == 1 && $ORDER_ID =~ ^$JOB_ID_WORD$ ]]
}
