#!/bin/bash
#SBATCH --gpus=1 -A nlp -p gpu --time=tomorrow
true
