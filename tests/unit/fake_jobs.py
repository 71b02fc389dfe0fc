# SPDX-License-Identifier: Apache-2.0
"""Programs in place of job-begin, job-end and job-ls, which answer as a test wants."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FakeJobs"]

# The status of job-begin and job-end, the words that they print, and how long they take, are in
# files beside them. A cgroup is made where `cgroups` says; without that file a plain folder is.
BEGIN = """#!/bin/bash
here=${0%/*}
printf '%s\\n' "${0##*/} $*" >>"$here/calls"
if [[ -s $here/status ]]; then
    cat "$here/words" >&2
    exit "$(cat "$here/status")"
fi
touch "$here/jobs/$2"
if [[ -e $here/hangs ]]; then
    echo $$ >"$here/pid"
    exec sleep 1000
fi
[[ " $* " == *" --cgroup "* ]] || exit 0
group=$(cat "$here/cgroups" 2>/dev/null || echo "$here/groups")/job_$2
mkdir -p "$group"
[[ $group == /sys/* ]] || touch "$group/cgroup.procs"
echo "$group"
"""
END = """#!/bin/bash
here=${0%/*}
printf '%s\\n' "${0##*/} $*" >>"$here/calls"
if [[ -e $here/both && -s $here/status ]]; then
    cat "$here/words" >&2
    exit "$(cat "$here/status")"
fi
rm -f "$here/jobs/$2"
group=$(cat "$here/cgroups" 2>/dev/null || echo "$here/groups")/job_$2
rm -f "$here/groups/job_$2/cgroup.procs" 2>/dev/null
[[ ! -d $group ]] || rmdir "$group"
"""
LS = """#!/bin/bash
here=${0%/*}
printf '['
for job in "$here"/jobs/*; do
    [[ -e $job ]] && printf '{"id": "%s", "class": 3}, ' "${job##*/}"
done
printf ']\\n'
"""


class FakeJobs:
    """The programs in `folder`, for the key `scripts` of ri2n.conf."""

    def __init__(self, folder: Path, cgroups: Path | None = None) -> None:
        """With `cgroups`, real cgroups are made in that folder of the unified tree."""
        self.folder = folder
        (folder / "jobs").mkdir(parents=True)
        for name, text in (("job-begin", BEGIN), ("job-end", END), ("job-ls", LS)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        if cgroups is not None:
            (folder / "cgroups").write_text(str(cgroups))

    def answer(self, status: int, words: str = "", *, both: bool = False) -> None:
        """Let job-begin, or `both` programs, end with that status after an error of those words.

        With status 0 they do what they are asked for.
        """
        (self.folder / "both").unlink(missing_ok=True)
        if both:
            (self.folder / "both").touch()
        (self.folder / "words").write_text(words + "\n")
        (self.folder / "status").write_text(str(status or ""))

    def hang(self, hangs: bool = True) -> None:
        """Let job-begin never end by itself, after it has begun the job."""
        if hangs:
            (self.folder / "hangs").touch()
        else:
            (self.folder / "hangs").unlink()

    @property
    def hanging(self) -> int | None:
        """The pid of a job-begin that hangs; None when none does yet."""
        path = self.folder / "pid"
        return int(text) if path.exists() and (text := path.read_text()) else None

    @property
    def calls(self) -> list[str]:
        """Each call as one line, oldest first."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def jobs(self) -> list[str]:
        """The jobs that have begun and not ended."""
        return sorted(path.name for path in (self.folder / "jobs").iterdir())
