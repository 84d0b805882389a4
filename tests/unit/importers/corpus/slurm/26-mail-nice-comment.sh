#!/bin/bash
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --mail-user=someone@example.com
#SBATCH --nice=100
#SBATCH --comment="ablation, table 3"
#SBATCH --reservation=friday
#SBATCH --begin=now+1hour
#SBATCH --hold
#SBATCH --nodelist=gpu[01-04]
#SBATCH --exclude=gpu07
#SBATCH --gpus=8 -A vision -p gpu -t 1:00:00
python ablation.py
