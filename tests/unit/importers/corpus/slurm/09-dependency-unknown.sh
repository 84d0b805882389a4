#!/bin/bash
#SBATCH --dependency=afterany:99,afternotok:4711
#SBATCH --gpus=8 -p gpu -A nlp -t 1:00:00
python report.py
