# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # the scripts that source this file use these
# Part of the scripts that source it: what names, rates and times look like,
# and how large numbers are. `python -m tests.contract_files` makes it.

readonly JOB_ID_WORD='[A-Za-z0-9][A-Za-z0-9._:-]{0,63}'
readonly HOST_WORD='[A-Za-z0-9][A-Za-z0-9_.-]{0,62}'
readonly USER_WORD='[A-Za-z0-9_][A-Za-z0-9_.@+\\-]{0,63}\$?'
readonly PATH_WORD='[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}'
readonly RATE_WORD='([0-9]{1,16})(\.([0-9]{1,9}))?([kMG]?)(bit/s)?'
readonly DURATION_WORD='\+?([0-9]{1,12})(s|m|min|h|d)?'
readonly POLICY_WORD='(shared|paths|exclusive|isolated)'
readonly PATH_NAME="(vlan:([0-9]{1,4})|$PATH_WORD(/([0-9]{1,4})|:$PATH_WORD)?)"
readonly MAX_ADDRESSES=16
readonly MAX_CLASS=63
readonly MAX_DSCP=63
readonly MAX_HOSTS=1024
readonly MAX_NAMES=64
readonly MAX_RATE_BPS=1000000000000000
readonly MAX_SERVICES=64
readonly MAX_TABLES=16
readonly MAX_TIME_S=253402300799
readonly MAX_UID=4294967294
readonly MAX_VLAN=4094
declare -rA RATE_FACTORS=([k]=1000 [M]=1000000 [G]=1000000000)
declare -rA DURATION_SECONDS=([s]=1 [m]=60 [min]=60 [h]=3600 [d]=86400)
