import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.kubeconfig import Kubeconfig, Target, find_kubeconfig


def config(name: str, current: str = "", **more: object) -> dict[str, Any]:
    """A kubeconfig whose cluster, user and context are all called ``name``."""
    context = {"cluster": name, "user": name, "namespace": f"{name}-ns"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"}}],
        "users": [{"name": name, "user": {"token": f"{name}-token"}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": current,
        **more,
    }


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def environment(*paths: Path) -> dict[str, str]:
    return {"KUBECONFIG": os.pathsep.join(map(str, paths))}


def target_of(*paths: Path, context: str = "") -> Target:
    kubeconfig = find_kubeconfig(environment(*paths))
    assert kubeconfig is not None
    return kubeconfig.target(context)


def refused(path: Path, context: str = "") -> str:
    with pytest.raises(InputError) as error:
        Kubeconfig([path]).target(context)
    return str(error.value)


def test_current_context_is_used_by_default(tmp_path: Path) -> None:
    target = target_of(write(tmp_path / "a", config("west", "west")))
    assert (target.context, target.namespace) == ("west", "west-ns")
    assert target.cluster.entry.server == "https://west:6443"
    assert target.user.entry.token == "west-token"  # noqa: S105  no secret


def test_context_of_another_file_can_be_chosen(tmp_path: Path) -> None:
    target = target_of(
        write(tmp_path / "a", config("west", "west")), write(tmp_path / "b", config("east")), context="east"
    )
    assert target.cluster.entry.server == "https://east:6443"


def test_first_file_wins(tmp_path: Path) -> None:
    first = config("west")
    second = config("west", "west")
    second["clusters"][0]["cluster"]["server"] = "https://other"
    target = target_of(write(tmp_path / "a", first), write(tmp_path / "b", second))
    assert target.context == "west", "the current context comes from the first file that sets one"
    assert target.cluster.entry.server == "https://west:6443"


def test_missing_files_are_skipped_unless_named_explicitly(tmp_path: Path) -> None:
    assert target_of(tmp_path / "nowhere", write(tmp_path / "a", config("west", "west"))).context == "west"
    assert find_kubeconfig(environment(tmp_path / "nowhere")) is None
    with pytest.raises(InputError, match="nowhere: cannot be read: No such file"):
        find_kubeconfig({}, str(tmp_path / "nowhere"))


def test_file_in_the_home_directory_is_read_without_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_kubeconfig({}) is None
    write(tmp_path / ".kube" / "config", config("home", "home"))
    kubeconfig = find_kubeconfig({})
    assert kubeconfig is not None
    assert kubeconfig.target().context == "home"


def test_path_is_relative_to_its_file(tmp_path: Path) -> None:
    text = config("west", "west", users=[{"name": "west", "user": {"tokenFile": "secrets/token"}}])
    target = target_of(write(tmp_path / "deep" / "a", text))
    assert target.user.path(target.user.entry.token_file) == tmp_path / "deep" / "secrets" / "token"


def test_kubeconfig_in_yaml_is_read(tmp_path: Path) -> None:
    text = """
apiVersion: v1
kind: Config
current-context: dev
preferences: {}
clusters:
- name: dev
  cluster: {server: "https://dev", insecure-skip-tls-verify: true}
contexts:
- name: dev
  context:
    cluster: dev
    user: me
users:
- name: me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: aws
      args: null
      env: null
      provideClusterInfo: false
"""
    target = target_of(write(tmp_path / "a", text))
    assert target.namespace == "default"
    assert target.cluster.entry.insecure_skip_tls_verify
    assert target.user.entry.exec_ is not None
    assert target.user.entry.exec_.command == "aws"


@pytest.mark.parametrize(
    ("document", "context", "expected"),
    [
        (config("west"), "", "current-context: is not set; choose one with --context: west"),
        (config("west", "north"), "", 'current-context: "north" is not allowed: must be one of west'),
        (config("west", "west"), "east", '--context: "east" is not allowed: must be one of west'),
        (config("west", "west", clusters=[]), "", 'context west: cluster: "west" is not allowed'),
        (
            config("west", "west", users=[]),
            "",
            'user: "west" is not allowed: must be one of (none is defined)',
        ),
        (config("west", "west", contexts=7), "", "contexts: 7 is not allowed: must be a list"),
        (config("west", "west", clusters=[{"cluster": {}}]), "", "clusters[0].name: is required"),
        ("a: [", "", "is not YAML"),
        ("--- {}\n---\na: 1\n---\nb: 2\n", "", "a kubeconfig is one document, not 2"),
        ("- 1", "", "must be a mapping"),
    ],
)
def test_invalid_kubeconfig_is_refused_with_its_place(
    tmp_path: Path, document: object, context: str, expected: str
) -> None:
    message = refused(write(tmp_path / "broken.config", document), context)
    assert "broken.config" in message
    assert expected in message


@pytest.mark.parametrize(
    "user",
    [
        {"token": 31337},
        {"client-key-data": ["31337"]},
        {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "x",
                "env": [{"name": "A", "value": 31337}],
            }
        },
    ],
)
def test_secrets_do_not_appear_in_errors(tmp_path: Path, user: dict[str, Any]) -> None:
    message = refused(write(tmp_path / "a", config("west", "west", users=[{"name": "west", "user": user}])))
    assert "must be a string" in message
    assert "31337" not in message
