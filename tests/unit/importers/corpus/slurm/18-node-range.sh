#!/bin/bash
#SBATCH --nodes=2-4
#SBATCH --gpus-per-node=8
#SBATCH --partition=gpu -A nlp -t 12:00:00
srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 elastic.py
