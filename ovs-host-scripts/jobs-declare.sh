# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2004,SC2034,SC2153 # the files that source each other share these
# Part of job-begin, job-ls and host-watch, which source it after jobs.sh: what a declaration says,
# and what the controller answers.

MAX_RATE_BPS_WANTED='' MIN_RATE_BPS_WANTED='' END_S='' FOR_S=''
declare -A ANSWER_STATE=() ANSWER_WHY=()

# ---- checks: every mistake of the user is found before anything is changed

check_arguments() {
    local word dscp seen=' '
    [[ -n $JOB_USER ]] || die "no user given: --user NAME"
    [[ $JOB_USER =~ ^$USER_WORD$ ]] || die "--user ${JOB_USER@Q}: not the name of a user"
    [[ -z $HOSTS ]] || check_list --hosts "$HOSTS" "$HOST_WORD" "$MAX_HOSTS"
    POLICY=${POLICY:-shared}
    [[ $POLICY =~ ^$POLICY_WORD$ ]] ||
        die "--policy ${POLICY@Q}: must be shared, paths, exclusive or isolated"
    [[ -z $PATHS ]] || check_paths --paths "$PATHS"
    ((${#TABLES[@]} < MAX_TABLES)) || die "--table: there are more than $((MAX_TABLES - 1))"
    for word in ${TABLES[@]+"${TABLES[@]}"}; do
        [[ $word =~ ^([0-9]{1,2})=(.+)$ ]] || die "--table ${word@Q}: must be DSCP=NAME,..."
        dscp=$((10#${BASH_REMATCH[1]}))
        ((dscp <= MAX_DSCP)) || die "--table ${word@Q}: a DSCP is a number from 0 to $MAX_DSCP"
        [[ $seen != *" $dscp "* ]] || die "--table ${word@Q}: DSCP $dscp is there twice"
        seen+="$dscp "
        check_paths --table "${BASH_REMATCH[2]}"
    done
    [[ $POLICY != paths || -n $PATHS || ${#TABLES[@]} -gt 0 ]] ||
        die "--policy paths: --paths or --table must name at least one path"
    [[ $POLICY != shared || -z $PATHS && ${#TABLES[@]} -eq 0 ]] ||
        die "--paths: policy shared has no paths of its own (choose --policy paths)"
    ((${#SERVICES[@]} <= MAX_SERVICES)) || die "--service: there are more than $MAX_SERVICES"
    for word in ${SERVICES[@]+"${SERVICES[@]}"}; do check_service "$word"; done
    [[ $POLICY == isolated || ${#SERVICES[@]} -eq 0 ]] ||
        die "--service: policy $POLICY has none (only isolated has)"
    [[ -z $MIN_RATE ]] || { read_rate --min-rate "$MIN_RATE" && MIN_RATE_BPS_WANTED=$RATE_BPS; }
    [[ -z $MAX_RATE ]] || { read_rate --max-rate "$MAX_RATE" && MAX_RATE_BPS_WANTED=$RATE_BPS; }
    [[ -z $MIN_RATE || -z $MAX_RATE ]] || ((MIN_RATE_BPS_WANTED <= MAX_RATE_BPS_WANTED)) ||
        die "--min-rate $MIN_RATE: is above --max-rate $MAX_RATE"
    [[ -z $WAIT || $WAIT =~ ^[0-9]{1,5}$ ]] || die "--wait ${WAIT@Q}: must be a number of seconds"
    WAIT=${WAIT:+$((10#$WAIT))}
    check_times
}

check_times() {
    local begin_s
    [[ -z $BEGIN ]] ||
        [[ $BEGIN =~ ^(0|[1-9][0-9]{0,11})(\.[0-9]{1,9})?$ && ${BEGIN%.*} -le $MAX_TIME_S ]] ||
        die "--begin ${BEGIN@Q}: must be seconds since 1970"
    [[ -n $UNTIL ]] || return 0
    read_time
    begin_s=${BEGIN:-$EPOCHSECONDS}
    [[ -z $FOR_S ]] || end_after "$begin_s"
    ((${END_S%.*} > ${begin_s%.*})) || die "--until $UNTIL: is not after the job's start"
    ((${END_S%.*} <= MAX_TIME_S)) || die "--until $UNTIL: is after the year 9999"
}

# Set END_S, or FOR_S where --until counts from the start.
read_time() {
    if [[ $UNTIL =~ ^([0-9]{1,15})(\.[0-9]{1,9})?$ ]]; then
        END_S=$((10#${BASH_REMATCH[1]}))${BASH_REMATCH[2]}
    elif [[ $UNTIL =~ ^$DURATION_WORD$ || $UNTIL =~ ^\+([0-9]{1,12})(\.[0-9]{1,9})$ ]]; then
        FOR_S=$((10#${BASH_REMATCH[1]} * ${DURATION_SECONDS[${BASH_REMATCH[2]:-s}]-1}))
    else
        die "--until ${UNTIL@Q}: must be seconds since 1970, or from the start, as +90 or +2h"
    fi
}

# Count FOR_S from the start, so that the same call means the same when it is repeated.
end_after() { END_S=$((${1%.*} + FOR_S)); } # end_after BEGIN_S

check_list() { # check_list OPTION WORDS PATTERN MOST: words with commas between them, each once
    local word seen=, count=0
    [[ $2 =~ ^[^,]+(,[^,]+)*$ ]] || die "$1 ${2@Q}: must be names with commas between them"
    local IFS=,
    for word in $2; do
        [[ $word =~ ^($3)$ ]] || die "$1 ${word@Q}: not a name"
        [[ $seen != *",$word,"* ]] || die "$1 ${word@Q}: is there twice"
        seen+=$word,
        count=$((count + 1))
    done
    ((count <= $4)) || die "$1: there are more than $4 names"
}

# Names of paths: what begins with vlan: has a VLAN, and no VLAN is above MAX_VLAN.
check_paths() { # check_paths OPTION WORDS
    local word
    check_list "$1" "$2" "$PATH_NAME" "$MAX_NAMES"
    local IFS=,
    for word in $2; do
        [[ $word != vlan:* || $word =~ ^vlan:[0-9]{1,4}$ ]] || die "$1 ${word@Q}: not a name"
        [[ ! $word =~ (^vlan:|/)([0-9]+)$ ]] || ((10#${BASH_REMATCH[2]} <= MAX_VLAN)) ||
            die "$1 ${word@Q}: a VLAN is at most $MAX_VLAN"
    done
}

check_service() {
    local byte='(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])' port
    [[ $1 =~ ^($byte(\.$byte){3}|\[[0-9a-fA-F:.]{2,45}\])/(tcp|udp)/([0-9]{1,5})$ ]] ||
        die "--service ${1@Q}: must be ADDRESS/tcp/PORT or ADDRESS/udp/PORT, [...] for IPv6"
    port=$((10#${1##*/}))
    ((port >= 1 && port <= 65535)) || die "--service ${1@Q}: the port must be 1 to 65535"
    [[ $1 != \[* ]] || is_ipv6 "${1%%]*}" || die "--service ${1@Q}: not an IPv6 address"
}

# Bash cannot read IPv6 addresses. The address is one where `ip` reads it; that changes nothing.
is_ipv6() { ip -6 route show to exact "${1#[}/128" >/dev/null 2>&1; }

# read_rate OPTION TEXT: set RATE_BPS.
read_rate() {
    local part factor scale
    [[ $2 =~ ^$RATE_WORD$ ]] ||
        die "$1 ${2@Q}: must be a number with k, M or G (bit/s), as 400M or 2.5G"
    part=${BASH_REMATCH[3]} factor=1
    [[ -z ${BASH_REMATCH[4]} ]] || factor=${RATE_FACTORS[${BASH_REMATCH[4]}]}
    scale=$((10 ** ${#part}))
    RATE_BPS=$((10#${BASH_REMATCH[1]}))
    part=$((10#${part:-0} * factor))
    ((part % scale == 0)) || die "$1 $2: is no whole number of bit/s"
    # The first test keeps the product within 64 bits.
    ((RATE_BPS <= MAX_RATE_BPS / factor && (RATE_BPS = RATE_BPS * factor + part / scale) > 0 &&
        RATE_BPS <= MAX_RATE_BPS)) || die "$1 $2: must be from 1 to $MAX_RATE_BPS bit/s"
}

# Set USER_ID, and USER_NAME to the user's name. A number needs no name: a process may have any uid.
find_user() {
    local line
    local_user || line=$(getent passwd "$JOB_USER" 2>/dev/null) || line=''
    if [[ $line =~ ^([^:]+):[^:]*:([0-9]+): ]]; then
        USER_NAME=${BASH_REMATCH[1]} USER_ID=${BASH_REMATCH[2]}
        [[ $USER_NAME =~ ^$USER_WORD$ ]] || USER_NAME=$USER_ID
    elif [[ $JOB_USER =~ ^(0|[1-9][0-9]{0,9})$ && $JOB_USER -le $MAX_UID ]]; then
        USER_NAME=$JOB_USER USER_ID=$JOB_USER
    else
        die "--user $JOB_USER: there is no such user on this host"
    fi
}

# Set `line` to the user's line of /etc/passwd where this host asks that file first, as nearly all
# do, and has the user there. That is what getent would find, without a process.
local_user() {
    local text source=files number=no lines=()
    mapfile -t lines 2>/dev/null </etc/nsswitch.conf || true
    for text in ${lines[@]+"${lines[@]}"}; do
        [[ $text != passwd:* ]] || read -r source _ <<<"${text#passwd:}"
    done
    [[ $source == files ]] || return 1
    [[ ! $JOB_USER =~ ^[0-9]+$ ]] || number=yes
    mapfile -t -n 1000 lines 2>/dev/null </etc/passwd || return 1
    for line in ${lines[@]+"${lines[@]}"}; do
        text=$line
        [[ $number == no ]] || text=${line#*:*:}
        [[ $text != "$JOB_USER:"* ]] || return 0
    done
    return 1
}

# This host's name in the cluster.
own_name() {
    HOSTS=$(ovs_get bridge "$BRIDGE" other_config:dp-desc 2>/dev/null) || HOSTS=''
    [[ $HOSTS =~ ^$HOST_WORD$ ]] || die "no hosts given, and $BRIDGE has no name: --hosts A,B,..."
}

# ---- declarations

# make_declaration CLASS BEGIN_S: set DECLARATION to what the controller is told.
make_declaration() {
    local word tables='' source=host user=${USER_NAME//\\/\\\\}
    [[ $ORDER == no ]] || source=order
    DECLARATION="{\"v\":1,\"id\":\"$ID\",\"class\":$1,\"user\":\"$user\",\"uid\":$USER_ID"
    json_list "$HOSTS" && DECLARATION+=",\"hosts\":$LIST,\"policy\":\"$POLICY\""
    if [[ -n $PATHS ]]; then json_list "$PATHS" && DECLARATION+=",\"paths\":$LIST"; fi
    for word in ${TABLES[@]+"${TABLES[@]}"}; do
        json_list "${word#*=}"
        tables+="${tables:+,}{\"dscp\":$((10#${word%%=*})),\"paths\":$LIST}"
    done
    DECLARATION+=${tables:+",\"tables\":[$tables]"}
    if [[ ${#SERVICES[@]} -gt 0 ]]; then
        printf -v word '%s,' "${SERVICES[@]}"
        json_list "${word%,}" && DECLARATION+=",\"services\":$LIST"
    fi
    DECLARATION+=${MIN_RATE_BPS_WANTED:+",\"min_rate_bps\":$MIN_RATE_BPS_WANTED"}
    DECLARATION+=${MAX_RATE_BPS_WANTED:+",\"max_rate_bps\":$MAX_RATE_BPS_WANTED"}
    DECLARATION+=",\"begin_s\":$2${END_S:+",\"end_s\":$END_S"},\"source\":\"$source\"}"
    ((${#DECLARATION} <= MAX_NOTE_BYTES)) ||
        die "job $ID has too long a declaration: name fewer hosts, paths or services"
}

# Put DECLARATION into the job's variables.
set_declaration() {
    printf '%s\n' "$DECLARATION" >"$RUN_DIR/.part" && encode "$RUN_DIR/.part" || return 1
    JOB_TEXT[$ID]=$DECLARATION JOB_HASH[$ID]=${HASHES[0]} JOB_HEX[$ID]=${HEXES[0]}
}

# first_difference OLD NEW: set DIFFERENCE to the first key that two declarations do not share.
first_difference() {
    local key old
    for key in hosts policy paths tables services min_rate_bps max_rate_bps begin_s end_s source; do
        json_value "$key" "$1" && old=$VALUE
        json_value "$key" "$2"
        DIFFERENCE="${key//_/ }"
        [[ $old == "$VALUE" ]] || return 0
    done
}

# ---- answers

# notes_of TABLE: print PRIORITY, MATCH and the note's hex digits of each row of a table.
notes_of() {
    local line
    ofctl --timeout=5 --no-names --no-stats dump-flows "$BRIDGE" "table=$1" 2>/dev/null |
        while read -r line; do
            [[ $line =~ priority=([0-9]+)(.*)\ actions=note:([0-9a-f.]+)$ ]] || continue
            echo "${BASH_REMATCH[1]} ${BASH_REMATCH[2]} ${BASH_REMATCH[3]}"
        done
}

# Read what the controller answers into ANSWER_STATE and ANSWER_WHY, by the job's id. An answer is
# for the class and the id together.
read_answers() {
    local class match hex id state why
    ANSWER_STATE=() ANSWER_WHY=()
    while read -r class match hex; do
        ((class <= MAX_CLASS)) || continue
        from_hex "$hex" || continue
        [[ $TEXT =~ \"id\":\ ?\"($JOB_ID_WORD)\" ]] || continue
        id=${BASH_REMATCH[1]}
        [[ ${JOB_CLASS[$id]-} == "$class" ]] || continue
        [[ $TEXT =~ \"state\":\ ?\"(installed|waiting|refused)\" ]] || continue
        state=${BASH_REMATCH[1]} why=''
        if [[ $TEXT =~ \"why\":\ ?\"(([^\"\\]|\\.)*)\" ]]; then
            why=${BASH_REMATCH[1]}
            why=${why//\\\"/\"}
            why=${why//\\\\/\\}
            why=${why//[[:cntrl:]]/ }
        fi
        ANSWER_STATE[$id]=$state ANSWER_WHY[$id]=$why
    done < <(notes_of "$ANSWERS")
}
