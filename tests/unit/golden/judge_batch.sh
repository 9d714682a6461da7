#!/bin/bash
#SBATCH --job-name=judge-batch-1-cd6c3c
#SBATCH --output=/campaign/logs/arena-hard/judgment_batches/judge-batch-1_%j_20250907_143000.out
#SBATCH --error=/campaign/logs/arena-hard/judgment_batches/judge-batch-1_%j_20250907_143000.err
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@120
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=02:00:00
#SBATCH --partition=capella
#SBATCH --account=p_flock
#SBATCH --exclude='c[1-3]'
#SBATCH --gres=gpu:1
#SBATCH --mail-type=END
#SBATCH --exclusive
#
# Arena-Hard judgment, batch 1 of plan 20250907_143000; 3000 games to play when it was written.
# Written by flock-hpc VERSION. Submit by hand with:  sbatch /campaign/generated_judgment_scripts/run_arena_hard_judgment_batch_1.sh
# Models:
#   tulu3-8b-final
#   tulu3-8b-step48000
set -euo pipefail

# ---- The judge's server ------------------------------------------------------------------------------
# The engine below starts it as:  bash THIS_SCRIPT serve ADDRESS...   and watches, restarts and ends it.
if [[ "${1:-}" == serve ]]; then
    shift
    set +u
    if ! type module >/dev/null 2>&1; then
        for init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/lmod/lmod/init/bash; do
            # shellcheck disable=SC1090  # whichever of them the site has
            if [[ -r "$init" ]]; then source "$init"; break; fi
        done
    fi
    module load CUDA/12.4.0
    set -u
    set +u
    # shellcheck disable=SC1091  # made by the user
    source /opt/vllm/bin/activate
    set -u
    export VLLM_LOGGING_LEVEL=INFO
    ulimit -n 65536
    judge='/models/judge 70b'
    # A copy on this node's disk, where the engine has made or found one.
    if [[ -n "${FLOCK_HPC_JUDGE_PATH:-}" && -d "$FLOCK_HPC_JUDGE_PATH" ]]; then
        judge="$FLOCK_HPC_JUDGE_PATH"
    fi
    exec vllm serve "$judge" --served-model-name neuralmagic-llama3.1-70b-instruct-fp8 --tensor-parallel-size 1 --max-model-len 32768 --enable-prompt-tokens-details --seed 0 \
        "$@"
fi

trap '' USR2  # "the time is nearly over": for the engine, which listens as soon as it has started

# ---- What a node without internet needs ----------------------------------------------------------------
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_DATASETS_OFFLINE=1
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export NO_PROXY="localhost,127.0.0.1,::1${NO_PROXY:+,$NO_PROXY}"
export no_proxy="localhost,127.0.0.1,::1${no_proxy:+,$no_proxy}"
export PYTHONUNBUFFERED=1
# Compile caches on the node, one folder a job: jobs that share one have been seen to break each other's.
FLOCK_HPC_CACHE="${TMPDIR:-/tmp}/flock-hpc-$(id -u)-${SLURM_JOB_ID:-$$}"
export FLOCK_HPC_CACHE
export VLLM_CACHE_ROOT="$FLOCK_HPC_CACHE/vllm"
export TRITON_CACHE_DIR="$FLOCK_HPC_CACHE/triton"
export TORCHINDUCTOR_CACHE_DIR="$FLOCK_HPC_CACHE/inductor"
export OMP_NUM_THREADS=8

# ---- The batch: claim each model, start the judge, play what is due, end the judge -----------------------
exec /opt/venv/bin/python -m automate run-batch \
    --workspace /campaign \
    --config /campaign/generated_judgment_configs/arena_hard_judgment_batch_1.yaml \
    --sha256 4f2104e8a71276caefa90246ede1776acd87d97a386ec6c7c9a532c26e704348 \
    --version VERSION \
    --script /campaign/generated_judgment_scripts/run_arena_hard_judgment_batch_1.sh
