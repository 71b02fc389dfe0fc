# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2004,SC2034,SC2153 # the files that source each other share these
# Part of job-begin, job-end, job-ls and host-watch, which source it after common.sh: the jobs of
# this host as files, and their options.
#
# The files say which jobs there are. What the firewall, the bridge and the queue hold is made from
# all files together (jobs-apply.sh), each time anew. So whatever a script leaves that was killed,
# the next script of any job puts right. Names of the files:
#   job.ID        a job that has begun
#   new/job.ID    a job-begin has not finished with this job; where none runs, it was killed
#   gone/job.ID   a job-end has not finished with this job; where none runs, it was killed
#   ask/...       what a script that waits asks for (jobs-queue.sh)

# shellcheck source=ovs-host-scripts/limits.sh
source "$HERE/limits.sh"

readonly JOB_LOCK_WAIT_S=60 MAX_NOTE_BYTES=16384
# shellcheck disable=SC2034 # the scripts that read this file use them
readonly JOB_COOKIE=0x524a FAILED_COOKIE=0x524b DECLARATIONS=248 ANSWERS=247
# The frame that makes the controller look: to 03:00:00:52:49:4a, EtherType 0x88b5, "JOBS"; the
# source says nothing.
# shellcheck disable=SC2034 # jobs-apply.sh and jobs-watch.sh send it
readonly NUDGE=03000052494a02524a00000088b54a4f4253

# What the options of job-begin, job-end and job-ls say.
ID='' JOB_USER='' HOSTS='' POLICY='' PATHS='' TABLES=() SERVICES=() MIN_RATE='' MAX_RATE=''
UNTIL='' BEGIN='' BY_CGROUP=no CGROUP_PATH='' WAIT='' ORDER=no RUN_DIR='' CGROUP_ROOT=''

# What the files say, by the job's id. JOB_CGROUP is a cgroup that we make and remove. JOB_ADOPTED
# is one of somebody else, which we never empty or remove, or `later` while nobody has named it.
# Each `/*` at its end is a level: only processes at least that deep below it are the job's.
declare -A JOB_CLASS=() JOB_UID=() JOB_SERIAL=() JOB_CGROUP=() JOB_MAX_RATE=() JOB_TEXT=()
declare -A JOB_HASH=() JOB_HEX=() JOB_ADOPTED=()
declare -A UID_JOB=() # the job of each user that is marked by uid
JOB_IDS=() # in order of classes
LEFT=() LEFT_CLASSES=() # "FILE CLASS CGROUP" and the class of each file in new and gone
TAKEN=() # by class, also those of LEFT

# ---- options

# The value of an option from the environment, for job managers that set variables more easily than
# they write command lines. A command line comes before it.
job_environment() { # job_environment OPTION...
    local name variable value
    [[ -n ${!RI2N_JOB_*} ]] || return 0
    for name in "$@"; do
        variable=${name^^}
        variable=RI2N_JOB_${variable//-/_}
        value=${!variable-}
        [[ -n $value ]] || continue
        case $name in
        cgroup)
            [[ $value =~ ^(yes|no)$ ]] || die "$variable=$value: must be yes or no"
            BY_CGROUP=$value
            ;;
        tables) read -ra TABLES <<<"$value" ;;
        services) read -ra SERVICES <<<"$value" ;;
        *) job_option "$name" "$value" ;;
        esac
    done
}

job_option() { # job_option NAME VALUE
    case $1 in
    id) ID=$2 ;;
    user) JOB_USER=$2 ;;
    hosts) HOSTS=$2 ;;
    policy) POLICY=$2 ;;
    paths) PATHS=$2 ;;
    table) TABLES+=("$2") ;;
    service) SERVICES+=("$2") ;;
    min-rate) MIN_RATE=$2 ;;
    max-rate) MAX_RATE=$2 ;;
    until) UNTIL=$2 ;;
    begin) BEGIN=$2 ;;
    cgroup-path) CGROUP_PATH=$2 ;;
    wait) WAIT=$2 ;;
    config) read_host_config "$2" ;;
    bridge) BRIDGE=$2 ;;
    db) DB=$2 ;;
    run-dir) RUN_DIR=$2 ;;
    cgroup-root) CGROUP_ROOT=$2 ;;
    *) return 1 ;;
    esac
}

# The bridge and the database of host-up's file; host-up checks the rest of it.
read_host_config() {
    local key value
    [[ -r $1 && ! -d $1 ]] || die "--config $1: cannot be read"
    while read -r key value _ || [[ -n $key ]]; do
        case $key in
        bridge) BRIDGE=${value%%#*} ;;
        db) DB=${value%%#*} ;;
        esac
    done <"$1"
}

