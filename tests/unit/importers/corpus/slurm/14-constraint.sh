#!/bin/bash
#SBATCH --constraint="nvlink&ib"
#SBATCH --gres=gpu:h100:8 -N 2
#SBATCH -A nlp -t 45:30
srun ./bench
