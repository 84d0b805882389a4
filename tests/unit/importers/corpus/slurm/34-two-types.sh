#!/bin/bash
#SBATCH --gres=gpu:a100:2,gpu:h100:2
#SBATCH -A nlp
./mixed
