#!/bin/bash
#SBATCH -q borrow -A vision -p gpu
#SBATCH --nodes=4 --gres=gpu:8
#SBATCH --switches=1@02:00:00
#SBATCH --time=3-0
srun python big.py
