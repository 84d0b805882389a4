#!/bin/bash
#SBATCH -J llm-7b
#SBATCH -A nlp
#SBATCH -p gpu
#SBATCH -N 4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH -c 12
#SBATCH -t 2-00:00:00
#SBATCH -o logs/%x-%j.out
#SBATCH -e logs/%x-%j.err

module purge
module load cuda/12.4 nccl

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export WORLD_SIZE=$SLURM_NTASKS

srun --cpu-bind=none python -u train.py --config configs/7b.yaml
