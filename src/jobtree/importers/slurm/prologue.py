r"""The shell code that runs in a pod before the body of a batch script, so that the body runs unchanged.

A pod runs ``bash -c PROLOGUE NAME BODY INTERPRETER…``. Under Slurm the body runs once, on the first node, and
``srun`` starts tasks on all nodes. Under Jobtree the body runs in each pod, and ``srun`` starts the tasks of
its own pod: together the pods start the same tasks with the same numbers. The prologue

- exports the ``SLURM_*`` names from what Jobtree sets (NODE_RANK, NNODES, NPROC_PER_NODE, MASTER_ADDR,
  JOBTREE_RUN, JOBTREE_ATTEMPT); names that are known in advance (SLURM_NTASKS, SLURM_JOB_NAME, …) are in the
  environment of the container;
- replaces ``srun``, ``scontrol`` and ``module``: for bash by functions, for other programs by files on the
  PATH;
- passes SIGTERM on, as the signal that ``--signal`` asked for (SLURM_JOBTREE_SIGNAL, with ``B:`` to the
  shell alone).

The job number is computed from the name of the Run: it is the same in all pods and attempts, as under Slurm.
"""

from typing import Final

SRUN: Final = r"""
nodes= tasks= per_node= hosts= first=0 output= error= gpus=${SLURM_GPUS_PER_TASK:-0}
while (($#)); do
  word=$1 value=; shift
  case $word in
    --) break ;;
    --*=*) value=${word#*=} word=${word%%=*} ;;
    --multi-prog) echo "srun: --multi-prog has no stand-in under Jobtree" >&2; exit 1 ;;
    --exclusive | --exact | --overlap | --label | --unbuffered | --pty | --quiet | --verbose) ;;
    --overcommit | --oversubscribe | --no-* | --preserve-env | --disable-status | --contiguous) ;;
    --kill-on-bad-exit | --test-only | --immediate | --spread-job | --use-min-nodes | --resv-ports) ;;
    --reboot | --x11 | --whole) ;;
    --container-mount-home | --container-remap-root | --container-writable | --container-readonly) ;;
    --*) value=${1:-}; shift ;;
    -[EIkKlOQsuvXZH]*) ;;
    -?) value=${1:-}; shift ;;
    -?*) value=${word:2} word=${word:0:2} ;;
    *) set -- "$word" "$@"; break ;;
  esac
  case $word in
    -N | --nodes) nodes=${value##*-} ;;
    -n | --ntasks) tasks=$value ;;
    --ntasks-per-node) per_node=$value ;;
    -w | --nodelist) hosts=$value ;;
    -r | --relative) first=$value ;;
    -o | --output) output=$value ;;
    -e | --error) error=$value ;;
    --gpus-per-task) gpus=${value##*:} ;;
    -D | --chdir) cd "$value" || exit 1 ;;
    --export)
      IFS=, read -ra settings <<<"$value"
      for setting in "${settings[@]}"; do [[ $setting != *=* ]] || export "${setting?}"; done ;;
  esac
done
(($#)) || { echo "srun: no command" >&2; exit 1; }

if [[ -n $hosts ]]; then
  mapfile -t names < <(bash -c "$JOBTREE_SCONTROL" scontrol show hostnames "$hosts")
  nodes=${#names[@]} index=-1
  for i in "${!names[@]}"; do
    if [[ ${names[i]} == "$SLURMD_NODENAME" || ${names[i]} == "${SLURMD_NODENAME%%.*}" ]]; then index=$i; fi
  done
else
  if [[ -z $nodes ]]; then
    nodes=$((SLURM_NNODES - first))
    if [[ -n $tasks ]] && ((tasks < nodes)); then nodes=$tasks; fi
  fi
  index=$((SLURM_NODEID - first))
fi
if ((index < 0 || index >= nodes)); then exit 0; fi

if [[ -z $tasks ]]; then
  if [[ -n $per_node ]]; then tasks=$((nodes * per_node))
  elif ((nodes == SLURM_NNODES)); then tasks=$SLURM_NTASKS
  else tasks=$((nodes * ${SLURM_NTASKS_PER_NODE:-1})); fi
fi
mine=$((tasks / nodes)) more=$((tasks % nodes))
before=$((index * mine + (index < more ? index : more)))
if ((index < more)); then mine=$((mine + 1)); fi

task() {
  export SLURM_LOCALID=$1 SLURM_PROCID=$((before + $1)) SLURM_NTASKS=$tasks SLURM_NPROCS=$tasks
  export SLURM_NODEID=$index SLURM_NNODES=$nodes SLURM_STEP_NUM_TASKS=$tasks SLURM_STEP_NUM_NODES=$nodes
  export SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_TASK_PID=$BASHPID
  if ((gpus > 0)); then
    CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${claimed[*]:$1 * gpus:gpus}")
    export CUDA_VISIBLE_DEVICES
  fi
  shift
  if [[ -n $output ]]; then exec >>"$(path "$output")"; fi
  if [[ -n $error ]]; then exec 2>>"$(path "$error")"
  elif [[ -n $output ]]; then exec 2>&1; fi
  exec "$@"
}
path() {
  local text=$1
  text=${text//%j/$SLURM_JOB_ID} text=${text//%J/$SLURM_JOB_ID.0} text=${text//%x/$SLURM_JOB_NAME}
  text=${text//%A/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}} text=${text//%a/${SLURM_ARRAY_TASK_ID:-4294967294}}
  text=${text//%N/${SLURMD_NODENAME%%.*}} text=${text//%n/$SLURM_NODEID} text=${text//%t/$SLURM_PROCID}
  printf %s "${text//%s/0}"
}
claim() {  # as many GPUs as its tasks need, of those that no other step of this pod has
  local i need=$((mine * gpus)) held=$JOBTREE_SLURM_DIR/gpu
  if ((need > SLURM_GPUS_ON_NODE)); then
    echo "srun: $need GPUs are asked for, but the pod has $SLURM_GPUS_ON_NODE" >&2; exit 1
  fi
  while :; do
    until mkdir "$held-lock" 2>/dev/null; do sleep 0.1; done
    claimed=()
    for ((i = 0; i < SLURM_GPUS_ON_NODE && ${#claimed[@]} < need; i++)); do
      if [[ ! -d $held-$i ]]; then claimed+=("$i"); fi
    done
    if ((${#claimed[@]} == need)); then break; fi
    rmdir "$held-lock"; sleep 0.2
  done
  mkdir "${claimed[@]/#/$held-}"; rmdir "$held-lock"
  trap 'rmdir "${claimed[@]/#/$JOBTREE_SLURM_DIR/gpu-}" 2>/dev/null' EXIT
}
if ((gpus > 0)); then claim
elif ((mine == 1)); then task 0 "$@"; fi

pids=() worst=0
for ((i = 0; i < mine; i++)); do
  (trap - EXIT; task "$i" "$@") <&0 &
  pids+=($!)
done
trap : USR1 USR2 HUP CONT
for pid in "${pids[@]}"; do
  while :; do
    wait "$pid"; code=$?
    kill -0 "$pid" 2>/dev/null || break
  done
  if ((code > worst)); then worst=$code; fi
done
exit "$worst"
"""

