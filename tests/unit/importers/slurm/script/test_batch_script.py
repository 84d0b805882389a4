import pytest

from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import SPLIT, Script, decode_script, read_scripts
from jobtree.importers.slurm.script.sbatch_options import OPTIONS, SHORT, VARIABLES, find_option


def read(text: str, **environment: str) -> tuple[Script, Converted]:
    out = Converted()
    (script,) = read_scripts(text, "job.sh", environment, out)
    return script, out


def values(text: str, **environment: str) -> dict[str, str]:
    script, _ = read(text, **environment)
    return {name: setting.value for name, setting in script.settings.items()}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--nodes=2", {"nodes": "2"}),
        ("--nodes 2", {"nodes": "2"}),
        ("-N2", {"nodes": "2"}),
        ("-N 2", {"nodes": "2"}),
        ("-N=2", {"nodes": "2"}),
        ("-vH -N2", {"verbose": "", "hold": "", "nodes": "2"}),
        ("--exclusive", {"exclusive": ""}),
        ("--exclusive=user", {"exclusive": "user"}),
        ("--exclusive -N2", {"exclusive": "", "nodes": "2"}),
        ("--job-n=x", {"job-name": "x"}),
        ("--tasks-per-node=4", {"ntasks-per-node": "4"}),
        ("-J \"a b\" --comment='c d'", {"job-name": "a b", "comment": "c d"}),
        ("--gres=gpu:1 --gres=gpu:2", {"gres": "gpu:2"}),
        ("--gpus=1 # --gpus=2", {"gpus": "1"}),
    ],
)
def test_options_are_read_in_all_spellings(line: str, found: dict[str, str]) -> None:
    assert values(f"#!/bin/bash\n#SBATCH {line}\ntrue\n") == found


def test_directives_end_at_the_first_command() -> None:
    text = "#!/bin/bash\n\n# a comment\n#SBATCH -N1\n\n#SBATCH -n2\necho x\n#SBATCH -t5\n"
    script, out = read(text)
    assert sorted(script.settings) == ["nodes", "ntasks"]
    assert [str(remark) for remark in out.remarks] == [
        "job.sh, line 8: #SBATCH -t5: is after the first command: sbatch ignores it, and so does the import"
    ]


def test_directives_in_here_documents_of_the_body_are_data() -> None:
    _, out = read("#!/bin/bash\n#SBATCH -N1\ncat <<E\n#SBATCH -t5\nE\n")
    assert out.remarks == []


def test_environment_overrides_the_script_and_the_command_line_overrides_both() -> None:
    text = "#SBATCH --time=1 --partition=a --qos=q\ntrue\n"
    environment = {"SBATCH_TIMELIMIT": "2", "SBATCH_PARTITION": "b", "SBATCH_REQUEUE": "1", "OTHER": "x"}
    expected = {"time": "2", "partition": "b", "qos": "q", "requeue": ""}
    assert values(text, **environment) == expected
    inner = "sbatch --time=3 <<'E'\n#SBATCH --time=1\ntrue\nE\n"
    assert values(inner, SBATCH_TIMELIMIT="2") == {"time": "3"}


def test_wrapper_script_yields_the_scripts_that_it_submits() -> None:
    scripts = read_scripts("sbatch <<A\n#SBATCH -N1\nA\nsbatch -N2 <<B\ntrue\nB\n", "w.sh", {}, Converted())
    assert [script.settings["nodes"].value for script in scripts] == ["1", "2"]
    assert [script.body for script in scripts] == ["#SBATCH -N1\n", "true\n"]


@pytest.mark.parametrize(
    ("first", "interpreter"),
    [
        ("#!/bin/bash -l", ["/bin/bash", "-l"]),
        ("#!/usr/bin/env python3", ["python3"]),
        ("#!/usr/bin/env -S bash -e", ["bash", "-e"]),
        ("echo", ["/bin/bash"]),
        ("#!", ["/bin/bash"]),
    ],
)
def test_interpreter_is_read_from_the_first_line(first: str, interpreter: list[str]) -> None:
    assert read(f"{first}\n")[0].interpreter == interpreter


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nodes", "--nodes needs a value, as in --nodes=VALUE"),
        ("--requeue=yes", "--requeue takes no value, but has 'yes'"),
        (
            "--gpu-per-node=8",
            "--gpu-per-node=8: there is no option --gpu-per-node; did you mean --gpus-per-node?",
        ),
        ("hetjob", f"hetjob: {SPLIT}"),
        ("--comment='x", "a quote (') is not closed"),
    ],
)
def test_mistake_is_refused_with_its_line(line: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read(f"#!/bin/sh\n#SBATCH {line}\n")
    assert str(refused.value) == f"job.sh, line 2: {message}"


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("--zebra=1", "--zebra=1: is unknown to sbatch, perhaps an option of a plugin, and is ignored"),
        ("-Y", "-Y: is unknown to sbatch, and is ignored"),
        ("nonsense -N2", "nonsense: is not an option: sbatch ignores the rest of the line"),
    ],
)
def test_unknown_option_gets_a_remark(line: str, remark: str) -> None:
    script, out = read(f"#SBATCH {line}\n")
    assert script.settings == {}
    assert [str(remark) for remark in out.remarks] == [f"job.sh, line 1: {remark}"]


def test_directive_without_effect_gets_a_remark() -> None:
    _, out = read("#!/bin/bash\n# SBATCH -N2\n#sbatch -N2\n##SBATCH -N2\n# about sbatch - a comment\n")
    assert [remark.where for remark in out.remarks] == ["job.sh, line 2", "job.sh, line 3"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\x7fELF\x00\x01", "is a binary file"),
        (b"#!/bin/bash\n\xff\xfe", "is not UTF-8: byte 12 is 0xff"),
        (b"x" * 600_000, "a script in a Run can have at most 524288"),
    ],
)
def test_file_without_a_script_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode_script(raw, "job.sh")


def test_tables_of_options_agree() -> None:
    assert set(VARIABLES.values()) <= set(OPTIONS)
    assert len(SHORT) == sum(bool(option.short) for option in OPTIONS.values())
    assert find_option("n") is None
    assert find_option("") is None