# Check the options that say where, and set what follows from them.
check_where() {
    local other=''
    check_bridge_name
    ((EUID == 0)) || die "must run as root: use sudo"
    OVS_RUNDIR=${OVS_RUNDIR:-/var/run/openvswitch}
    if [[ -n $DB ]]; then
        [[ $DB =~ ^unix:/[A-Za-z0-9_./:@+-]+$ ]] || die "--db $DB: must be unix:/PATH"
        OVS_RUNDIR=${DB#unix:}
        OVS_RUNDIR=${OVS_RUNDIR%/*}
        other=${OVS_RUNDIR//\//_}
        other=/${other//[^A-Za-z0-9_.-]/_}
    fi
    export OVS_RUNDIR
    if [[ -z $RUN_DIR && -n $DB && -z ${RI2N_JOB_RUN_DIR-} ]]; then
        RUN_DIR=$OVS_RUNDIR/ri2n-jobs/$BRIDGE # as jobs_dir
    fi
    [[ -n $RUN_DIR ]] || RUN_DIR=$(jobs_dir)
    [[ $RUN_DIR =~ ^/[A-Za-z0-9_./:@+-]*$ ]] || die "--run-dir $RUN_DIR: must be a plain path"
    [[ -n $CGROUP_ROOT ]] || CGROUP_ROOT=ri2n${other}
    [[ $CGROUP_ROOT =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,7}$ ]] ||
        die "--cgroup-root $CGROUP_ROOT: must be a plain path without a slash in front"
    # shellcheck disable=SC2034 # jobs-apply.sh uses it
    JOB_TABLE=ri2n_jobs_${BRIDGE//-/_}
}

check_id() {
    [[ -n $ID ]] || die "no job given: --id ID"
    [[ $ID =~ ^$JOB_ID_WORD$ ]] ||
        die "--id ${ID@Q}: must be 1 to 64 letters, digits and ._:-, and begin with one of the" \
            "first two"
}

# ---- files

own_run_dir() {
    if [[ ! -d $RUN_DIR ]]; then
        mkdir -p "$RUN_DIR" 2>/dev/null || die "--run-dir $RUN_DIR: cannot be made"
        chmod 700 "$RUN_DIR"
    fi
    [[ -d $RUN_DIR/ask && -d $RUN_DIR/new && -d $RUN_DIR/gone ]] ||
        mkdir -p "$RUN_DIR"/{ask,new,gone} 2>/dev/null || fail "cannot write $RUN_DIR"
}

# Only one script at a time changes this host's jobs. The lock ends with the process.
lock_jobs() { take_lock || fail "another job-begin or job-end is at work"; }

take_lock() {
    own_run_dir
    exec 8<"$RUN_DIR"
    flock -w "$JOB_LOCK_WAIT_S" 8
}

unlock_jobs() { exec 8<&-; }

# Read all files. The class of an unfinished job is left to nobody until all of that job has gone.
load_jobs() {
    local file id
    local -a by_class=()
    JOB_IDS=() LEFT=() LEFT_CLASSES=() JOB_CLASS=() JOB_UID=() JOB_SERIAL=() JOB_CGROUP=()
    JOB_MAX_RATE=() JOB_TEXT=() JOB_HASH=() JOB_HEX=() JOB_ADOPTED=() UID_JOB=() TAKEN=()
    for file in "$RUN_DIR"/{new,gone}/job.* "$RUN_DIR"/job.*; do
        [[ -f $file ]] || continue
        id=${file##*/job.}
        read_job "$id" "$file"
        TAKEN[${JOB_CLASS[$id]}]=yes
        if [[ $file == "$RUN_DIR/job.$id" ]]; then
            by_class[${JOB_CLASS[$id]}]=$id
            [[ -n ${JOB_CGROUP[$id]}${JOB_ADOPTED[$id]} || -z ${JOB_UID[$id]} ]] ||
                UID_JOB[${JOB_UID[$id]}]=$id
        else
            LEFT+=("${file#"$RUN_DIR/"} ${JOB_CLASS[$id]} ${JOB_CGROUP[$id]}")
            LEFT_CLASSES+=("${JOB_CLASS[$id]}")
            unset "JOB_CLASS[$id]"
        fi
    done
    JOB_IDS=(${by_class[@]+"${by_class[@]}"})
}

read_job() { # read_job ID FILE
    local line lines=()
    JOB_CLASS[$1]=0 JOB_UID[$1]='' JOB_SERIAL[$1]=0 JOB_CGROUP[$1]='' JOB_MAX_RATE[$1]=''
    JOB_TEXT[$1]='' JOB_HASH[$1]='' JOB_HEX[$1]='' JOB_ADOPTED[$1]=''
    mapfile -t lines <"$2" || true # all at once: `read` asks the kernel twice per line
    for line in ${lines[@]+"${lines[@]}"}; do
        case $line in
        class=[1-9] | class=[1-9][0-9]) JOB_CLASS[$1]=${line#*=} ;;
        uid=*) JOB_UID[$1]=${line#*=} ;;
        serial=*) JOB_SERIAL[$1]=${line#*=} ;;
        cgroup=*) JOB_CGROUP[$1]=${line#*=} ;;
        adopted=*) JOB_ADOPTED[$1]=${line#*=} ;;
        max_rate_bps=*) JOB_MAX_RATE[$1]=${line#*=} ;;
        declaration=*) JOB_TEXT[$1]=${line#*=} ;;
        hash=*) JOB_HASH[$1]=${line#*=} ;;
        hex=*) JOB_HEX[$1]=${line#*=} ;;
        esac
    done
}

# write_job FILE ID. Only a script that was killed leaves half a file, and then has marked nothing.
write_job() {
    local id=$2
    printf '%s\n' "class=${JOB_CLASS[$id]}" "uid=${JOB_UID[$id]}" "serial=${JOB_SERIAL[$id]}" \
        "cgroup=${JOB_CGROUP[$id]}" "adopted=${JOB_ADOPTED[$id]}" \
        "max_rate_bps=${JOB_MAX_RATE[$id]}" \
        "declaration=${JOB_TEXT[$id]}" "hash=${JOB_HASH[$id]}" "hex=${JOB_HEX[$id]}" \
        >"$1"
}

# Set FREE_CLASS to the lowest class that no job has; fails where all are taken.
free_class() {
    for ((FREE_CLASS = 1; FREE_CLASS <= MAX_CLASS; FREE_CLASS++)); do
        [[ -n ${TAKEN[FREE_CLASS]-} ]] || return 0
    done
    return 1
}

# ---- what a declaration says

# json_value KEY TEXT: set VALUE to the value of a key of a declaration that this file wrote; empty
# when it has no such key. No value has a quote in it, and only a user's name has a backslash.
json_value() {
    local word='\"[^\"]*\"' table='\{[^}]*\}'
    VALUE=''
    if [[ $2 =~ \"$1\":(\"([^\"]*)\"|[0-9.]+|\[$word(,$word)*\]|\[$table(,$table)*\]) ]]; then
        VALUE=${BASH_REMATCH[1]}
        if [[ $VALUE == \"* ]]; then VALUE=${BASH_REMATCH[2]//\\\\/\\}; fi
    fi
}

# json_list WORDS: set LIST to a JSON list of words with commas between them. No word needs quoting.
json_list() { LIST="[\"${1//,/\",\"}\"]"; }

# encode FILE...: set HASHES to the checksums of files of one line each, and HEXES to the bytes of
# the lines as hex digits with dots between them. Two processes for all files take less time than a
# loop over one line.
encode() {
    local place text
    text=$(sha256sum "$@") || return 1
    mapfile -t HASHES <<<"$text"
    for place in "${!HASHES[@]}"; do HASHES[place]=${HASHES[place]:0:12}; done
    text=$(od -An -v -tx1 -w4096 "$@") || return 1
    text=${text//$'\n'/}
    mapfile -t HEXES <<<"${text// 0a/$'\n'}"
    HEXES=("${HEXES[@]# }")
    HEXES=("${HEXES[@]// /.}")
}

# from_hex HEX: set TEXT to the text of hex digits with dots between them, without zero bytes.
from_hex() {
    local hex=${1//./}
    TEXT=''
    [[ $hex =~ ^([0-9a-fA-F][0-9a-fA-F])*$ ]] || return 1
    while [[ $hex == *00 ]]; do hex=${hex%00}; done
    ((${#hex} <= 2 * MAX_NOTE_BYTES)) || return 1
    # A note that has a zero byte in its middle is none of ours.
    [[ ! $hex =~ ^(..)*00 ]] || return 1
    # shellcheck disable=SC2001 # a loop over 32,000 digits would be slow
    [[ -z $hex ]] || printf -v TEXT '%b' "$(sed 's/../\\x&/g' <<<"$hex")"
}
