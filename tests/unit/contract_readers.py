# SPDX-License-Identifier: Apache-2.0
"""Programs that read names, rates and times as the host's scripts and the Slurm plugin read them.

Each reads many texts in one run: starting a program costs more than what it has to do.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from .commands import REPOSITORY

__all__ = ["BEGIN_S", "Reader", "plugin", "scripts"]

BEGIN_S = 1_000_000_000
"""When the jobs begin whose end is read."""

Asked = Sequence[tuple[str, str]]
Reader = Callable[[Asked], list[str]]
"""Reads pairs of a kind and a text. The answer is a number, "yes", or "no", a refusal."""

_SCRIPTS = REPOSITORY / "ovs-host-scripts"

_BASH = r"""
set -euo pipefail
HERE=$1
source "$HERE/common.sh"
source "$HERE/jobs.sh"
source "$HERE/jobs-declare.sh"
# No user of this machine counts.
local_user() { return 1; }
getent() { return 1; }
read_one() {
    JOB_USER=u POLICY=shared BEGIN=BEGIN_S
    case $1 in
    job) ID=$2 && check_id && echo yes ;;
    user) JOB_USER=$2 && check_arguments && echo yes ;;
    uid) JOB_USER=$2 && check_arguments && find_user && echo "$USER_ID" ;;
    host) HOSTS=$2 && check_arguments && echo yes ;;
    path) POLICY=paths PATHS=$2 && check_arguments && echo yes ;;
    rate) MIN_RATE=$2 && check_arguments && echo "$MIN_RATE_BPS_WANTED" ;;
    time) UNTIL=$2 && check_arguments && echo "$END_S" ;;
    known)
        ID=a HOSTS=A POLICY=shared USER_NAME=$2 USER_ID=1000
        make_declaration 1 "$BEGIN" && json_value user "$DECLARATION" && [[ $VALUE == "$2" ]]
        printf %s "$DECLARATION" | od -An -v -tx1 -w4096 | tr -d " "
        ;;
    esac
}
while IFS= read -r -d '' kind && IFS= read -r -d '' text; do
    answer=$(read_one "$kind" "$text" 2>/dev/null) || answer=no
    echo "$answer"
done
""".replace("=BEGIN_S", f"={BEGIN_S}")

_HEADER = """
typedef void *spank_t;
typedef enum { S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE } spank_context_t;
typedef enum { S_JOB_ID } spank_item_t;
enum { ESPANK_SUCCESS, ESPANK_BAD_ARG };
struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    int (*cb)(int, const char *, int);
};
#define SPANK_PLUGIN(name, version)
static spank_context_t spank_context(void) { return S_CTX_LOCAL; }
static int spank_option_register(spank_t s, struct spank_option *o) { return s != (void *)o; }
static int spank_job_control_setenv(spank_t s, const char *n, const char *v, int o)
{ return s && n && v && o; }
static int spank_get_item(spank_t s, spank_item_t i, ...) { return s && i; }
static void slurm_error(const char *format, ...) { (void)format; }
"""

_MAIN = """
#include "spank_ri2n.c"

int main(void)
{
    char *kind = NULL, *text = NULL;
    size_t kind_size = 0, text_size = 0;
    unsigned long long rate_bps;

    while (getdelim(&kind, &kind_size, 0, stdin) > 0 && getdelim(&text, &text_size, 0, stdin) > 0) {
        if (!strcmp(kind, "rate") && read_rate(text, &rate_bps))
            printf("%llu\\n", rate_bps);
        else
            puts(!strcmp(kind, "path") && is_path(text) ? "yes" : "no");
    }
    return 0;
}
"""


def scripts() -> Reader:
    """How the scripts of a host read: job, user, uid, host, path, rate and time.

    `known` is a user of the host; the answer is the declaration of a job, in hexadecimal digits.
    """
    return _reader("bash", "-c", _BASH, "readers", str(_SCRIPTS))


def plugin(folder: Path) -> Reader:
    """How Slurm's plugin reads a path and a rate; compiled in a folder, without Slurm."""
    (folder / "slurm").mkdir()
    (folder / "slurm" / "spank.h").write_text(_HEADER)
    (folder / "main.c").write_text(_MAIN)
    words = ("gcc", "-D_GNU_SOURCE", f"-I{folder}", f"-I{_SCRIPTS / 'slurm'}")
    program = folder / "readers"
    subprocess.run([*words, "-o", str(program), str(folder / "main.c")], check=True)
    return _reader(str(program))


def _reader(*argv: str) -> Reader:
    def read(asked: Asked) -> list[str]:
        done = subprocess.run(
            argv,
            input="".join(f"{kind}\0{text}\0" for kind, text in asked).encode(),
            capture_output=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            check=False,
        )
        assert done.returncode == 0 and not done.stderr, done
        lines = done.stdout.decode().splitlines()
        assert len(lines) == len(asked), done
        return lines

    return read
