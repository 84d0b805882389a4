#!/bin/bash -l
#SBATCH --partition=gpu-short
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --account=nlp
set -euo pipefail
ml cuda
srun --ntasks-per-node=8 --kill-on-bad-exit=1 bash -c 'python train.py --rank $SLURM_PROCID'
