#!/bin/bash
#SBATCH --gpus=8 --zebra-stripes=on -A nlp -p gpu -t 30
#SBATCH --kangaroo pouch
python train.py
