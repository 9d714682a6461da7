#!/bin/bash
#SBATCH --job-name=answer-batch-1-abcdef
#SBATCH --output=/campaign/logs/arena-hard/answer_batches/answer-batch-1_%j_20260101_000000.out
#SBATCH --error=/campaign/logs/arena-hard/answer_batches/answer-batch-1_%j_20260101_000000.err
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@120
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=02:00:00
#SBATCH --requeue
#
# Arena-Hard answers, batch 1 of plan 20260101_000000; 5 answers to generate when it was written.
# Written by flock-hpc 0.1.0. Submit by hand with:  sbatch /campaign/generated_answer_scripts/run_arena_hard_answers_batch_1.sh
# Models:
#   m
#   x
set -euo pipefail

# ---- The models' servers, one after another ---------------------------------------------------------------
# The engine below starts each as:  FLOCK_HPC_GROUP=N bash THIS_SCRIPT serve ADDRESS...   and watches and ends it.
if [[ "${1:-}" == serve ]]; then
    shift
    case "${FLOCK_HPC_GROUP:?which of the servers}" in
    1)  # m
        exec /venv/bin/python -m automate.serving.rehearsal --model m --answers \
            "$@"
        ;;
    2)  # x
        exec /venv/bin/python -m automate.serving.rehearsal --model base-b --answers --also x \
            "$@"
        ;;
    *)
        echo "this batch has no server $FLOCK_HPC_GROUP" >&2
        exit 2
        ;;
    esac
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
export A='b c'

# ---- The batch: claim each model, start its server, ask what is due, end the server -----------------------
exec /venv/bin/python -m automate run-answers \
    --workspace /campaign \
    --config /campaign/generated_answer_configs/arena_hard_answers_batch_1.yaml \
    --sha256 b79606fb3afea5bd1609ed40b622142f1c98125abcfe89a76a661b0e8e343910 \
    --version 0.1.0 \
    --script /campaign/generated_answer_scripts/run_arena_hard_answers_batch_1.sh
