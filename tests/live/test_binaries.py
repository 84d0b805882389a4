"""Where the programs of a control plane are looked for, and what happens when one is missing.

A stand-in for ``go`` plays the builds: it notes how it was called and "compiles" a shell script.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.binaries import MissingProgramError, cache_directory, find, find_all
from tests.live.recipes import ETCD, KUBERNETES, KWOK, RECIPES, Module, wrapper_go_mod

ROOT = Path(__file__).parents[2]
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


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def stand_in_go(directory: Path, version: str = "go1.26.0", toolchain: str = "local") -> Path:
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


def test_the_assets_win_whatever_their_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin" / "etcd", f"etcd Version: {ETCD.version}")
    chosen = program(tmp_path / "assets" / "etcd", "etcd Version: 3.4.0")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert find("etcd") == chosen


@pytest.mark.parametrize("says", ["Kubernetes v1.36.0", "Kubernetes v1.35.9", "Kubernetes v1.37.1-rc.0"])
def test_a_program_on_the_path_is_used_if_it_is_near_the_pinned_version(tmp_path: Path, says: str) -> None:
    assert KUBERNETES.version.startswith("v1.36.")
    there = program(tmp_path / "bin" / "kube-apiserver", says)
    assert find("kube-apiserver") == there


@pytest.mark.parametrize("says", ["Kubernetes v1.32.4-dispatcher", "Kubernetes v2.36.0", "no idea"])
def test_another_one_is_not(tmp_path: Path, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path / "bin" / "kube-apiserver", says)
    cached = program(cache_directory() / KUBERNETES.label / "kube-apiserver", KUBERNETES.version)
    assert find("kube-apiserver") == cached
    assert "not used, 1.36 is wanted" in capsys.readouterr().err


def test_what_is_missing_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = stand_in_go(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    built = find("kube-apiserver")
    assert built == cache_directory() / KUBERNETES.label / "kube-apiserver"
    assert subprocess.run([built], capture_output=True, text=True, check=True).stdout == "built\n"
    calls = log.read_text()
    assert find("kube-apiserver") == built
    assert log.read_text() == calls
    assert "build -mod=mod -trimpath" in calls
    assert f"-X k8s.io/component-base/version.gitVersion={KUBERNETES.version}" in calls


def test_what_is_missing_of_a_module_is_built_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stand_in_go(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    there = program(cache_directory() / KUBERNETES.label / "kubectl", KUBERNETES.version)
    found = find_all(["kubectl", "kwok", "kubelet", "kube-scheduler"])
    assert found["kubectl"] == there
    assert all(path.is_file() for path in found.values())
    builds = [line.partition(" -o ")[2] for line in log.read_text().splitlines() if line.startswith("build")]
    assert [line.split()[1:] for line in builds] == [
        ["sigs.k8s.io/kwok/cmd/kwok"],
        ["k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kube-scheduler"],
    ]


def test_an_own_program_is_built_again_when_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_go(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    source = tmp_path / "main.go"
    source.write_text("package main")
    monkeypatch.setitem(RECIPES, "pause", replace(RECIPES["pause"], source=source))
    first = find("pause")
    assert (cache_directory() / KUBERNETES.label / "src" / "pause" / "main.go").read_text() == "package main"
    assert find("pause") == first
    source.write_text("package main // edited")
    assert find("pause") != first


def test_a_program_that_must_be_mended_is_built_from_the_mended_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_go(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    program(tmp_path / "bin" / "kwok", "kwok version v0.7.0")
    built, change = find("kwok"), KWOK_CHANGES[0]
    assert built.parent == cache_directory() / KWOK.label
    assert built.name != "kwok"  # one that was built before the amendment was made is another
    wrapper = built.parent / "src"
    assert (wrapper / "amended" / change.file).read_text() == f"func watch() {{ {change.becomes} }}"
    assert f"replace {KWOK.path} => ./amended\n" in (wrapper / "go.mod").read_text()
    assert change.was in (tmp_path / "module" / change.file).read_text()


def test_an_amendment_that_does_not_fit_is_an_error() -> None:
    change = KWOK_CHANGES[0]
    assert change.applied_to(f"a; {change.was}; b") == f"a; {change.becomes}; b"
    with pytest.raises(AssertionError, match=r"event\.go has changed"):
        change.applied_to("something else")


def test_two_processes_build_it_once(tmp_path: Path) -> None:
    log = stand_in_go(tmp_path)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{TOOLS}"}
    command = [sys.executable, "-m", "tests.live.binaries", "etcd"]

    def run(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
        )

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(run, range(2)))
    assert results[0].stdout == results[1].stdout
    assert [line.split()[0] for line in log.read_text().splitlines()].count("build") == 1


def test_without_go_it_says_what_to_install() -> None:
    with pytest.raises(MissingProgramError, match=r"no `go` on PATH.*Go 1\.26 or newer.*KUBEBUILDER_ASSETS"):
        find("etcd")


def test_a_go_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_go(tmp_path, version="go1.19.8")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    with pytest.raises(MissingProgramError, match=r"Go is too old: go1\.19\.8\..*Go 1\.26 or newer"):
        find("etcd")


def test_an_old_go_that_fetches_a_newer_one_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_go(tmp_path, version="go1.21.0", toolchain="auto")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    assert find("etcd").is_file()


def test_a_build_that_fails_shows_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    stand_in_go(tmp_path)
    go.write_text(go.read_text().replace("sleep 0.3", "echo 'undefined: x' >&2; exit 1"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{TOOLS}")
    with pytest.raises(MissingProgramError, match=r"(?s)building etcd v.* failed: `go build .*undefined: x"):
        find("etcd")
    assert [path.name for path in (cache_directory() / ETCD.label).iterdir() if "etcd" in path.name] == []


def test_staging_modules_are_replaced_by_the_release_of_the_same_name() -> None:
    own = "require (\n\tk8s.io/api v0.0.0\n\tk8s.io/streaming v0.0.0 // indirect\n\tk8s.io/klog v2.140.0\n)\n"
    made = wrapper_go_mod(Module("k8s.io/kubernetes", "v1.36.3"), own)
    assert "replace k8s.io/api => k8s.io/api v0.36.3\n" in made
    assert "replace k8s.io/streaming => k8s.io/streaming v0.36.3\n" in made
    assert "klog" not in made
