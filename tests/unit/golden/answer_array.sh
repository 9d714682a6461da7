#!/bin/bash
#SBATCH --job-name=answer-array-abcdef
#SBATCH --output=/campaign/logs/arena-hard/answer_batches/answer-batch-%a_%A_%a_20260101_000000.out
#SBATCH --error=/campaign/logs/arena-hard/answer_batches/answer-batch-%a_%A_%a_20260101_000000.err
#SBATCH --open-mode=append
#SBATCH --array=1-4%2
#SBATCH --signal=B:USR2@120
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=02:00:00
#SBATCH --requeue
#
# Arena-Hard answers, plan 20260101_000000: one array job, task N runs batch N.
# Written by flock-hpc 0.1.0. Submit by hand with:  sbatch /campaign/generated_answer_scripts/run_arena_hard_answers_array.sh
set -euo pipefail
trap '' USR2  # for the engine, which listens as soon as it has started

batch=$(( ${SLURM_ARRAY_TASK_ID:?this is an array job: submit it with sbatch} + 0 ))
exec bash /campaign/generated_answer_scripts/run_arena_hard_answers_batch_"$batch".sh
