#!/bin/bash
#SBATCH -J benchmark -A rai-sys -p gpu
#SBATCH -N 30 --gres=gpu:h100:8 --ntasks-per-node=8
#SBATCH -t 0-3
srun ./all_reduce_perf -b 8 -e 16G -f 2
