#!/bin/bash
#SBATCH --comment="never closed
#SBATCH --gpus=1 -A nlp -p gpu
true
