#!/bin/bash
#SBATCH --job-name=notebook-check
#SBATCH --partition=gpu
#SBATCH --account=vision
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=00:30:00

nvidia-smi
python check.py
