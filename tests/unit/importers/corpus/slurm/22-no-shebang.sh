#SBATCH --gpus=2
#SBATCH --account=vision
#SBATCH --partition=gpu-short
python quick.py
