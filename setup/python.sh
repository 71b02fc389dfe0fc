# SPDX-License-Identifier: Apache-2.0
# Python packages: uv installs them, which takes a tenth of pip's time; pip does where uv cannot.
# `dev` sources this file.
# shellcheck shell=bash
# shellcheck disable=SC2034 # `dev` uses what seems unused here

readonly UV_LOCK=requirements-uv.lock RUN_LOCK=requirements-run.lock TEST_LOCK=requirements.lock
# How large these are in .venv: what the demo needs, and what is added for tests. Measured.
readonly RUN_MB=340 TEST_MB=480
UV='' # the program, once it is looked for; "none" where pip does its work

uv_version() { sed -n 's/^uv==\([0-9.]*\).*/\1/p' "$UV_LOCK"; }

# uv_program: where uv is. Its version is in the path, so all checkouts share one.
uv_program() { echo "$CACHE/uv-$(uv_version)/bin/uv"; }

# fetch_uv FILE: get uv from where pip gets packages, with the hashes of its lock.
fetch_uv() {
    local folder=${1%/bin/uv} made
    mkdir -p "$CACHE"
    made=$(mktemp -d "$CACHE/uv.XXXXXX")
    "${PIP[@]}" install --no-deps --no-compile --require-hashes --target "$made" -r "$UV_LOCK" &&
        mv -T "$made" "$folder" # fails where another checkout was quicker
    rm -rf "$made"
    [[ -x $1 ]]
}

# uv_settings: the environment in which uv asks whom pip asks. What is set for uv itself wins.
uv_settings() {
    local kind key value name each found=()
    declare -A pip=()
    # `pip config list` says KIND.NAME='VALUE'. A variable wins over a section of a file, and the
    # section of `install` wins over that of all commands.
    for kind in global install :env:; do
        while IFS='=' read -r key value; do
            [[ $key == "$kind".* ]] || continue
            name=${key#"$kind".}
            value=${value:1:-1}
            value=${value//\\n/ } # several values are on lines of their own
            pip[$name]=${value# }
        done < <("${PIP[@]}" config list 2>/dev/null)
    done
    set_for_uv UV_DEFAULT_INDEX "${pip[index-url]-}"
    set_for_uv UV_INDEX "${pip[extra-index-url]-}"
    # pip takes the best version of all indexes, uv by default the first index that has any.
    [[ -z ${pip[extra-index-url]-} ]] || set_for_uv UV_INDEX_STRATEGY unsafe-best-match
    for each in ${pip[find-links]-}; do # uv refuses a folder that is not there, pip passes it over
        [[ $each != *://* && ! -e $each ]] || found+=("$each")
    done
    set_for_uv UV_FIND_LINKS "$(IFS=, && echo "${found[*]}")"
    [[ ${pip[no-index]-} != [1tTyY]* ]] || set_for_uv UV_NO_INDEX 1
    set_for_uv UV_INSECURE_HOST "${pip[trusted-host]-}"
    set_for_uv UV_HTTP_TIMEOUT "${pip[default-timeout]-${pip[timeout]-}}"
    set_for_uv SSL_CERT_FILE "${pip[cert]-${REQUESTS_CA_BUNDLE-${CURL_CA_BUNDLE-}}}"
    set_for_uv SSL_CLIENT_CERT "${pip[client-cert]-}"
    set_for_uv HTTPS_PROXY "${pip[proxy]-}"
    set_for_uv HTTP_PROXY "${pip[proxy]-}"
    set_for_uv UV_SYSTEM_CERTS 1
    set_for_uv UV_CACHE_DIR "$CACHE/uv"
    # What builds a package that comes as its source is locked, too.
    [[ ! -s $RUN_LOCK ]] || set_for_uv UV_BUILD_CONSTRAINT "$RUN_LOCK"
    export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
}

# set_for_uv NAME VALUE: unless there is nothing to set, or somebody has set it.
set_for_uv() { [[ -z $2 || -n ${!1-} ]] || export "$1=$2"; }

# with_uv ARGUMENT...: `uv pip install` into .venv. uv leaves its lock files where temporary files
# are, so it has a folder of its own for them.
with_uv() (
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064 # this very folder
    trap "rm -rf '$scratch'" EXIT
    uv_settings
    TMPDIR=$scratch "$UV" pip install --python "$VENV/bin/python" "$@"
)

# install_python TEXT ARGUMENT...: install packages into .venv. The arguments are those that
# `pip install` and `uv pip install` have in common.
install_python() {
    local text=$1
    shift
    if [[ -z $UV ]]; then
        UV=$(uv_program)
        [[ -x $UV ]] || step "get uv" fetch_uv "$UV" || UV=none
    fi
    if [[ $UV != none ]]; then
        step "$text" with_uv "$@" && return 0
        UV=none
        say "uv cannot do it here; pip does, which takes longer"
    fi
    step "$text, by pip" "${PIP[@]}" install --no-compile "$@"
}

# write_lock FILE REQUIREMENT...: what these need, with hashes, for all Pythons from 3.11 on.
write_lock() (
    local file=$1 made status=0 constraints=()
    shift
    uv_settings
    export UV_CUSTOM_COMPILE_COMMAND='./dev lock'
    [[ $file != "$RUN_LOCK" ]] || constraints=(--constraint "$TEST_LOCK")
    made=$(mktemp) # not the file itself: uv would keep the hashes that are in it
    printf '%s\n' "$@" | "$UV" pip compile --quiet --universal --python-version 3.11 \
        --generate-hashes --no-annotate "${constraints[@]}" --no-emit-package ri2n-sdn \
        --no-emit-package ri2n-lab --no-emit-package ri2n-parallel --output-file "$made" - ||
        status=$?
    ((status)) || cat "$made" >"$file"
    rm -f "$made"
    exit "$status"
)

# cmd_lock: write the locks with hashes anew.
cmd_lock() {
    local version build=()
    version=$(uv_version)
    while (($#)); do
        [[ $1 == --uv && -n ${2-} ]] || die "lock: unknown argument $1; it takes --uv VERSION"
        version=$2
        shift 2
    done
    [[ $version =~ ^[0-9.]+$ ]] || die "lock: --uv $version: no version, as 0.13.8"
    cmd_setup
    UV=$(uv_program)
    [[ -x $UV ]] || step "get uv" fetch_uv "$UV" || die "uv cannot be had here"
    # What builds the packages of this checkout is locked, too.
    mapfile -t build < <("$VENV/bin/python" -c 'import pathlib, tomllib
about = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
print(*about["build-system"]["requires"], sep="\n")')
    step "write $UV_LOCK" write_lock "$UV_LOCK" "uv==$version" || die "$UV_LOCK was not written"
    step "write $RUN_LOCK" write_lock "$RUN_LOCK" '-e .[web]' '-e ./ri2n_lab' \
        '-e ./ri2n_parallel[cli]' "${build[@]}" || die "$RUN_LOCK was not written"
}
