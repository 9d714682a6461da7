#!/usr/bin/env bash
# Finds or installs the headless Chromium that the report's browser test needs, on Debian or Ubuntu.
# Does nothing where one is there; FLOCK_HPC_TEST_CHROMIUM names one of your own.
set -euo pipefail

say() { echo "setup-test-browser: $*"; }
die() {
    say "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

find_browser() {
    local name
    for name in "${FLOCK_HPC_TEST_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
        if [ -n "$name" ] && command -v "$name" >/dev/null && starts "$(command -v "$name")"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

# Ubuntu's chromium package is a stub that only asks for snap: a browser counts when it renders a page.
starts() {
    timeout 60 "$1" --headless --no-sandbox --disable-gpu --dump-dom 'data:text/html,<p>it-starts</p>' 2>/dev/null |
        grep -q it-starts
}

install_browser() {
    local log
    log=$(mktemp)
    if ! { as_root env DEBIAN_FRONTEND=noninteractive apt-get update &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } \
        </dev/null >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        die "could not install chromium"
    fi
    rm -f "$log"
}

if ! browser=$(find_browser); then
    command -v apt-get >/dev/null || die "no Chromium here and no apt-get: name one in FLOCK_HPC_TEST_CHROMIUM"
    say "installing chromium"
    install_browser
    browser=$(find_browser) || die "chromium was installed, but does not start"
fi
say "$("$browser" --version 2>/dev/null | head -n 1) at $browser"
