"""What the control plane is made of: each program, its Go module and its pinned version.

Every program is built from the Go module proxy inside a *wrapper module*: a ``go.mod`` that requires
the program's module and nothing else. Kubernetes needs one thing more. Its own ``go.mod`` requires the
staging modules (``k8s.io/api`` and so on) at ``v0.0.0`` and replaces them by directories of its
repository, and a dependency's replacements do not count; so the wrapper replaces each of them by the
version published along with the release: ``v1.36.3`` of Kubernetes is ``v0.36.3`` of its staging modules.

Some programs are the tests' own: a ``main.go`` in ``go/NAME``, which is copied into the wrapper of the
module that it needs. Others have an *amendment*: a mistake of theirs that would spoil what is measured is
mended while they are built. The name of both in the cache ends with a digest of what is the tests' own: one
edited is one to build.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

GO_VERSION = (1, 26)
"""The oldest Go that compiles these modules."""

OWN_SOURCES = Path(__file__).with_name("go")
WRAPPER = "wrapper"
AMENDED = "amended"

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
class Amendment:
    """In this file of the module, ``becomes`` takes the place of ``was``, which must be there once."""

    file: str
    was: str
    becomes: str

    def applied_to(self, source: str) -> str:
        assert source.count(self.was) == 1, f"{self.file} has changed: it does not say {self.was!r} once"
        return source.replace(self.was, self.becomes)


@dataclass(frozen=True)
class Recipe:
    """One program: the package to build, and the arguments with which it tells its version.

    Without those no other program of that name will do.
    """

    module: Module
    package: str
    tell_version: tuple[str, ...] = ("--version",)
    source: Path | None = None
    """The program's main.go, if it is the tests' own."""
    amendments: tuple[Amendment, ...] = ()

    @property
    def made_as(self) -> str:
        """What Go calls the program that it builds: the package's last name that is no major version."""
        return re.sub(r"/v\d+$", "", self.package).rpartition("/")[2]

    def file_name(self, name: str) -> str:
        """What the program called ``name`` is called in the cache."""
        if self.source is None and not self.amendments:
            return name
        own = self.source.read_bytes() if self.source else repr(self.amendments).encode()
        return f"{name}-{hashlib.sha256(own).hexdigest()[:12]}"


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


def _of_kubernetes(name: str, *tell_version: str) -> Recipe:
    return Recipe(KUBERNETES, f"k8s.io/kubernetes/cmd/{name}", tell_version or ("--version",))


def _own(name: str, module: Module, *tell_version: str) -> Recipe:
    return Recipe(module, f"{WRAPPER}/{name}", tell_version, OWN_SOURCES / name / "main.go")


KUBERNETES = _kubernetes("v1.36.3")
ETCD = Module("go.etcd.io/etcd/server/v3", "v3.6.16")
KWOK = Module("sigs.k8s.io/kwok", "v0.7.0")
# The server ends a watch that is read too slowly, and a client goes on from where it was. kwok began anew
# every time: all pods of the fleet came again, and some that it was busy with were answered for twice.
KWOK_GOES_ON = Amendment(
    "pkg/utils/informer/event.go",
    'opts.ResourceVersion = "0"',
    'if opts.ResourceVersion == "" { opts.ResourceVersion = "0" }',
)
COREDNS = Module("github.com/coredns/coredns", "v1.12.4")
HELM = Module("helm.sh/helm/v3", "v3.20.2")

RECIPES = {
    "etcd": Recipe(ETCD, ETCD.path),
    "kube-apiserver": _of_kubernetes("kube-apiserver"),
    "kubectl": _of_kubernetes("kubectl", "version", "--client"),
    "kube-controller-manager": _of_kubernetes("kube-controller-manager"),
    "kube-scheduler": _of_kubernetes("kube-scheduler"),
    "kubelet": _of_kubernetes("kubelet"),
    "kwok": Recipe(KWOK, "sigs.k8s.io/kwok/cmd/kwok", (), amendments=(KWOK_GOES_ON,)),
    "coredns": _own("coredns", COREDNS, "-version"),
    "helm": Recipe(HELM, "helm.sh/helm/v3/cmd/helm", ("version",)),
    "gpu-device-plugin": _own("gpu-device-plugin", KUBERNETES),
    "pause": _own("pause", KUBERNETES),
}


def wrapper_go_mod(module: Module, own_go_mod: str, *, amended: bool = False) -> str:
    """The ``go.mod`` in which ``module`` is built, given the one that the module itself carries."""
    staging_version = "v0." + module.version.split(".", 1)[1]
    lines = [
        f"module {WRAPPER}",
        "",
        f"go {GO_VERSION[0]}.{GO_VERSION[1]}.0",
        "",
        f"require {module.path} {module.version}",
    ]
    lines += [f"replace {path} => {path} {staging_version}" for path in _STAGING.findall(own_go_mod)]
    if amended:
        lines.append(f"replace {module.path} => ./{AMENDED}")
    return "\n".join(lines) + "\n"