SCONTROL: Final = r"""
expand() {
  local rest=$1 head tail part first last number
  if [[ $rest =~ ^([^][]*)\[([^]]*)\](.*)$ ]]; then
    head=${BASH_REMATCH[1]} tail=${BASH_REMATCH[3]}
    IFS=, read -ra parts <<<"${BASH_REMATCH[2]}"
    for part in "${parts[@]}"; do
      first=${part%%-*} last=${part##*-}
      for ((number = 10#$first; number <= 10#$last; number++)); do
        printf "%s%0${#first}d%s\n" "$head" "$number" "$tail"
      done
    done
  else
    printf '%s\n' "$rest"
  fi
}
case "${1:-} ${2:-}" in
  "show hostname" | "show hostnames")
    list=${3:-$SLURM_JOB_NODELIST} word= depth=0
    for ((i = 0; i < ${#list}; i++)); do
      sign=${list:i:1}
      case $sign in
        '[') depth=1 ;;
        ']') depth=0 ;;
        ,) if ((depth == 0)); then expand "$word"; word=; continue; fi ;;
      esac
      word+=$sign
    done
    if [[ -n $word ]]; then expand "$word"; fi ;;
  "requeue "*)
    : >"$JOBTREE_SLURM_DIR/requeue"
    echo "scontrol: when this script ends, Jobtree starts the Run again" >&2 ;;
  *) echo "scontrol: ${1:-} ${2:-} has no stand-in under Jobtree: try kubectl runs" >&2; exit 1 ;;
esac
"""

MODULE: Final = r"""
echo "module $*: the image has to bring this along" >&2
"""

