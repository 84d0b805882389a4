#!/bin/bash
#SBATCH --gpus=2
#SBATCH -A vision -p gpu
#SBATCH -t 5
python windows.py
