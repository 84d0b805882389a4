#!/bin/bash
#SBATCH -C "[rack1|rack2]&a100-80"
#SBATCH -G 4 -N 1 -A physics -t 1-12:30:15
./simulate
