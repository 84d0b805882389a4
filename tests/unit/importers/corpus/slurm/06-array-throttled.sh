#!/bin/bash
#SBATCH --job-name=hyperparameters
#SBATCH --array=0-15%4
#SBATCH --gres=gpu:a100:2
#SBATCH --nodes=1
#SBATCH --account=physics
#SBATCH --partition=a100
#SBATCH --time=0-06:00
LR=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" rates.txt)
python fit.py --lr "$LR"
