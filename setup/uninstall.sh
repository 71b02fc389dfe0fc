# SPDX-License-Identifier: Apache-2.0
# `./dev uninstall`: what set-up has left on this machine, and how it goes. `dev` sources this file.
# shellcheck shell=bash

# removable_packages FOLDER: of the packages that this command has installed, those that are still
# there and that nothing else on this machine needs.
#
# apt-get itself finds them. In a copy of apt's notes of what it installed by itself, the packages
# of the record are added; what apt-get would then remove, nobody needs. FOLDER is for that copy.
removable_packages() {
    local states=/var/lib/apt/extended_states options=()
    [[ -s $PACKAGES_RECORD ]] || return 0
    LC_ALL=C sort -u "$PACKAGES_RECORD" | comm -12 - <(installed_packages) >"$1/ours"
    [[ -s $1/ours ]] || return 0
    if [[ -f $states ]]; then cp "$states" "$1/states"; else : >"$1/states"; fi
    options=(-o "Dir::State::extended_states=$1/states"
        -o APT::AutoRemove::RecommendsImportant=false -o APT::AutoRemove::SuggestsImportant=false)
    xargs apt-mark "${options[@]}" auto <"$1/ours" >/dev/null
    would_remove apt-get "${options[@]}" -s autoremove | LC_ALL=C sort -u | comm -12 - "$1/ours"
}

# would_remove APT-GET...: the packages that this simulation of apt-get removes.
would_remove() { LC_ALL=C "$@" | sed -n 's/^\(Remv\|Purg\) \([^ :]*\).*/\2/p'; }

# megabytes FOLDER...: how large they are on disk, together.
megabytes() { du -smc "$@" | tail -n 1 | cut -f1; }

# packages_mb PACKAGE...: how large they are on disk, together.
packages_mb() {
    # shellcheck disable=SC2016 # dpkg-query replaces this
    dpkg-query -W -f '${Installed-Size}\n' "$@" | awk '{ kb += $1 } END { print int(kb / 1024) }'
}

cmd_uninstall() {
    local word yes=no packages=() folders=() caches=("$CACHE") folder scratch answer='' others
    for word; do
        [[ $word == --yes ]] || die "uninstall: unknown argument $word; it takes --yes"
        yes=yes
    done
    if [[ -s $PACKAGES_RECORD ]]; then
        become_root "remove Debian packages" uninstall "$@" ||
            die "Debian packages can be removed by root alone; type: $(line_for_root uninstall)"
    fi
    # The user who asked for root may have a cache, too.
    if [[ ${SUDO_USER:-root} != root ]]; then
        caches+=("$(getent passwd "$SUDO_USER" | cut -d: -f6)/.cache/ri2n")
    fi
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064 # this very folder
    trap "rm -rf '$scratch'" EXIT
    mapfile -t packages < <(removable_packages "$scratch")
    for folder in "$VENV" "${caches[@]}"; do [[ ! -e $folder ]] || folders+=("$folder"); done
    if ((${#packages[@]} + ${#folders[@]} == 0)); then
        say "nothing is left to remove"
        return 0
    fi
    say "this goes:"
    if ((${#packages[@]})); then
        say "  Debian packages that ./dev has installed, and that nothing else needs" \
            "($(packages_mb "${packages[@]}") MB):"
        printf '%s ' "${packages[@]}" | fold -s -w 90 | sed 's/^/dev:     /'
        echo
    fi
    # .venv and uv's cache share files, which `du` counts once.
    ((${#folders[@]} == 0)) || say "  $(megabytes "${folders[@]}") MB in ${folders[*]}"
    if [[ $yes == no ]]; then
        [[ -t 0 ]] || die "nobody can be asked here; type: ./dev uninstall --yes"
        read -r -p 'dev: remove it? [y/N] ' answer
        [[ $answer == [yY]* ]] || die "nothing was removed"
    fi
    if ((${#packages[@]})); then
        # Nothing else may go with them, whatever has changed since.
        others=$(would_remove apt-get -s purge "${packages[@]}" | LC_ALL=C sort -u |
            comm -23 - <(printf '%s\n' "${packages[@]}" | LC_ALL=C sort -u))
        [[ -z $others ]] ||
            die "these would go with them, so nothing was removed: ${others//$'\n'/ }"
        step "apt-get purge" env DEBIAN_FRONTEND=noninteractive apt-get -y \
            -o DPkg::Lock::Timeout=300 purge "${packages[@]}" || die "apt-get could not remove them"
    fi
    if [[ -e $PACKAGES_RECORD ]]; then
        rm -f "$PACKAGES_RECORD"
        rmdir --ignore-fail-on-non-empty "$(dirname "$PACKAGES_RECORD")"
    fi
    ((${#folders[@]} == 0)) || rm -rf "${folders[@]}"
    say "removed"
}
