#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --gpus=32
#SBATCH -A nlp -p gpu
srun python train.py
