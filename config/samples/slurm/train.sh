#!/bin/bash
#SBATCH --job-name=translate
#SBATCH --account=rai-sys
#SBATCH --partition=gpu
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=10
#SBATCH --switches=2
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --output=logs/%x-%j.out
#SBATCH --mail-type=END,FAIL

module load cuda/12.4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))

srun python train.py --resume auto
