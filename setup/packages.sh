# SPDX-License-Identifier: Apache-2.0
# Debian packages: which programs come from which package, what each is for, and how they come and
# go. `dev` sources this file.
# shellcheck shell=bash
# shellcheck disable=SC2034 # `dev` uses what seems unused here

# program:package:what for. The demo needs these and nothing else.
DEMO_PROGRAMS=(
    'ovs-vswitchd:openvswitch-switch:labs' 'ovsdb-server:openvswitch-switch:labs'
    'ovs-vsctl:openvswitch-switch:labs' 'ovs-ofctl:openvswitch-switch:labs'
    'ovs-appctl:openvswitch-switch:labs' 'iperf3:iperf3:labs' 'ip:iproute2:labs' 'tc:iproute2:labs'
    'ethtool:ethtool:labs' 'nft:nftables:labs' 'ping:iputils-ping:labs' 'ps:procps:labs'
    'sysctl:procps:labs' 'modprobe:kmod:labs' 'python3:python3:labs'
)
# What else the lab, the host scripts and the tests call.
TEST_PROGRAMS=(
    'tcpdump:tcpdump:captures of frames' 'openssl:openssl:certificates'
    'mptcpize:mptcpize:MPTCP, a peer in benches' 'iptables:iptables:marked jobs'
    'mpirun:openmpi-bin:MPI programs' 'slurmctld:slurmctld:Slurm' 'slurmd:slurmd:Slurm'
    'srun:slurm-client:Slurm' 'munged:munge:Slurm' 'gcc:gcc:programs in C'
    'systemd-analyze:systemd:services' 'mmdebstrap:mmdebstrap:tests on a fresh Debian'
    'chromium:chromium:tests of the GUI in a browser'
    'promtool:prometheus:tests of the rules for Prometheus'
    'ansible-playbook:ansible-core:tests of the Ansible role'
    'clang-14:clang-14:a test that compiles the programs of fast/bpf anew'
)
CHECK_PROGRAMS=('shellcheck:shellcheck:checks of scripts')
DEB_PROGRAMS=(
    'python3:python3:packages' 'dh:debhelper:packages' 'dpkg-buildpackage:dpkg-dev:packages'
)

# In tests a folder stands for the root of this machine.
readonly MACHINE=${RI2N_DEV_MACHINE-}
# The packages that this command has installed on this machine, one a line, whatever the checkout.
readonly PACKAGES_RECORD=$MACHINE/var/lib/ri2n-dev/packages

cargo_packages() { # Debian 12 has a new enough cargo under another name
    if apt-cache show cargo-web >/dev/null 2>&1; then
        printf '%s:the helper\n' cargo-web rustc-web rustfmt-web
    else
        printf '%s:the helper\n' cargo rustc rustfmt
    fi
}

# missing_packages: the packages that are not there, each as `package:what for`.
missing_packages() {
    local each
    {
        for each in "${PROGRAMS[@]}"; do
            command -v "${each%%:*}" >/dev/null || echo "${each#*:}"
        done
        python3 -c 'import ensurepip, venv' 2>/dev/null || echo 'python3-venv:Python packages'
        if [[ $LEVEL == full ]]; then
            # For MPI programs in labs, with Debian's own Python: the virtual environment's Python
            # has no Open MPI.
            /usr/bin/python3 -c 'import mpi4py' 2>/dev/null || echo 'python3-mpi4py:MPI programs'
            # Slurm's plugins, and what plugins are built with, are no programs.
            compgen -G '/usr/lib/*/slurm*/auth_munge.so' >/dev/null ||
                echo slurm-wlm-basic-plugins:Slurm
            [[ -e /usr/include/slurm/spank.h ]] || echo libslurm-dev:Slurm
            [[ -e /usr/include/stdlib.h ]] || echo 'libc6-dev:programs in C'
        fi
        [[ $HELPER == no ]] || cargo_ok || cargo_packages
        ! kernel_missing || "$KERNEL_BUILD" --print-packages | sed "s/$/:the guests' kernel/"
    } | sort -u
}

# missing_names: the same, the names alone.
missing_names() { missing_packages | cut -d: -f1 | sort -u; }

apt_install() {
    # The lab runs its own OVS and needs no service. So packages start none, and the machine stays
    # as quiet as it was. An administrator's own policy-rc.d wins.
    local policy=$MACHINE/usr/sbin/policy-rc.d made=0 status=0
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        made=1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300 \
        -o APT::Keep-Downloaded-Packages=false install --no-install-recommends "$@" || status=$?
    ((made)) && rm -f "$policy"
    return "$status"
}

# installed_packages: the names of what dpkg has installed, sorted; nothing where there is no dpkg.
installed_packages() {
    # shellcheck disable=SC2016 # dpkg-query replaces these
    dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null |
        sed -n 's/^ii  *//p' | LC_ALL=C sort -u
}

# record_since FILE: write down what dpkg has now and had not when FILE was written.
record_since() {
    local new
    new=$(comm -13 "$1" <(installed_packages))
    [[ -n $new ]] || return 0
    mkdir -p "$(dirname "$PACKAGES_RECORD")"
    printf '%s\n' "$new" >>"$PACKAGES_RECORD"
}

# tell_packages: what is missing, for what, and how large it is.
tell_packages() {
    local package purpose told size
    declare -A names=()
    while IFS=: read -r package purpose; do
        names[$purpose]+=" $package"
    done < <(missing_packages)
    # It says so, asks, and takes this "no" for a failure.
    told=$(LC_ALL=C apt-get --assume-no install --no-install-recommends "$@" 2>/dev/null || true)
    size=$(sed -n -e 's/^Need to get \(.*\) of archives\.$/\1 to download, /p' \
        -e 's/^After this operation, \(.*\) of additional disk .*/\1 on disk/p' <<<"$told" |
        tr -d '\n')
    say "Debian packages to install${size:+ ($size)}:"
    for purpose in "${!names[@]}"; do
        say "  for $purpose:${names[$purpose]}"
    done | LC_ALL=C sort
}

install_packages() {
    local packages=() before
    mapfile -t packages < <(missing_names)
    ((${#packages[@]})) || return 0
    command -v apt-get >/dev/null ||
        die "install these first, this machine has no apt-get: ${packages[*]}"
    ((EUID == 0)) ||
        die "these Debian packages are missing: ${packages[*]}; type: $(line_for_root "$COMMAND")"
    step "apt-get update" apt-get -o DPkg::Lock::Timeout=300 update ||
        say "warning: apt-get update failed, trying with the lists that are here"
    mapfile -t packages < <(missing_names) # the update may have changed which names exist
    tell_packages "${packages[@]}"
    before=$(mktemp)
    installed_packages >"$before"
    step "apt-get install" apt_install "${packages[@]}" ||
        say "warning: apt-get install reported a failure"
    record_since "$before"
    rm -f "$before"
    # A package whose service could not start is good enough, as long as its programs are there.
    mapfile -t packages < <(missing_names)
    ((${#packages[@]} == 0)) || die "still missing after apt-get install: ${packages[*]}"
}

