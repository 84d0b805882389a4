"""The search for programs, and the builds of missing ones.

A fake ``go`` records its arguments and "compiles" shell scripts.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.programs.build_recipes import ETCD, KUBERNETES, KWOK, RECIPES, Module, wrapper_go_mod
from tests.live.programs.program_finder import (
    MissingProgramError,
    cache_directory,
    find_program,
    find_programs,
)
from tests.shown import REPOSITORY

TOOLS = "/usr/bin:/bin"
KWOK_CHANGES = RECIPES["kwok"].amendments

GO = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
  env) printf '%s\\n' {version} {toolchain} ;;
  mod) echo '{{"GoMod": "{go_mod}", "Dir": "{sources}"}}' ;;
  build)
    while [ "$1" != -o ]; do shift; done
    into="$2"; shift 2; sleep 0.3
    for package; do
      package="${{package%/v[0-9]}}"; out="$into${{package##*/}}"
      printf '#!/bin/sh\\necho built\\n' > "$out"; chmod +x "$out"
    done ;;
esac
"""


@pytest.fixture(autouse=True)
def _machine_without_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("JOBTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


def create_program(path: Path, output: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)
    return path


def create_fake_go(directory: Path, version: str = "go1.26.0", toolchain: str = "local") -> Path:
    log = directory / "go.log"
    (directory / "own.mod").write_text("module k8s.io/kubernetes\n")
    go = directory / "bin" / "go"
    for change in KWOK_CHANGES:
        source = directory / "module" / change.file
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f"func watch() {{ {change.was} }}")
    go.write_text(
        GO.format(
            log=log,
            version=version,
            toolchain=toolchain,
            go_mod=directory / "own.mod",
            sources=directory / "module",
        )
    )
    go.chmod(0o755)
    return log


def test_program_in_assets_is_used_at_any_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_program(tmp_path / "bin" / "etcd", f"etcd Version: {ETCD.version}")
    asset = create_program(tmp_path / "assets" / "etcd", "etcd Version: 3.4.0")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert find_program("etcd") == asset


@pytest.mark.parametrize("output", ["Kubernetes v1.36.0", "Kubernetes v1.35.9", "Kubernetes v1.37.1-rc.0"])
def test_program_on_path_is_used_when_its_version_is_near(tmp_path: Path, output: str) -> None:
    assert KUBERNETES.version.startswith("v1.36.")
    existing = create_program(tmp_path / "bin" / "kube-apiserver", output)
    assert find_program("kube-apiserver") == existing


