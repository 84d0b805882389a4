#!/bin/bash
#SBATCH --gpu-per-node=8
#SBATCH -A nlp -p gpu
srun python train.py
