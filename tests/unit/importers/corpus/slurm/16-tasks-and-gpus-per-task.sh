#!/bin/bash
#SBATCH --ntasks=16
#SBATCH --gpus-per-task=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=10
#SBATCH --account=vision
#SBATCH --partition=gpu
#SBATCH --time=10:00:00
srun python -m torch_slurm_main
