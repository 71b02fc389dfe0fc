# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by Slurm's prolog and epilog and by reconcile: ri2n.conf, messages, the folder of each job.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck source=ovs-host-scripts/common.sh
source "$HERE/../common.sh" || {
    # A prolog or epilog that fails would drain the node.
    logger -t ri2n-slurm -p daemon.err -- "$0: the host scripts are not in ${HERE%/*}: install them"
    exit 0
}
LOG_NAME=ri2n.slurm.$PROGRAM

# Longer options are refused; spank_ri2n.c refuses them, too.
readonly MAX_OPTION_BYTES=1024
# A declaration is at most 16 KiB, so it cannot name more hosts than this.
readonly MAX_HOSTS=4096
# Slurm ends a prolog or epilog that hangs, and drains the node. So nothing here may hang.
readonly CALL_LIMIT_S=8 ASK_LIMIT_S=2
# Slurm lets processes end after their time limit (KillWait), and then the epilog ends the job.
readonly END_SLACK_S=60
# All scripts of a node together write so many messages at once, and later one in so many seconds.
# So nobody fills the disk by jobs that fail. Each job has processes of its own, so the count is in
# a file.
readonly MAX_BURST=100 REFILL_S=3
# A message in JSON is written in one piece, and syslog takes it whole.
MAX_MESSAGE=600

# ri2n.conf, in the order of the file that comes with the scripts
# shellcheck disable=SC2034 # the scripts that read this file use it
WAIT_S=0
DEFAULT_POLICY=
MARK_BY=auto
ID_PREFIX=slurm-
LOG=
STATE_DIR=/run/ri2n/slurm
SCRIPTS=
BRIDGE=
DB=
RUN_DIR=
JOB_CONFIG=

TO_STDERR=no # whether messages go to standard error, too; to a terminal they always do

# report LEVEL TEXT [JOB]: a line for the administrator, to syslog, to the file of `log`, and to a
# terminal if there is one. LEVEL is info, warning or error. JOB is the job that TEXT names; without
# it the message is about the job of prolog and epilog, if there is one.
report() {
    local depth=1 text=$2 job=${3:-${SLURM_JOB_ID-}}
    # The place that is told is that of who has found the trouble.
    while [[ ${FUNCNAME[depth]} =~ ^(trouble|refuse|tell)$ ]]; do depth=$((depth + 1)); done
    [[ -n ${3-} || -z $job ]] || text="job $job: $text"
    [[ $job =~ ^[0-9]{1,10}$ ]] || job=''
    take_turn || return 0
    tell_left_out "$LEFT_OUT"
    write_report "$1" "$text" "${BASH_SOURCE[depth]##*/}:${BASH_LINENO[depth - 1]}" '' "$job"
    return 0
}

tell_left_out() { # tell_left_out COUNT
    (($1 == 0)) ||
        write_report warning "$1 more messages were left out: too many came at once" '' "$1" ''
}

write_report() { # write_report LEVEL TEXT PLACE LEFT-OUT JOB
    local line priority=notice LOG_AS=$LOG_FORMAT LC_ALL=C
    case $1 in
    warning) priority=warning ;;
    error) priority=err ;;
    esac
    printable "$2"
    line="$PROGRAM: $PRINTABLE"
    if [[ $LOG_FORMAT == json ]]; then
        json_event "$1" "$PRINTABLE" "$3" "$4" "$5"
        line=$EVENT
    fi
    logger --size 4096 -t ri2n-slurm -p "daemon.$priority" -- "$line" 2>/dev/null
    if [[ -n $LOG ]]; then
        local stamp=''
        [[ $LOG_FORMAT == json ]] || printf -v stamp '%(%F %T)T ' -1
        printf '%s\n' "$stamp$line" 2>/dev/null >>"$LOG"
    fi
    if [[ -t 2 || $TO_STDERR == yes ]]; then printf '%s\n' "$line" >&2; fi
}

