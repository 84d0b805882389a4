#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --account=rai-sys
#SBATCH --partition=gpu
#SBATCH --qos=scavenger
#SBATCH --gpus=8
#SBATCH --array=1-3
#SBATCH --time=2:00:00

python sweep.py --seed "$SLURM_ARRAY_TASK_ID"
