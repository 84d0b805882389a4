#!/usr/bin/env python3
#SBATCH --gres=gpu:1
#SBATCH -A physics
#SBATCH -p a100
#SBATCH -t 00:10:00
import os
print("task", os.environ["SLURM_PROCID"], "of", os.environ["SLURM_JOB_NAME"])
