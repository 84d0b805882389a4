#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8 --ntasks-per-node=8
#SBATCH --container-image=nvcr.io#nvidia/pytorch:24.05-py3
#SBATCH --container-mounts=/lustre:/lustre
#SBATCH --container-workdir=/workspace
#SBATCH -A nlp -p gpu -t 4:00:00
srun --mpi=pmix python pretrain.py
