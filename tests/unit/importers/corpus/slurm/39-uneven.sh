#!/bin/bash
#SBATCH --nodes=4 --gpus=6
#SBATCH -A nlp -p gpu
srun python train.py
