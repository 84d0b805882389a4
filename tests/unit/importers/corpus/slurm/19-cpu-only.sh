#!/bin/bash
#SBATCH --job-name=tokenize
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --mem-per-cpu=2000
#SBATCH --account=nlp
#SBATCH --time=3:00:00
srun python tokenize.py --shard $SLURM_PROCID