_HEAD: Final = r"""
# Jobtree runs this in every pod, then the script below. docs/user-guide/slurm-users.md explains it.
body=$1 interpreter=("${@:2}")
: "${NNODES:=1}" "${NODE_RANK:=0}" "${NPROC_PER_NODE:=1}" "${MASTER_ADDR:=localhost}"
: "${JOBTREE_RUN:=job}" "${JOBTREE_ATTEMPT:=1}"

host=${MASTER_ADDR%%.*} domain=${MASTER_ADDR#"${MASTER_ADDR%%.*}"} hosts=("$MASTER_ADDR")
for ((i = 1; i < NNODES; i++)); do hosts+=("${host%-0}-$i$domain"); done
export SLURMD_NODENAME=${hosts[NODE_RANK]:-$MASTER_ADDR}
SLURM_JOB_NODELIST=$(IFS=,; echo "${hosts[*]}")
export SLURM_JOB_NODELIST SLURM_NODELIST=$SLURM_JOB_NODELIST

number=0
for ((i = 0; i < ${#JOBTREE_RUN}; i++)); do
  printf -v code %d "'${JOBTREE_RUN:i:1}"
  number=$(((number * 31 + code) % 900000))
done
export SLURM_JOB_ID=$((number + 100000)) SLURM_CLUSTER_NAME=jobtree
export SLURM_RESTART_COUNT=$((JOBTREE_ATTEMPT - 1)) SLURM_JOBID=$SLURM_JOB_ID
export SLURM_NNODES=$NNODES SLURM_JOB_NUM_NODES=$NNODES SLURM_NODEID=$NODE_RANK
export SLURM_GPUS_ON_NODE=$NPROC_PER_NODE SLURM_GPUS=$((NNODES * NPROC_PER_NODE)) SLURM_LOCALID=0
export SLURM_LAUNCH_NODE_IPADDR=$MASTER_ADDR SLURM_SUBMIT_HOST=$MASTER_ADDR
export SLURM_NTASKS=${SLURM_NTASKS:-$((NNODES * ${SLURM_NTASKS_PER_NODE:-1}))}
export SLURM_NPROCS=$SLURM_NTASKS
mine=$((SLURM_NTASKS / NNODES)) more=$((SLURM_NTASKS % NNODES))
export SLURM_PROCID=$((NODE_RANK * mine + (NODE_RANK < more ? NODE_RANK : more)))
if ((more)); then SLURM_TASKS_PER_NODE="$((mine + 1))(x$more),$mine(x$((NNODES - more)))"
elif ((NNODES > 1)); then SLURM_TASKS_PER_NODE="$mine(x$NNODES)"
else SLURM_TASKS_PER_NODE=$mine; fi
export SLURM_TASKS_PER_NODE SLURM_SUBMIT_DIR=${SLURM_SUBMIT_DIR:-$PWD}
"""

_TAIL: Final = r"""
srun() { bash -c "$JOBTREE_SRUN" srun "$@"; }
scontrol() { bash -c "$JOBTREE_SCONTROL" scontrol "$@"; }
module() { bash -c "$JOBTREE_MODULE" module "$@"; }
ml() { module "$@"; }
export JOBTREE_SRUN JOBTREE_SCONTROL JOBTREE_MODULE
export -f srun scontrol module ml
JOBTREE_SLURM_DIR=$(mktemp -d) || exit 1
export JOBTREE_SLURM_DIR
for name in srun scontrol; do
  printf '#!/bin/bash\nexec bash -c "$JOBTREE_%s" %s "$@"\n' "${name^^}" "$name" >"$JOBTREE_SLURM_DIR/$name"
done
chmod +x "$JOBTREE_SLURM_DIR"/*
export PATH=$JOBTREE_SLURM_DIR:$PATH

signal=${SLURM_JOBTREE_SIGNAL:-TERM} guard=
if [[ $signal != B:* && $signal != TERM ]]; then guard="trap : $signal"$'\n'; fi
case ${interpreter[0]##*/} in
  bash | sh | "") job=(bash "${interpreter[@]:1}" -c "$guard$body" "$0") ;;
  *)
    printf %s "$body" >"$JOBTREE_SLURM_DIR/$0"
    job=("${interpreter[@]}" "$JOBTREE_SLURM_DIR/$0") ;;
esac
set -m  # a process group of its own, so that all of the job gets the signal
"${job[@]}" &
child=$!
set +m
stop() { if [[ $signal == B:* ]]; then kill -"${signal#B:}" "$child"; else kill -"$signal" -- "-$child"; fi; }
trap stop TERM
while :; do
  wait "$child"; code=$?
  kill -0 "$child" 2>/dev/null || break
done
if [[ -e $JOBTREE_SLURM_DIR/requeue ]]; then code=75; fi
rm -rf "$JOBTREE_SLURM_DIR"
exit "$code"
"""


def _held(name: str, text: str) -> str:
    return f"\nIFS= read -r -d '' {name} <<'JOBTREE_END' || :{text}JOBTREE_END"


PROLOGUE: Final = (
    _HEAD
    + _held("JOBTREE_SRUN", SRUN)
    + _held("JOBTREE_SCONTROL", SCONTROL)
    + _held("JOBTREE_MODULE", MODULE)
    + _TAIL
).lstrip("\n")


def job_number(run: str) -> int:
    """The SLURM_JOB_ID of a Run, as the prologue computes it."""
    number = 0
    for sign in run:
        number = (number * 31 + ord(sign)) % 900_000
    return number + 100_000
