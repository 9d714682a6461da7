#!/usr/bin/env bash
# Installs what the test rig for Slurm (tests/rigs/slurm.py) needs, on Debian or Ubuntu.
# Does nothing where all of it is there. Starts no service: the rig runs daemons of its own.
set -euo pipefail

PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# One package and one of its commands on each line.
needed="
slurmctld slurmctld
slurmd slurmd
slurm-client sbatch
munge munged
slurmdbd slurmdbd
mariadb-server mariadbd
mariadb-server mariadb-install-db
"

missing_packages() {
    local package command
    while read -r package command; do
        if [ -n "$package" ] && ! command -v "$command" >/dev/null; then
            echo "$package"
        fi
    done <<<"$needed" | sort -u
}

say() { echo "setup-test-slurm: $*"; }
die() {
    say "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Packages start their services while they are installed, unless this file says no.
policy=/usr/sbin/policy-rc.d
hold_services() {
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
}

install_packages() {
    local log
    log=$(mktemp)
    if ! { as_root env DEBIAN_FRONTEND=noninteractive apt-get update &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } \
        </dev/null >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        die "could not install $*"
    fi
    rm -f "$log"
}

mapfile -t packages < <(missing_packages)
if [ "${#packages[@]}" -eq 0 ]; then
    say "everything is there already"
    exit 0
fi
command -v apt-get >/dev/null || die "not Debian or Ubuntu; please install: ${packages[*]}"
[ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || die "needs root or sudo to install: ${packages[*]}"
hold_services
install_packages "${packages[@]}"
mapfile -t still_missing < <(missing_packages)
[ "${#still_missing[@]}" -eq 0 ] || die "installed, yet without their commands: ${still_missing[*]}"
say "installed ${packages[*]}"
