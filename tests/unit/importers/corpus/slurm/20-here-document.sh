#!/bin/bash
#SBATCH -J makes-config -G 8 -N 1 -A nlp -p gpu -t 60
cat > config.yaml <<EOF
#SBATCH --this-is=data
run: $SLURM_JOB_ID
EOF
cat <<-'END' > ds.json
	{"zero_optimization": {"stage": 3}}
	END
srun deepspeed train.py --deepspeed ds.json