# take_turn: whether one more message may be written; else it is counted. Sets LEFT_OUT to how many
# were left out before it. Where the count cannot be kept, every message is written.
take_turn() {
    local turns='' filled_s='' left='' grown result=0
    LEFT_OUT=0
    { make_state_dir && exec 6<>"$STATE_DIR/.said" && flock -w 1 6; } 2>/dev/null || return 0
    read -r turns filled_s left <&6
    if [[ ! "$turns $filled_s $left" =~ ^[0-9]{1,3}\ [1-9][0-9]{0,11}\ [0-9]{1,9}$ ]] ||
        ((filled_s > EPOCHSECONDS)); then # it is the first, or the clock was set back
        turns=$MAX_BURST filled_s=$EPOCHSECONDS left=${left//[!0-9]/}
    fi
    turns=$((10#$turns)) left=$((10#0${left:0:9}))
    grown=$(((EPOCHSECONDS - filled_s) / REFILL_S))
    filled_s=$((filled_s + grown * REFILL_S))
    turns=$((turns + grown < MAX_BURST ? turns + grown : MAX_BURST))
    if ((turns > 0)); then
        turns=$((turns - 1)) LEFT_OUT=$left left=0
    else
        left=$((left + 1)) result=1
    fi
    printf '%d %d %d\n' "$turns" "$filled_s" "$left" 2>/dev/null >"$STATE_DIR/.said"
    exec 6>&-
    return "$result"
}

# The file is beside slurm.conf, or in /etc/slurm where Slurm has its configuration from the
# network.
config_file() {
    local file=${SLURM_CONF:+${SLURM_CONF%/*}/ri2n.conf}
    if [[ -n $file && -e $file ]]; then echo "$file"; else echo /etc/slurm/ri2n.conf; fi
}

# fits VALUE REGEX WHY: whether a value is right; sets WHY when it is not.
fits() {
    [[ $1 =~ $2 ]] || {
        WHY=$3
        return 1
    }
}

# set_key KEY VALUE: take one line of the file. Sets WHY and fails when it is wrong.
# shellcheck disable=SC2034 # the scripts that read this file use what it sets
set_key() {
    local value=$2
    case $1 in
    wait)
        fits "$value" '^([0-9]|[1-5][0-9]|60)$' "must be 0 to 60 seconds" && WAIT_S=$value
        ;;
    default-policy)
        [[ $value == *=* ]] || value=policy=$value
        wish_to_arguments "$value" && DEFAULT_POLICY=$value
        ;;
    mark-by)
        fits "$value" '^(auto|cgroup|slurm-cgroup|uid)$' \
            "must be auto, cgroup, slurm-cgroup or uid" && MARK_BY=$value
        ;;
    log-format) fits "$value" '^(text|json)$' "must be text or json" && LOG_FORMAT=$value ;;
    id-prefix)
        fits "$value" '^[a-z][a-z0-9_-]{0,30}$' "must be lower-case letters, digits, - and _" &&
            ID_PREFIX=$value
        ;;
    bridge)
        fits "$value" '^[a-zA-Z][a-zA-Z0-9_-]{0,14}$' "must be the name of a device" &&
            BRIDGE=$value
        ;;
    db) fits "$value" '^unix:/[^[:space:]]+$' "must be unix:/PATH" && DB=$value ;;
    log | state-dir | scripts | run-dir | config)
        fits "$value" '^/[^[:space:]]+$' "must be an absolute path without spaces" || return 1
        case $1 in
        log) LOG=$value ;;
        state-dir) STATE_DIR=$value ;;
        scripts) SCRIPTS=$value ;;
        run-dir) RUN_DIR=$value ;;
        config) JOB_CONFIG=$value ;;
        esac
        ;;
    *)
        WHY="unknown key"
        return 1
        ;;
    esac
}

# read_config FILE: set CONFIG_TROUBLE to one line when the file is wrong, else to nothing. All
# lines are read, so that `wait` holds even when another line is wrong. Without the file the
# defaults hold.
read_config() {
    local key value number=0 seen=' '
    CONFIG_TROUBLE=
    SCRIPTS=$(cd "$HERE/.." && pwd)
    [[ -e $1 ]] || return 0
    while read -r key value || [[ -n $key ]]; do
        number=$((number + 1))
        [[ -n $key && $key != \#* ]] || continue
        WHY=
        if [[ $seen == *" $key "* ]]; then
            WHY="is there twice"
        elif [[ -z $value ]]; then
            WHY="has no value"
        else
            set_key "$key" "$value"
        fi
        seen+="$key "
        [[ -z $WHY || -n $CONFIG_TROUBLE ]] || CONFIG_TROUBLE="$1:$number: $key: $WHY"
    done <"$1" || CONFIG_TROUBLE="$1: cannot be read"
}

# wish_to_arguments TEXT: turn the option of --ri2n into ARGUMENTS of job-begin. Sets WHY and fails
# when it is wrong. The text comes from a user, and the plugin may not have seen it. job-begin
# checks the values.
wish_to_arguments() {
    local words word key value part parts
    ARGUMENTS=()
    ((${#1} <= MAX_OPTION_BYTES)) || {
        WHY="is longer than $MAX_OPTION_BYTES bytes"
        return 1
    }
    fits "$1" '^[][A-Za-z0-9_.:/@+=,-]+$' "has characters that it cannot have" || return 1
    IFS=, read -ra words <<<"$1"
    for word in "${words[@]}"; do
        fits "$word" '^[a-z-]+=.+$' "${word:-(empty)}: must be KEY=VALUE" || return 1
        key=${word%%=*} value=${word#*=}
        case $key in
        policy | min-rate | max-rate) ARGUMENTS+=("--$key" "$value") ;;
        paths | table) ARGUMENTS+=("--$key" "${value//+/,}") ;;
        service)
            IFS=+ read -ra parts <<<"$value"
            for part in "${parts[@]}"; do ARGUMENTS+=(--service "$part"); done
            ;;
        *)
            WHY="unknown $key"
            return 1
            ;;
        esac
    done
}

readonly ITEM='^(([^][,]|\[[0-9,-]+])+)(,(.+))?$' BRACKETS='^([^][]*)\[([0-9,-]+)](.*)$'

# expand_hosts LIST: set HOSTS to the names of a list of Slurm, such as n[1-3,08-10]-ib,m1. No
# daemon is asked, and the order is that of the list. Fails for anything else, and for more than
# MAX_HOSTS names.
expand_hosts() {
    local rest=$1 item
    HOSTS=()
    [[ $rest =~ ^[][A-Za-z0-9._,-]+$ ]] || return 1
    while [[ -n $rest ]]; do
        # up to the next comma outside brackets
        [[ $rest =~ $ITEM ]] || return 1
        item=${BASH_REMATCH[1]} rest=${BASH_REMATCH[4]}
        expand_item "$item" || return 1
    done
    ((${#HOSTS[@]}))
}

# expand_item ITEM: add the names of one item, which may have several pairs of brackets.
expand_item() {
    local before range low high width number after
    if [[ ! $1 =~ $BRACKETS ]]; then
        HOSTS+=("$1")
        ((${#HOSTS[@]} <= MAX_HOSTS))
        return
    fi
    before=${BASH_REMATCH[1]} after=${BASH_REMATCH[3]}
    for range in ${BASH_REMATCH[2]//,/ }; do
        [[ $range =~ ^([0-9]{1,9})(-([0-9]{1,9}))?$ ]] || return 1
        low=${BASH_REMATCH[1]} high=${BASH_REMATCH[3]:-${BASH_REMATCH[1]}} width=${#low}
        ((10#$high - 10#$low < MAX_HOSTS)) || return 1
        for ((number = 10#$low; number <= 10#$high; number++)); do
            printf -v item '%s%0*d%s' "$before" "$width" "$number" "$after"
            expand_item "$item" || return 1
        done
    done
}

# The options that all of job-begin, job-end and job-ls have.
common_arguments() {
    COMMON=()
    [[ -z $BRIDGE ]] || COMMON+=(--bridge "$BRIDGE")
    [[ -z $DB ]] || COMMON+=(--db "$DB")
    [[ -z $RUN_DIR ]] || COMMON+=(--run-dir "$RUN_DIR")
    [[ -z $JOB_CONFIG ]] || COMMON+=(--config "$JOB_CONFIG")
}

# call LIMIT_S PROGRAM ARGUMENT...: run a job script for at most that long. CALL_OUTPUT is what it
# printed, CALL_ERROR the last line of its errors; the status is its own, 124 when it took too long.
call() {
    local limit_s=$1 program=$2 status errors
    shift 2
    errors=$(mktemp "$STATE_DIR/.errors-XXXXXX") || return 1
    common_arguments
    # shellcheck disable=SC2034 # the scripts that read this file use it
    CALL_OUTPUT=$(timeout --kill-after=1 "$limit_s" "$SCRIPTS/$program" "$@" \
        ${COMMON[@]+"${COMMON[@]}"} 2>"$errors" </dev/null)
    status=$?
    CALL_ERROR=$(tail -n 1 "$errors" | tr -cd '[:print:]' | cut -c 1-300)
    rm -f "$errors"
    if ((status == 124 || status == 137)); then
        CALL_ERROR="$program took longer than $limit_s s"
    fi
    : "${CALL_ERROR:=$program ended with status $status}"
    return "$status"
}

# Set MARKS to how the packets of jobs are known. Where the unified tree is all there is, Slurm
# keeps its own cgroups in it, and a process cannot be in two of them. So a job has Slurm's there.
# shellcheck disable=SC2034 # the scripts that read this file use it
find_marks() {
    MARKS=$MARK_BY
    [[ $MARK_BY == auto ]] || return 0
    MARKS=cgroup
    [[ $(stat -f -c %T /sys/fs/cgroup 2>/dev/null) != cgroup2fs ]] || MARKS=slurm-cgroup
}

# save_call ID ARGUMENT...: note how job-begin was called, for adopt and reconcile, which call it
# again with a change. The first line is the file ri2n.conf. No argument has a line's end in it.
save_call() {
    local folder=$STATE_DIR/$1
    shift
    { printf '%s\n' "$(config_file)" "$@" >"$folder/.begun" &&
        mv -f "$folder/.begun" "$folder/begun"; } 2>/dev/null
}

# read_call FOLDER: set CALLED_CONFIG, CALLED to what save_call noted, without --until, and
# CALLED_UNTIL to the time of --until.
# shellcheck disable=SC2034 # the scripts that read this file use them
read_call() {
    local lines place
    CALLED=() CALLED_UNTIL='' CALLED_CONFIG=''
    mapfile -t lines 2>/dev/null <"$1/begun" && ((${#lines[@]})) || return 1
    CALLED_CONFIG=${lines[0]}
    for ((place = 1; place < ${#lines[@]}; place++)); do
        if [[ ${lines[place]} == --until ]]; then
            place=$((place + 1))
            CALLED_UNTIL=${lines[place]-}
        else
            CALLED+=("${lines[place]}")
        fi
    done
}

# Print the number of each job that slurmctld has, and the end of its time limit in seconds since
# 1970. The end of a job without a limit is a word. Fails when slurmctld does not answer soon.
ask_slurm() { # ask_slurm WHICH...: options of squeue that choose jobs
    SLURM_TIME_FORMAT=%s timeout --kill-after=1 "$ASK_LIMIT_S" squeue --noheader \
        --format '%A %e' "$@" 2>/dev/null </dev/null
}

# until_of END_S: set UNTIL to job-begin's option for a time limit that ends then. A job without a
# limit, or one of which nothing is known, has no end. So has one whose limit is over: the clock of
# slurmctld's host may be another one, and a wrong end is no reason to refuse a job.
# shellcheck disable=SC2034 # the scripts that read this file use it
until_of() {
    UNTIL=()
    [[ $1 =~ ^[0-9]{1,10}$ ]] && ((10#$1 > EPOCHSECONDS)) || return 0
    UNTIL=(--until $((10#$1 + END_SLACK_S)))
}

# The folder of all jobs, for root alone: its links say where the plugin moves tasks.
make_state_dir() {
    [[ -d $STATE_DIR ]] || { mkdir -p "${STATE_DIR%/*}" && mkdir -m 700 "$STATE_DIR"; } ||
        [[ -d $STATE_DIR ]] # another one has just made it
}

# forget ID: remove the folder of a job.
forget() {
    rm -f "$STATE_DIR/$1"/{cgroup,refused,node,begun,.begun,adopt,adopted,adopt-failed}
    [[ ! -d $STATE_DIR/$1 ]] || rmdir "$STATE_DIR/$1"
}

# end_job ID: end what prolog has begun; the folder stays when that fails, for reconcile.
end_job() {
    call "$CALL_LIMIT_S" job-end --id "$ID_PREFIX$1" --if-known && forget "$1"
}
