#!/bin/bash
#SBATCH --gres=gpu:h100:4,nvme:1
#SBATCH --tmp=500G --licenses=matlab:1
#SBATCH -A physics -t 1:30
./solve
