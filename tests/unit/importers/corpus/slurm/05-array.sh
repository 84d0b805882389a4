#!/bin/bash
#SBATCH --job-name=seeds
#SBATCH --array=0-3
#SBATCH --gpus=1
#SBATCH --partition=gpu
#SBATCH --account=vision
#SBATCH --time=4:00:00
#SBATCH --output=out/%A_%a.log

python train.py --seed ${SLURM_ARRAY_TASK_ID}
