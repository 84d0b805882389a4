#!/bin/bash
#SBATCH --export=NONE,WANDB_MODE=offline,HF_HOME=/home/hf,TOKEN
#SBATCH --chdir=/home/lab/project
#SBATCH --gpus=1 -A nlp -p gpu -t 20
source ~/.bashrc
echo "process $$ in $(pwd) on $(HOSTNAME)"
python finetune.py
