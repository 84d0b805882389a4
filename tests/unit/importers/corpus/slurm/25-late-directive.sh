#!/bin/bash
#SBATCH --gpus=4
#SBATCH -A vision -p gpu -t 10
# SBATCH --mem=10G
##SBATCH --nodes=4

echo starting
#SBATCH --gpus=8
python train.py
