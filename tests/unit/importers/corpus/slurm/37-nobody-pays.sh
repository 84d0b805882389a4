#!/bin/bash
#SBATCH --gpus=8 --account=chemistry
python train.py
