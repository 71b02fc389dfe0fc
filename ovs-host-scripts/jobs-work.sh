# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2004,SC2034,SC2153 # the files that source each other share these
# Part of job-begin and job-end, which source it after jobs-apply.sh where they have the lock and no
# answer yet (jobs-queue.sh): carry out all that is asked for.

readonly MOST_ASKED=64 # at once; the others' turn comes next
readonly ASKED_LINES=11 ASK_AGE_US=120000000

# What is asked for, by number: the file, the asker, and what it says.
ASK_FILE=() ASK_PID=() ASK_KIND=() ASK_ID=() ASK_UID=() ASK_USER=() ASK_CGROUP=() ASK_MAX_RATE=()
ASK_TEXT=() ASK_ADOPTED=() ASK_ANSWER=()

# Read files of what is asked for. Those that nobody waits for are put into TRASH.
read_asked() { # read_asked FILE...
    local file pid time_us number=0 now_us=${EPOCHREALTIME/[.,]/}
    local -a said
    ASK_FILE=() ASK_PID=() ASK_KIND=() ASK_ID=() ASK_UID=() ASK_USER=() ASK_CGROUP=()
    ASK_MAX_RATE=() ASK_TEXT=() ASK_ADOPTED=() ASK_ANSWER=()
    for file in "$@"; do
        pid=${file##*/}
        time_us=${pid%%.*}
        pid=${pid#*.}
        pid=${pid%%.*}
        mapfile -t -n "$ASKED_LINES" said 2>/dev/null <"$file" || continue
        # The asker has ended, or reads its answer without the file's name.
        if ! waits "$pid" "$file"; then
            # It may be about to open the file.
            [[ -d /proc/$pid ]] && ((now_us - time_us < ASK_AGE_US)) || TRASH+=("$file")
            continue
        elif [[ -n ${said[9]-} ]]; then
            TRASH+=("$file")
            continue
        fi
        # Without its last line, it is still being written.
        [[ ${said[8]-} == . && ${said[0]} =~ ^(begin|end)$ ]] || continue
        ((number < MOST_ASKED)) || continue
        ASK_FILE+=("$file") ASK_PID+=("$pid") ASK_KIND+=("${said[0]}") ASK_ID+=("${said[1]}")
        ASK_UID+=("${said[2]}") ASK_USER+=("${said[3]}") ASK_CGROUP+=("${said[4]}")
        ASK_MAX_RATE+=("${said[5]}") ASK_TEXT+=("${said[6]}") ASK_ADOPTED+=("${said[7]}")
        number=$((number + 1))
    done
}

# waits PID FILE: whether this process has this file open. A process that got the number of one that
# has ended has not.
waits() { [[ $2 == "$MY_ASK" || /proc/$1/fd/9 -ef $2 ]]; }

# Carry out all that was read, and write the answers.
carry_out() {
    local number begun=() ended=() gone=()
    local -A touched=()
    NEW_CLASSES=() # the answers to jobs that have begun before stay
    load_jobs
    make_room
    for number in "${!ASK_ID[@]}"; do
        if [[ -n ${touched[${ASK_ID[number]}]-} ]]; then
            ASK_ANSWER[number]=own
        else
            touched[${ASK_ID[number]}]=yes
            "take_${ASK_KIND[number]}" "$number" # take_begin, take_end
        fi
    done
    if [[ ${#begun[@]} -gt 0 || ${#ended[@]} -gt 0 || ${#LEFT[@]} -gt 0 ]]; then
        if write_begun && write_ended && NO_SWITCH=$((!${#begun[@]})) make_jobs &&
            keep_begun; then
            for number in ${ended[@]+"${ended[@]}"}; do ASK_ANSWER[number]=ok; done
        else
            undo_begun
        fi
    fi
    for number in "${!ASK_ID[@]}"; do
        TRASH+=("${ASK_FILE[number]}")
        [[ -n ${ASK_ANSWER[number]-} ]] || continue # nobody waits any more
        # Where this fails, the asker does it itself.
        printf '%s\n' "${ASK_ANSWER[number]}" 2>/dev/null >>"${ASK_FILE[number]}" || true
    done
    [[ ${#JOB_IDS[@]} -gt 0 ]] || TRASH+=("$RUN_DIR/applied" "$RUN_DIR/serial")
    sweep
}

# The classes of what killed scripts have left are needed.
make_room() {
    ((${#LEFT[@]} > 0 && ${#JOB_IDS[@]} + ${#LEFT[@]} + ${#ASK_ID[@]} > MAX_CLASS)) || return 0
    apply_jobs || return 0 # what does not work will be told
    load_jobs
}

# Give a new job its class.
take_begin() { # take_begin NUMBER
    local id=${ASK_ID[$1]} uid=${ASK_UID[$1]} cgroup=${ASK_CGROUP[$1]} class left why
    local adopted=${ASK_ADOPTED[$1]}
    if [[ -n ${JOB_CLASS[$id]-} ]]; then
        ASK_ANSWER[$1]=own
        return
    fi
    # A user's packets can have one class only. Processes in another job's cgroup have that job's.
    if [[ -z $cgroup$adopted && -n ${UID_JOB[$uid]-} ]]; then
        ASK_ANSWER[$1]="no 2 --user ${ASK_USER[$1]}: job ${UID_JOB[$uid]} of this user runs here:"
        ASK_ANSWER[$1]+=" --cgroup tells two jobs apart"
        return
    fi
    if overlaps "$id" "$adopted"; then
        ASK_ANSWER[$1]="no 2 $OVERLAP"
        return
    fi
    if ! free_class; then
        ASK_ANSWER[$1]="no 2 this host has $MAX_CLASS jobs, and none has a class left for job $id"
        return
    fi
    if [[ -n ${ASK_MAX_RATE[$1]} ]] && ! why=$(check_limits 2>&1); then
        ASK_ANSWER[$1]="no 2 ${why#"$PROGRAM: "}"
        return
    fi
    if [[ -n $cgroup ]]; then
        if ! find_cgroup2; then
            ASK_ANSWER[$1]="no 2 --cgroup: no cgroup2 is mounted under /sys/fs/cgroup"
            return
        elif [[ ! -w $CGROUP_MOUNT/cgroup.procs ]]; then
            ASK_ANSWER[$1]="no 2 --cgroup: $CGROUP_MOUNT cannot be written"
            return
        fi
        [[ $cgroup == /* ]] || cgroup=$CGROUP_MOUNT/$cgroup
    fi
    class=$FREE_CLASS
    TAKEN[class]=yes
    [[ -n $cgroup$adopted ]] || UID_JOB[$uid]=$id
    JOB_CLASS[$id]=$class JOB_UID[$id]=$uid JOB_MAX_RATE[$id]=${ASK_MAX_RATE[$1]}
    JOB_ADOPTED[$id]=$adopted
    JOB_CGROUP[$id]=${cgroup/@/$class} JOB_TEXT[$id]=${ASK_TEXT[$1]/@/$class}
    JOB_IDS+=("$id")
    begun+=("$1")
    # A killed job-begin of the same job has left this file, which now is ours.
    for left in "${!LEFT[@]}"; do
        [[ ${LEFT[left]} != "new/job.$id "* ]] || LEFT[left]="gone/job.$id ${LEFT[left]#* }"
    done
}

# A job ends: its class is nobody's as soon as all of the job has gone.
take_end() { # take_end NUMBER
    local id=${ASK_ID[$1]} left kept=()
    if [[ -n ${JOB_CLASS[$id]-} ]]; then
        for left in "${JOB_IDS[@]}"; do [[ $left == "$id" ]] || kept+=("$left"); done
        JOB_IDS=(${kept[@]+"${kept[@]}"})
        LEFT+=("gone/job.$id ${JOB_CLASS[$id]} ${JOB_CGROUP[$id]}")
        LEFT_CLASSES+=("${JOB_CLASS[$id]}")
        [[ -n ${JOB_CGROUP[$id]}${JOB_ADOPTED[$id]} ]] || unset "UID_JOB[${JOB_UID[$id]}]"
        unset "JOB_CLASS[$id]"
        gone+=("$RUN_DIR/job.$id")
        ended+=("$1")
        return
    fi
    ASK_ANSWER[$1]=none
    for left in ${LEFT[@]+"${LEFT[@]}"}; do # of scripts that were killed
        left=${left%% *}
        [[ ${left#*/job.} != "$id" ]] || ended+=("$1")
    done
}

# Write the files of new jobs, before anything else says that they are there.
write_begun() {
    local number id serial=0 place=0 files=()
    ((${#begun[@]} > 0)) || return 0
    WHY="cannot write $RUN_DIR"
    read -r serial 2>/dev/null <"$RUN_DIR/serial" || true
    [[ $serial =~ ^[0-9]{1,9}$ ]] || serial=0
    for number in "${begun[@]}"; do
        id=${ASK_ID[number]}
        serial=$(((10#$serial + 1) % 16777216))
        JOB_SERIAL[$id]=$serial
        files+=("$RUN_DIR/new/job.$id")
        # Such a file is none of a job yet.
        printf '%s\n' "${JOB_TEXT[$id]}" >"${files[-1]}" || return 1
    done
    printf '%s\n' "$serial" >"$RUN_DIR/serial" || return 1
    encode "${files[@]}" || return 1
    for number in "${begun[@]}"; do
        id=${ASK_ID[number]}
        JOB_HASH[$id]=${HASHES[place]} JOB_HEX[$id]=${HEXES[place]}
        place=$((place + 1))
        write_job "$RUN_DIR/new/job.$id" "$id" || return 1
        NEW_CLASSES+=("${JOB_CLASS[$id]}")
    done
} 2>/dev/null

write_ended() {
    ((${#gone[@]} == 0)) || mv -f -t "$RUN_DIR/gone" "${gone[@]}" 2>/dev/null || {
        WHY="cannot write $RUN_DIR/gone"
        return 1
    }
}

# The new jobs have begun, but those that nobody waits for any more: their scripts were killed, or
# have waited long enough and have told their callers so.
keep_begun() {
    local number id files=() lost=no
    for number in ${begun[@]+"${begun[@]}"}; do
        id=${ASK_ID[number]}
        if waits "${ASK_PID[number]}" "${ASK_FILE[number]}"; then
            files+=("$RUN_DIR/new/job.$id")
            ASK_ANSWER[number]="ok ${JOB_CLASS[$id]} ${JOB_CGROUP[$id]}"
        else
            lost=yes
        fi
    done
    ((${#files[@]} == 0)) || mv -f -t "$RUN_DIR" "${files[@]}" 2>/dev/null || {
        WHY="cannot write $RUN_DIR/job.${files[0]##*/job.}"
        return 1
    }
    [[ $lost == yes ]] || return 0
    NEW_CLASSES=()
    load_jobs
    NO_SWITCH=1 make_jobs || true # the next script does what is left
}

# Something does not work. So no new job begins. Ended jobs have ended, if that works.
undo_begun() {
    local number id why=$WHY
    if [[ ${#begun[@]} -gt 0 ]]; then
        load_jobs
        NEW_CLASSES=()
        if NO_SWITCH=1 make_jobs; then
            WHY=''
        elif [[ ${#ASK_ID[@]} -eq 1 ]]; then
            warn "not all of it could be undone: $WHY"
        fi
    fi
    for number in ${begun[@]+"${begun[@]}"}; do
        id=${ASK_ID[number]}
        ASK_ANSWER[number]=own
        [[ ${#ASK_ID[@]} -gt 1 ]] || ASK_ANSWER[number]="no 1 job $id has not begun: $why"
    done
    for number in ${ended[@]+"${ended[@]}"}; do
        ASK_ANSWER[number]=ok
        [[ -z $WHY ]] || ASK_ANSWER[number]="no 1 job ${ASK_ID[number]} has ended, but not all of\
 it is gone (job-end again): $WHY"
    done
}
