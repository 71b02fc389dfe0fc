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
    if [[ ${#JOB_IDS[@]} -gt 0 || $rows == *reg7=* ]]; then carry_out_orders "$rows"; fi
}

# ---- repairs

repair_jobs() {
    ((EPOCHSECONDS >= REPAIR_NOT_BEFORE_S)) || return 0
    # A script that is at work has not finished yet.
    [[ -d $RUN_DIR ]] && flock -n "$RUN_DIR" true || return 0
    # It may have finished since the files were read.
    load_jobs
    ! are_right || return 0
    echo "jobs: marks or declarations are not as they should be: made again"
    if job_script job-begin --repair; then
        REPAIR_PAUSE_S=1
    else
        REPAIR_NOT_BEFORE_S=$((EPOCHSECONDS + REPAIR_PAUSE_S))
        REPAIR_PAUSE_S=$((REPAIR_PAUSE_S < MOST_PAUSE_S ? 2 * REPAIR_PAUSE_S : MOST_PAUSE_S))
    fi
}

# Whether what this host has is what the files say, as far as can be seen cheaply.
are_right() {
    local id rows wanted='' have='' before='' line by_group=no
    ((${#LEFT[@]} == 0)) || return 1
    [[ ${#JOB_IDS[@]} -gt 0 ]] || return 0
    read_link "$BRIDGE" || return 0 # nothing can be done before the device is back
    read -r before 2>/dev/null <"$RUN_DIR/applied" || true
    [[ $before == "$LINK_INDEX $LINK_MAC" ]] || return 1
    rows=$(ofctl --timeout=2 --no-names --no-stats dump-flows "$BRIDGE" \
        "table=$DECLARATIONS" 2>/dev/null) || return 0
    for id in "${JOB_IDS[@]}"; do
        wanted+="$JOB_COOKIE${JOB_HASH[$id]} ${JOB_CLASS[$id]}"$'\n'
        [[ -z ${JOB_CGROUP[$id]} ]] || by_group=yes
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
    for id in ${JOB_IDS[@]+"${JOB_IDS[@]}"}; do
        [[ -z ${ordered[$id]-} ]] || continue
        json_value source "${JOB_TEXT[$id]}"
        [[ $VALUE == order ]] || continue
        has_canary || return 0
        echo "jobs: the order of job $id has gone"
        job_script job-end --id "$id" --if-known || true
        unset "ORDER_TEXT[$id]"
    done
}

has_canary() {
    [[ $(ofctl --timeout=2 --no-stats dump-flows "$BRIDGE" table=249 2>/dev/null) == *actions=* ]]
}

# carry_out ID TEXT: begin the job of an order, or change it. What failed is tried again later.
carry_out() {
    local id=$1 change=()
    [[ ${ORDER_TEXT[$id]-} != "$2" || -z ${JOB_CLASS[$id]-} ]] || return 0
    if [[ ${ORDER_TEXT[$id]-} == "$2" || -z ${ORDER_TEXT[$id]-} ]]; then
        ((EPOCHSECONDS >= ${ORDER_NOT_BEFORE_S[$id]:-0})) || return 0
    fi
    if [[ -n ${JOB_CLASS[$id]-} ]]; then
        json_value source "${JOB_TEXT[$id]}"
        if [[ $VALUE == host ]]; then # the host's job manager has said the same
            ORDER_TEXT[$id]=$2
            return 0
        fi
        change=(--change)
    fi
    echo "jobs: the controller orders job $id"
    if job_script job-begin --order "${ORDER_ARGUMENTS[@]}" ${change[@]+"${change[@]}"}; then
        ORDER_TEXT[$id]=$2 ORDER_PAUSE_S[$id]=1
    else
        unset "ORDER_TEXT[$id]"
        ORDER_NOT_BEFORE_S[$id]=$((EPOCHSECONDS + ${ORDER_PAUSE_S[$id]:-1}))
        ORDER_PAUSE_S[$id]=$((2 * ${ORDER_PAUSE_S[$id]:-1}))
        ((ORDER_PAUSE_S[$id] <= MOST_PAUSE_S)) || ORDER_PAUSE_S[$id]=$MOST_PAUSE_S
    fi
    # No more is remembered than a host can have orders.
    if ((${#ORDER_PAUSE_S[@]} > 1000)); then ORDER_PAUSE_S=() ORDER_NOT_BEFORE_S=(); fi
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
