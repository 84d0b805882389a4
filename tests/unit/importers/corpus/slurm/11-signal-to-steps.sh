#!/bin/bash
#SBATCH --gpus=8 --nodes=1
#SBATCH --signal=SIGUSR2@600
#SBATCH -A nlp -p gpu -t 8:00:00
srun python lightning_train.py
