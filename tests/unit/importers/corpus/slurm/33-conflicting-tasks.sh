#!/bin/bash
#SBATCH --nodes=2 --gres=gpu:8
#SBATCH --ntasks=8 --gpus-per-task=1
#SBATCH -A nlp -p gpu
srun python train.py
