#!/bin/bash
#SBATCH --qos=scavenger
#SBATCH --account=vision
#SBATCH --partition=preempt
#SBATCH --gpus=16
#SBATCH --requeue
#SBATCH --time=UNLIMITED
python sweep.py
