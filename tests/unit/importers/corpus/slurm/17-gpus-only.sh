#!/bin/bash
#SBATCH --gpus=h100:32
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-gpu=8
#SBATCH --mem-per-gpu=100G
#SBATCH -A nlp -t 600
srun python train.py
