#!/bin/bash
#SBATCH --job-name=train-after-prepare
#SBATCH --dependency=afterok:4711
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --gpus=8
#SBATCH -p gpu -A nlp -t 1:00:00
python train.py
