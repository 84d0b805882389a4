"""What the control plane is made of: each program, its Go module and its pinned version.

Every program is built from the Go module proxy inside a *wrapper module*: a ``go.mod`` that requires
the program's module and nothing else. Kubernetes needs one thing more. Its own ``go.mod`` requires the
staging modules (``k8s.io/api`` and so on) at ``v0.0.0`` and replaces them by directories of its
repository, and a dependency's replacements do not count; so the wrapper replaces each of them by the
version published along with the release: ``v1.36.3`` of Kubernetes is ``v0.36.3`` of its staging modules.
"""

import re
from dataclasses import dataclass

GO_VERSION = (1, 26)
"""The oldest Go that compiles these modules."""

_STAGING = re.compile(r"^\s+(k8s\.io/\S+) v0\.0\.0(?:\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """A Go module at one version; ``stamps`` are string variables that the release would have set."""

    path: str
    version: str
    stamps: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """Names the module and version as a directory: ``kubernetes-v1.36.3``."""
        parts = [part for part in self.path.split("/") if part not in {"server", "v3"}]
        return f"{parts[-1]}-{self.version}"


@dataclass(frozen=True)
class Recipe:
    """One program: the package to build, and the arguments with which it tells its version."""

    module: Module
    package: str
    tell_version: tuple[str, ...] = ("--version",)


def _kubernetes(version: str) -> Module:
    major, minor, _ = version.removeprefix("v").split(".")
    variable = "k8s.io/component-base/version"
    return Module(
        path="k8s.io/kubernetes",
        version=version,
        stamps=(
            (f"{variable}.gitVersion", version),
            (f"{variable}.gitMajor", major),
            (f"{variable}.gitMinor", minor),
        ),
    )


KUBERNETES = _kubernetes("v1.36.3")
ETCD = Module("go.etcd.io/etcd/server/v3", "v3.6.16")

RECIPES = {
    "etcd": Recipe(ETCD, ETCD.path),
    "kube-apiserver": Recipe(KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kubectl": Recipe(KUBERNETES, "k8s.io/kubernetes/cmd/kubectl", ("version", "--client")),
}


def wrapper_go_mod(module: Module, own_go_mod: str) -> str:
    """The ``go.mod`` in which ``module`` is built, given the one that the module itself carries."""
    staging_version = "v0." + module.version.split(".", 1)[1]
    lines = [
        "module wrapper",
        "",
        f"go {GO_VERSION[0]}.{GO_VERSION[1]}.0",
        "",
        f"require {module.path} {module.version}",
    ]
    lines += [f"replace {path} => {path} {staging_version}" for path in _STAGING.findall(own_go_mod)]
    return "\n".join(lines) + "\n"
