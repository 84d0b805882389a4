#!/bin/bash
#SBATCH -J sweep -N1 --gres=gpu:4 -t 90 -A vision   # all on one line
#SBATCH --mem 64G --cpus-per-task 16 -p gpu
python sweep.py --seed 1
