"""The options of sbatch: how each is spelled, whether it has a value, and the variable that overrides it.

The command line of sbatch overrides the environment, which overrides the script.
"""

import difflib
from typing import Final, Literal, NamedTuple

Value = Literal["must", "may", "none"]


class SbatchOption(NamedTuple):
    name: str
    value: Value
    short: str = ""


# Options that must have a value, with their letters; then options without one, and options that may have one.
_WITH_VALUE: Final = """
    account:A array:a batch bb bbf begin:b chdir:D cluster-constraint clusters:M comment constraint:C
    container container-id container-image container-mounts container-name container-workdir core-spec:S
    cores-per-socket cpu-freq cpus-per-gpu cpus-per-task:c deadline delay-boot dependency:d
    distribution:m error:e exclude:x export export-file extra extra-node-info:B gid gpu-bind gpu-freq
    gpus:G gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input:i job-name:J
    kill-on-invalid-dep licenses:L mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu
    mincpus network nodefile:F nodelist:w nodes:N ntasks:n ntasks-per-core ntasks-per-gpu
    ntasks-per-node ntasks-per-socket open-mode output:o partition:p power prefer priority profile qos:q
    reservation signal sockets-per-node switches thread-spec threads-per-core time:t time-min tmp
    tres-bind tres-per-task uid wait-all-nodes wckey wrap
"""
_FLAGS: Final = """
    contiguous hold:H ignore-pbs no-requeue overcommit:O oversubscribe:s parsable quiet:Q reboot requeue
    spread-job stepmgr test-only use-min-nodes verbose:v wait:W container-mount-home
    no-container-mount-home container-writable
"""
_MAYBE: Final = """
    exclusive get-user-env nice no-kill:k propagate
"""

_TABLES: Final[tuple[tuple[Value, str], ...]] = (("must", _WITH_VALUE), ("none", _FLAGS), ("may", _MAYBE))

OPTIONS: Final = {
    name: SbatchOption(name, value, short)
    for value, table in _TABLES
    for name, _, short in (word.partition(":") for word in table.split())
}
SHORT: Final = {option.short: option for option in OPTIONS.values() if option.short}

# Older spellings that sbatch accepts.
ALIASES: Final = {"tasks-per-node": "ntasks-per-node", "workdir": "chdir", "share": "oversubscribe"}

# Variables that are not SBATCH_ and the name of the option.
_VARIABLES: Final = {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_TIMELIMIT": "time",
}
_PLAIN: Final = """
    account batch clusters constraint container core-spec cpus-per-gpu delay-boot distribution error
    exclusive export get-user-env gpu-bind gpu-freq gpus gpus-per-node gpus-per-task gres gres-flags
    hint input job-name mem-bind mem-per-cpu mem-per-gpu network no-kill no-requeue open-mode output
    overcommit partition power profile qos requeue reservation signal spread-job thread-spec
    threads-per-core use-min-nodes wait wckey
"""
VARIABLES: Final = {
    **{f"SBATCH_{name.upper().replace('-', '_')}": name for name in _PLAIN.split()},
    **_VARIABLES,
}


def find_option(name: str) -> SbatchOption | None:
    """The option of this name, or the only one that begins with it: getopt accepts abbreviations."""
    name = ALIASES.get(name, name)
    if name in OPTIONS:
        return OPTIONS[name]
    candidates = [option for full_name, option in OPTIONS.items() if full_name.startswith(name)]
    return candidates[0] if name and len(candidates) == 1 else None


def near_option(name: str) -> str | None:
    """The option with the most similar name."""
    return next(iter(difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.8)), None)
