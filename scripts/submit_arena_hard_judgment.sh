#!/usr/bin/env bash
# Submits Arena-Hard judgment jobs: this command's options, carried out by flock-hpc.
set -euo pipefail

usage() {
    cat <<USAGE
Usage: ${0##*/} (--all | --models NAME...) [OPTIONS]

Submits judgment jobs, unless --dry-run or --validate is given.

  --all              the models of the workspace's models file
  --models NAME...   these models
  --batch-size N     models a job (default: the setting batch_size, 10)
  --dry-run          write job scripts and configs, submit nothing
  --validate         only check that everything is ready
  --help             show this

Other options are handed on to 'flock-hpc judge': --workspace DIR, --models-file FILE, --from-api-config,
--baseline NAME, --limit-questions N, --executor KIND, --skip-missing, --wait, --max-parallel N, --no-array.

Examples:
  ${0##*/} --all
  ${0##*/} --all --batch-size 5 --dry-run
  ${0##*/} --all --validate
  ${0##*/} --models tulu3-8b-rank64-alpha1e5-001-step48000 tulu3-8b-rank64-alpha1e5-001-final
USAGE
}

refuse() {
    printf '%s: %s\nSee %s --help\n' "${0##*/}" "$1" "${0##*/}" >&2
    exit 2
}

# The flock-hpc of the environment, else of the checkout that this file stands in, else of python3.
find_flock_hpc() {
    local here
    here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
    if flock_hpc=$(type -P flock-hpc); then
        command=("$flock_hpc")
    elif [[ -x "$here/../.venv/bin/flock-hpc" ]]; then
        command=("$here/../.venv/bin/flock-hpc")
    elif python3 -c 'import automate.cli.main' 2>/dev/null; then
        command=(python3 -m automate)
    else
        printf '%s\n' "flock-hpc was not found: not on PATH, not in $here/../.venv, not by python3." \
            "  -> install it with 'pip install .' in its checkout, and activate that environment" >&2
        exit 1
    fi
}

action=submit
selected=no
options=()
batch_size=()
while (($# > 0)); do
    case $1 in
        -h | --help)
            usage
            exit 0
            ;;
        --models)
            selected=yes
            options+=(--models)
            shift
            [[ $# -gt 0 && $1 != -* ]] || refuse "--models needs at least one name"
            while [[ $# -gt 0 && $1 != -* ]]; do
                options+=("$1")
                shift
            done
            continue
            ;;
        --batch-size)
            (($# > 1)) || refuse "--batch-size needs a number"
            batch_size=(--batch-size "$2")
            shift
            ;;
        --batch-size=*) batch_size=("$1") ;;
        --all | --models=* | --models-file | --models-file=* | --from-api-config | --from-api-config=*)
            selected=yes
            options+=("$1")
            ;;
        --validate | --validate-only) action=validate ;;
        --dry-run) [[ $action == validate ]] || action=dry-run ;;
        --submit) ;; # what happens anyway; --dry-run and --validate win over it
        *) options+=("$1") ;;
    esac
    shift
done
[[ $selected == yes ]] || refuse "say which models: --all or --models NAME..."

case $action in
    validate) arguments=(validate-only "${options[@]}") ;; # how models are spread over jobs changes no check
    dry-run) arguments=(judge "${options[@]}" ${batch_size[@]+"${batch_size[@]}"} --dry-run) ;;
    submit) arguments=(judge "${options[@]}" ${batch_size[@]+"${batch_size[@]}"} --submit) ;;
esac
find_flock_hpc
printf 'Executing: flock-hpc%s\n' "$(printf ' %q' "${arguments[@]}")" >&2
exec "${command[@]}" "${arguments[@]}"
