#!/usr/bin/env bash
# Make a virtual environment in which the shipped validation modules run on the CPU, for tests.
#
#   scripts/setup-test-validation.sh [DIR]        (DIR: .venv-validation in the project root when not given)
#
# It holds torch (CPU), transformers, peft, onnxruntime, and this project with its test tools. Needs about 2 GB of
# disk. Run it again whenever you like: what is finished is left alone. PYTHON=python3.12 chooses another interpreter.
#
# The CPU build of torch comes from where pip's configuration points, else from PyTorch's own index.
set -euo pipefail

readonly TORCH=torch==2.13.0+cpu
readonly TORCH_INDEX=https://download.pytorch.org/whl/cpu

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")

say() { printf 'setup-test-validation: %s\n' "$*"; }

[[ $# -le 1 ]] || { say "usage: setup-test-validation.sh [DIR]" >&2; exit 1; }
dir=${1:-$root/.venv-validation}
marker=$dir/.flock-hpc-validation
wanted="${TORCH} recipe 1 $(sha256sum "$root/pyproject.toml" | cut -d' ' -f1)"

if [[ -f $marker && $(<"$marker") == "$wanted" ]]; then
    say "$dir is finished already"
    exit 0
fi
[[ -x $dir/bin/python ]] || "${PYTHON:-python3}" -m venv "$dir"
pip=("$dir/bin/python" -m pip install --quiet --no-input --disable-pip-version-check)
if ! "$dir/bin/python" -c 'import torch' 2>/dev/null; then
    say "installing $TORCH"
    "${pip[@]}" "$TORCH" </dev/null 2>/dev/null || "${pip[@]}" --extra-index-url "$TORCH_INDEX" "$TORCH" </dev/null
fi
say "installing the modules' libraries and the project"
"${pip[@]}" --editable "${root}[dev,validation]" "$TORCH" </dev/null
printf '%s\n' "$wanted" >"$marker"
say "ready: $dir/bin/python"
