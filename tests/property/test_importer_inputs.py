"""The importers convert any input or refuse it with a message; no input causes a traceback."""

import contextlib
import copy
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings, strategies as st

from jobtree.api.documents.document_stream import Document, dump_yaml, read_documents
from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object
from jobtree.importers.conversion import Converted
from jobtree.importers.kueue.kueue_importer import convert_kueue
from jobtree.importers.slurm.account_importer import convert_accounts
from jobtree.importers.slurm.sacct_importer import convert_sacct
from jobtree.importers.slurm.script.sbatch_options import OPTIONS, SHORT
from jobtree.importers.slurm.script_importer import convert_slurm
from jobtree.importers.slurm.script_request import CallerOptions, read_environment
from jobtree.importers.slurm.site_mapping import SlurmMap, read_map
from tests.unit.importers.test_corpus import MANIFESTS, SCRIPTS, SITE, site

OPTIONS_GIVEN = CallerOptions(site(), image="i", owner="org:lab", gpu_type="H100")
TEXTS = [path.read_bytes() for path in SCRIPTS]
YAMLS = [path.read_bytes() for path in (*MANIFESTS, SITE)]
BODIES = [[document.body for document in read_documents(path.read_bytes(), path.name)] for path in MANIFESTS]
ASSOC = (
    b"Cluster|Account|User|GrpTRES|GrpTRESMins|ParentName|\nc|root||||\nc|a||gres/gpu=8|gres/gpu=60|root|\n"
)
SACCT = (
    b"JobID|Account|Submit|Elapsed|AllocTRES|State|\n1|a|2026-01-05T09:00:00|1-02:00:00|gres/gpu=8|DONE|\n"
)

VALUES = st.one_of(
    st.sampled_from(
        [
            "0",
            "1",
            "8",
            "-1",
            "1-4",
            "4-1",
            "0-15%4",
            "gpu",
            "gpu:4",
            "gpu:a100:4",
            "a100:2,h100:2",
            "1-00:00:00",
            "99999999999999",
            "UNLIMITED",
            "USR1@60",
            "B:9@1",
            "afterok:1:2?after:3",
            "singleton",
            "nvlink&ib",
            "[a|b]",
            "64G",
            "0",
            "1@2",
            "append",
            "NONE",
            "ALL,A=1",
            "é",
            "\u2028",
            "$$",
            "$(X)",
            ":",
            ",",
            "=",
            "%",
            "@",
        ]
    ),
    st.text(max_size=12),
)
DIRECTIVES = st.lists(
    st.tuples(
        st.sampled_from([*(f"--{name}" for name in OPTIONS), *(f"-{letter}" for letter in SHORT)]), VALUES
    ),
    max_size=8,
)
OTHER_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([[], {}, [1, "a", None], {"name": "x"}, {"a": {"b": []}}, [{"name": 1}]]),
)


@st.composite
def mutated(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Returns a real file in which some bytes are removed, doubled or replaced."""
    raw = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        end = min(len(raw), at + draw(st.integers(0, 20)))
        replacement = draw(
            st.one_of(
                st.binary(max_size=6), st.just(raw[at:end] * 2), st.sampled_from([b"\n", b"\r\n", b"'"])
            )
        )
        raw = raw[:at] + replacement + raw[end:]
    return raw


def check_refused_or_valid(convert: Callable[[], Converted]) -> None:
    """Checks that an input is refused, or that Jobtree accepts the objects, also written and read again."""
    with contextlib.suppress(InputError):
        converted = convert()
        for body in converted.documents:
            parse_object(body, "converted")
        text = dump_yaml(converted.documents)
        assert [document.body for document in read_documents(text, "converted")] == converted.documents
        assert all(str(remark) for remark in converted.remarks)


@given(st.one_of(mutated(TEXTS), st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
@settings(max_examples=300)
def test_slurm_scripts_are_converted_or_refused(raw: bytes) -> None:
    check_refused_or_valid(lambda: convert_slurm([("job.sh", raw)], OPTIONS_GIVEN))


@given(DIRECTIVES, st.booleans())
@settings(max_examples=400)
def test_sbatch_directives_are_converted_or_refused(directives: list[tuple[str, str]], equals: bool) -> None:
    text = "".join(f"#SBATCH {name}{'=' if equals else ' '}{value}\n" for name, value in directives)
    check_refused_or_valid(
        lambda: convert_slurm([("job.sh", f"#!/bin/bash\n{text}srun x\n".encode())], OPTIONS_GIVEN)
    )


@given(
    st.dictionaries(
        st.sampled_from(["SBATCH_TIMELIMIT", "SBATCH_GRES", "SBATCH_ARRAY_INX", "SBATCH_SIGNAL"]), VALUES
    )
)
def test_slurm_environments_are_converted_or_refused(environment: dict[str, str]) -> None:
    options = CallerOptions(site(), image="i", owner="org:lab", gpu_type="H100", environment=environment)
    check_refused_or_valid(lambda: convert_slurm([("job.sh", TEXTS[0])], options))


@given(st.one_of(mutated(YAMLS), st.binary(max_size=200), st.text(max_size=100).map(str.encode)))
@settings(max_examples=300)
def test_kueue_manifests_and_mappings_are_converted_or_refused(raw: bytes) -> None:
    check_refused_or_valid(lambda: convert_kueue(read_documents(raw, "kueue.yaml"), {}))
    with contextlib.suppress(InputError):
        read_map("site.yaml", raw)
    with contextlib.suppress(InputError):
        read_environment("env", raw)


@given(st.data())
@settings(max_examples=300)
def test_kueue_manifests_with_changed_values_are_converted_or_refused(data: st.DataObject) -> None:
    bodies = copy.deepcopy(data.draw(st.sampled_from(BODIES)))
    for _ in range(data.draw(st.integers(1, 3))):
        parent: Any = bodies
        while True:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if (
                not isinstance(parent[key], (dict, list))
                or not parent[key]
                or data.draw(st.integers(0, 5)) == 0
            ):
                if parent is not bodies:
                    parent[key] = data.draw(OTHER_VALUES)
                break
            parent = parent[key]
    check_refused_or_valid(lambda: convert_kueue([Document("kueue.yaml", body) for body in bodies], {}))


@given(st.one_of(mutated([ASSOC, SACCT]), st.binary(max_size=100)))
@settings(max_examples=300)
def test_slurm_tables_are_converted_or_refused(raw: bytes) -> None:
    check_refused_or_valid(lambda: convert_accounts("assoc", raw, SlurmMap(), "H100"))
    with contextlib.suppress(InputError):
        convert_sacct("jobs", raw, SlurmMap(), "H100")
