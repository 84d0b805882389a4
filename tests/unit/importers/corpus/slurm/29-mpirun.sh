#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --gpus=8
#SBATCH -A physics -p a100 -t 1-00:00:00
#SBATCH --hint=nomultithread --distribution=block:block
mpirun -np 8 ./lattice.x
