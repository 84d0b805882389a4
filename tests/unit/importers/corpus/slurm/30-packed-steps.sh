#!/bin/bash
#SBATCH --nodes=1 --ntasks=4 --gpus-per-task=1 --cpus-per-task=4
#SBATCH -A vision -p gpu -t 2:00:00
for i in 0 1 2 3; do
  srun --ntasks=1 --exact --gpus-per-task=1 python eval.py --part $i &
done
wait
