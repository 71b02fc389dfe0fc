# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2004,SC2034,SC2153 # the files that source each other share these
# Part of job-begin and job-end, which source it after jobs.sh: what scripts ask for that run at the
# same time is carried out together.
#
# A script writes what it asks for into a file of its own, and then waits for the lock. Who gets the
# lock and has no answer yet carries out all that is asked for, with one call of each program, and
# writes each answer into its asker's file. So of many scripts that come together, one or two do the
# work, and the others only read their answer when the lock comes to them. Linux gives a lock in the
# order in which it was asked for.
#
# A file belongs to a script that is alive when the script has it open. Nothing is done for others.
# Where a script is killed in the middle of the work, the next one has the lock and no answer. It
# reads the files of jobs, which say what there is, and begins anew.
#
# One job that cannot begin must not harm the others. So where all together fail, all is undone, and
# each asker is told to do it alone (`own`) as soon as it has the lock.

MY_ASK='' WORKS=''

# Most scripts only wait. What the others need besides costs time to read.
begin_work() {
    [[ -z $WORKS ]] || return 0
    WORKS=yes
    # shellcheck source=ovs-host-scripts/jobs-apply.sh
    source "$HERE/jobs-apply.sh"
    # shellcheck source=ovs-host-scripts/jobs-work.sh
    source "$HERE/jobs-work.sh"
}

# ---- the asker

# ask begin|end [UID USER CGROUP MAX_RATE TEXT ADOPTED]. CGROUP and TEXT have a @ for the class. A
# CGROUP without a slash in front is one below the tree's root.
ask() {
    own_run_dir
    MY_ASK=$RUN_DIR/ask/${EPOCHREALTIME/[.,]/}.$$.$ID
    {
        exec 9<>"$MY_ASK" &&
            printf '%s\n' "$1" "$ID" "${2-}" "${3-}" "${4-}" "${5-}" "${6-}" "${7-}" . >&9
    } 2>/dev/null || fail "cannot write $MY_ASK"
}

# Set ANSWER to what became of what this script has asked for; with the lock.
#   ok CLASS CGROUP   done
#   none              there is no such job
#   own               this script must do it alone
#   no STATUS TEXT    it was refused, or has failed
await_turn() {
    if ! take_lock; then
        read_answer && return 0
        rm -f "$MY_ASK"
        fail "another job-begin or job-end is at work"
    fi
    read_answer && return 0
    begin_work
    read_asked "$RUN_DIR"/ask/*
    carry_out
    # There were very many, or its file was taken for that of a script which has ended.
    read_answer || ANSWER=own
}

# ask_alone ARGUMENT...: as ask, for a script that has the lock.
ask_alone() {
    ask "$@"
    begin_work
    read_asked "$MY_ASK"
    carry_out
    read_answer || fail "cannot write an answer to $MY_ASK"
}

read_answer() { IFS= read -r -u 9 ANSWER; }

# End this script with what ANSWER says where it is a refusal or a failure.
heed_refusal() {
    local status text
    [[ $ANSWER == 'no '* ]] || return 0
    read -r _ status text <<<"$ANSWER"
    complain "$text"
    exit "$status"
}
