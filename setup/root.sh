# SPDX-License-Identifier: Apache-2.0
# Commands that need root ask for it by themselves. `dev` sources this file.
# shellcheck shell=bash

# What pip and uv need to know of this network, which sudo would otherwise forget.
KEPT_FOR_ROOT='PIP_.*|UV_.*|(https?|all|no|HTTPS?|ALL|NO)_(proxy|PROXY)|SSL_CERT_(FILE|DIR)'
KEPT_FOR_ROOT+='|(REQUESTS|CURL)_CA_BUNDLE|RI2N_.*|TERM|COLUMNS|NO_COLOR'
readonly KEPT_FOR_ROOT

# line_for_root WORD...: what a person types here so that root runs `./dev WORD...`.
line_for_root() {
    local line
    line="./dev$(printf ' %q' "$@")"
    if command -v sudo >/dev/null; then
        echo "sudo $line"
    elif command -v doas >/dev/null; then
        echo "doas $line"
    else
        printf 'su root -c %q\n' "$line"
    fi
}

has_terminal() { { : </dev/tty; } 2>/dev/null; }

# become_root WHY WORD...: go on as root, as `./dev WORD...`. It returns 0 if this is root already,
# and 1 where there is neither a terminal for a password nor a right without one.
become_root() {
    ((EUID != 0)) || return 0
    local why=$1 kept
    shift
    # pip's own settings of the user, who is another one after that.
    if [[ -z ${PIP_CONFIG_FILE-} && -f ~/.config/pip/pip.conf ]]; then
        export PIP_CONFIG_FILE=~/.config/pip/pip.conf
    fi
    kept=$(compgen -e | grep -xE "$KEPT_FOR_ROOT" | paste -sd,) || kept=''
    if command -v sudo >/dev/null && { has_terminal || sudo -n true 2>/dev/null; }; then
        say "root is needed to $why: sudo asks"
        exec sudo ${kept:+"--preserve-env=$kept"} ./dev "$@"
    elif command -v doas >/dev/null && { has_terminal || doas -n true 2>/dev/null; }; then
        say "root is needed to $why: doas asks"
        exec doas ./dev "$@"
    elif command -v su >/dev/null && has_terminal; then
        say "root is needed to $why: su asks for root's password"
        # In the same session, so that Ctrl-C in this terminal reaches the command.
        exec su root --session-command "exec ./dev$(printf ' %q' "$@")"
    fi
    return 1
}
