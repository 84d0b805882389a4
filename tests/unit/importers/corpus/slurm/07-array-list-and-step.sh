#!/bin/bash
#SBATCH -a 1,3,10-30:10
#SBATCH -G 1 -p gpu -A vision -t 10
./evaluate.sh $SLURM_ARRAY_TASK_ID
