#!/bin/bash
#SBATCH --job-name=ray
#SBATCH --nodes=3
#SBATCH --tasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH -A nlp -p gpu -t 6:00:00
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
srun --nodes=1 --ntasks=1 -w "$head" ray start --head --block &
srun --nodes=2 --ntasks=2 -r 1 ray start --address "$head:6379" --block &
wait
