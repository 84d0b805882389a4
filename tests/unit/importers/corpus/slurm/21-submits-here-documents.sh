#!/bin/bash
# A wrapper that submits one job for each model size.
sbatch --time=30 <<'EOF'
#!/bin/bash
#SBATCH --job-name=small
#SBATCH --gpus=1 -A vision -p gpu
python train.py --size small
EOF

sbatch -N 2 --gpus-per-node=8 <<EOF
#!/bin/bash
#SBATCH --job-name=large
#SBATCH -A vision -p gpu -t 1-0
srun python train.py --size large --out $OUT
EOF
