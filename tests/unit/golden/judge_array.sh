#!/bin/bash
#SBATCH --job-name=judge-array-cd6c3c
#SBATCH --output=/campaign/logs/arena-hard/judgment_batches/judge-batch-%a_%A_%a_20250907_143000.out
#SBATCH --error=/campaign/logs/arena-hard/judgment_batches/judge-batch-%a_%A_%a_20250907_143000.err
#SBATCH --open-mode=append
#SBATCH --array=1-12%4
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
# Arena-Hard judgment, plan 20250907_143000: one array job, task N runs batch N + 12.
# Written by flock-hpc VERSION. Submit by hand with:  sbatch /campaign/generated_judgment_scripts/run_arena_hard_judgment_array.sh
set -euo pipefail
trap '' USR2  # for the engine, which listens as soon as it has started

batch=$(( ${SLURM_ARRAY_TASK_ID:?this is an array job: submit it with sbatch} + 12 ))
exec bash /campaign/generated_judgment_scripts/run_arena_hard_judgment_batch_"$batch".sh
