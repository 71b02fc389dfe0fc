# SPDX-License-Identifier: Apache-2.0
"""The firewall's rules of a host that has many jobs, as `job-begin` makes them.

They come out of the host scripts themselves, so that what is measured is what hosts have.
"""

from __future__ import annotations

from ri2n_lab.bench import rules_text
from ri2n_lab.cluster.run import run
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.shipped import host_script

__all__ = ["lacks", "marking"]

SCRIPTS = ("common.sh", "jobs.sh", "jobs-apply.sh")
# Arguments: scripts, then --, the device, its MAC, the table, and CLASS:UID of each job.
PROGRAM = """
set -euo pipefail
HERE=${1%/*}
while [[ $1 != -- ]]; do source "$1"; shift; done
BRIDGE=$2 LINK_MAC=$3 JOB_TABLE=$4
shift 4
for job in "$@"; do
    id=job-${job%:*}
    JOB_IDS+=("$id")
    JOB_CLASS[$id]=${job%:*} JOB_UID[$id]=${job#*:} JOB_SERIAL[$id]=${job%:*}
    JOB_CGROUP[$id]='' JOB_ADOPTED[$id]='' JOB_MAX_RATE[$id]=''
done
if [[ ${#JOB_IDS[@]} -gt 0 ]]; then marking_rules; else no_marking_rules; fi
"""


def lacks() -> str | None:
    """Why there are no such rules here, in one sentence; None when there are."""
    try:
        host_script(SCRIPTS[-1])
    except NotAvailable as error:
        return str(error)
    return None


def marking(rules: int, device: str, mac: str) -> str:
    """The rules for `nft -f` of a host with so many users, whose jobs leave by `device`.

    Raises NotAvailable without the host scripts, CommandFailed when they do not do it.
    """
    scripts = [str(host_script(name)) for name in SCRIPTS]
    jobs = [f"{number}:{uid}" for number, uid in rules_text.jobs(rules)]
    argv = ["bash", "-c", PROGRAM, "bench", *scripts, "--", device, mac, rules_text.TABLE, *jobs]
    return run(argv).stdout + rules_text.more_users(rules)