@pytest.mark.parametrize("output", ["Kubernetes v1.32.4-dispatcher", "Kubernetes v2.36.0", "no idea"])
def test_program_on_path_is_not_used_when_its_version_differs(
    tmp_path: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_program(tmp_path / "bin" / "kube-apiserver", output)
    cached = create_program(cache_directory() / KUBERNETES.label / "kube-apiserver", KUBERNETES.version)
    assert find_program("kube-apiserver") == cached
    assert "not used, because 1.36 is needed" in capsys.readouterr().err


def test_missing_program_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = create_fake_go(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    built = find_program("kube-apiserver")
    assert built == cache_directory() / KUBERNETES.label / "kube-apiserver"
    assert subprocess.run([built], capture_output=True, text=True, check=True).stdout == "built\n"
    calls = log.read_text()
    assert find_program("kube-apiserver") == built
    assert log.read_text() == calls
    assert "build -mod=mod -trimpath" in calls
    assert f"-X k8s.io/component-base/version.gitVersion={KUBERNETES.version}" in calls


def test_missing_programs_of_one_module_are_built_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = create_fake_go(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    existing = create_program(cache_directory() / KUBERNETES.label / "kubectl", KUBERNETES.version)
    paths = find_programs(["kubectl", "kwok", "kubelet", "kube-scheduler"])
    assert paths["kubectl"] == existing
    assert all(path.is_file() for path in paths.values())
    builds = [line.partition(" -o ")[2] for line in log.read_text().splitlines() if line.startswith("build")]
    assert [line.split()[1:] for line in builds] == [
        ["sigs.k8s.io/kwok/cmd/kwok"],
        ["k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kube-scheduler"],
    ]


def test_test_program_is_built_again_when_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_fake_go(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    source = tmp_path / "main.go"
    source.write_text("package main")
    monkeypatch.setitem(RECIPES, "pause", replace(RECIPES["pause"], source=source))
    first = find_program("pause")
    assert (cache_directory() / KUBERNETES.label / "src" / "pause" / "main.go").read_text() == "package main"
    assert find_program("pause") == first
    source.write_text("package main // edited")
    assert find_program("pause") != first


def test_amended_program_is_built_from_the_amended_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_fake_go(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    create_program(tmp_path / "bin" / "kwok", "kwok version v0.7.0")
    built, change = find_program("kwok"), KWOK_CHANGES[0]
    assert built.parent == cache_directory() / KWOK.label
    assert built.name != "kwok"  # the name differs from that of a program without the amendment
    wrapper = built.parent / "src"
    assert (wrapper / "amended" / change.file).read_text() == f"func watch() {{ {change.becomes} }}"
    assert f"replace {KWOK.path} => ./amended\n" in (wrapper / "go.mod").read_text()
    assert change.was in (tmp_path / "module" / change.file).read_text()


def test_amendment_fails_when_its_text_is_missing() -> None:
    change = KWOK_CHANGES[0]
    assert change.applied_to(f"a; {change.was}; b") == f"a; {change.becomes}; b"
    with pytest.raises(AssertionError, match=r"event\.go has changed"):
        change.applied_to("something else")


def test_program_is_built_once_when_two_processes_need_it(tmp_path: Path) -> None:
    log = create_fake_go(tmp_path)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{TOOLS}"}
    command = [sys.executable, "-m", "tests.live.programs.program_finder", "etcd"]

    def run(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True, timeout=60
        )

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(run, range(2)))
    assert results[0].stdout == results[1].stdout
    assert [line.split()[0] for line in log.read_text().splitlines()].count("build") == 1


def test_error_says_what_to_install_without_go() -> None:
    with pytest.raises(MissingProgramError, match=r"no `go` on PATH.*Go 1\.26 or newer.*KUBEBUILDER_ASSETS"):
        find_program("etcd")


def test_error_names_a_go_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_fake_go(tmp_path, version="go1.19.8")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    with pytest.raises(MissingProgramError, match=r"Go is too old: go1\.19\.8\..*Go 1\.26 or newer"):
        find_program("etcd")


def test_old_go_is_used_when_it_downloads_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_fake_go(tmp_path, version="go1.21.0", toolchain="auto")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    assert find_program("etcd").is_file()


def test_failed_build_raises_with_its_output_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    create_fake_go(tmp_path)
    go.write_text(go.read_text().replace("sleep 0.3", "echo 'undefined: x' >&2; exit 1"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    with pytest.raises(MissingProgramError, match=r"(?s)building etcd v.* failed: `go build .*undefined: x"):
        find_program("etcd")
    assert [path.name for path in (cache_directory() / ETCD.label).iterdir() if "etcd" in path.name] == []


def test_staging_modules_are_replaced_by_their_published_versions() -> None:
    own = "require (\n\tk8s.io/api v0.0.0\n\tk8s.io/streaming v0.0.0 // indirect\n\tk8s.io/klog v2.140.0\n)\n"
    go_mod = wrapper_go_mod(Module("k8s.io/kubernetes", "v1.36.3"), own)
    assert "replace k8s.io/api => k8s.io/api v0.36.3\n" in go_mod
    assert "replace k8s.io/streaming => k8s.io/streaming v0.36.3\n" in go_mod
    assert "klog" not in go_mod
