#!/bin/bash
#SBATCH --job-name=resumable
#SBATCH --nodes=2 --gpus-per-node=8 --ntasks-per-node=8
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --account=nlp --partition=gpu --time=12:00:00

save() { touch STOP; wait; scontrol requeue $SLURM_JOB_ID; exit 0; }
trap save USR1

srun python train.py --resume auto &
wait
