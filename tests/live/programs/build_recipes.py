"""The Go programs that the live tests run: for each its Go module, its pinned version and its changes.

Every program is built from the Go module proxy inside a *wrapper module*: a ``go.mod`` that requires only the
module of the program. The ``go.mod`` of Kubernetes requires its staging modules (such as ``k8s.io/api``) at
``v0.0.0`` and replaces them by directories of its repository. Go ignores the replacements of a dependency, so
the wrapper replaces each staging module by the version that is published with the release: ``v0.36.3`` for
Kubernetes ``v1.36.3``.

Some programs belong to the tests: a ``main.go`` in ``go/NAME`` is copied into the wrapper of the module that
it needs. Others have an *amendment*, which corrects an error that would distort measurements. The names of
both in the cache end with a digest of the source or of the amendment, so a change causes a new build.
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
    """A Go module at one version. ``stamps`` are string variables that the build of a release sets."""

    path: str
    version: str
    stamps: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """The directory of module and version: ``kubernetes-v1.36.3``."""
        parts = [part for part in self.path.split("/") if part not in {"server", "v3"}]
        return f"{parts[-1]}-{self.version}"


@dataclass(frozen=True)
class Amendment:
    """A change to one file of a module: ``becomes`` replaces ``was``, which must occur once.

    The names of this class and its fields are part of the cache key of an amended program.
    """

    file: str
    was: str
    becomes: str

    def applied_to(self, source: str) -> str:
        assert source.count(self.was) == 1, f"{self.file} has changed: it does not contain {self.was!r} once"
        return source.replace(self.was, self.becomes)


@dataclass(frozen=True)
class Recipe:
    """How one program is built: the package, and the arguments with which it prints its version.

    Without such arguments, a program of that name on ``PATH`` is not used.
    """

    module: Module
    package: str
    version_arguments: tuple[str, ...] = ("--version",)
    source: Path | None = None
    """The program's main.go, if it belongs to the tests."""
    amendments: tuple[Amendment, ...] = ()

    @property
    def built_name(self) -> str:
        """The file name that Go gives the program: the last part of the package that is no major version."""
        return re.sub(r"/v\d+$", "", self.package).rpartition("/")[2]

    def file_name(self, name: str) -> str:
        """The file name of the program ``name`` in the cache."""
        if self.source is None and not self.amendments:
            return name
        change = self.source.read_bytes() if self.source else repr(self.amendments).encode()
        return f"{name}-{hashlib.sha256(change).hexdigest()[:12]}"


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


def _kubernetes_program(name: str, *version_arguments: str) -> Recipe:
    return Recipe(KUBERNETES, f"k8s.io/kubernetes/cmd/{name}", version_arguments or ("--version",))


def _test_program(name: str, module: Module, *version_arguments: str) -> Recipe:
    return Recipe(module, f"{WRAPPER}/{name}", version_arguments, OWN_SOURCES / name / "main.go")


KUBERNETES = _kubernetes("v1.36.3")
ETCD = Module("go.etcd.io/etcd/server/v3", "v3.6.16")
KWOK = Module("sigs.k8s.io/kwok", "v0.7.0")
# The API server ends a watch that is read too slowly, and a client resumes it at the last version. kwok
# starts again with a list: it gets all pods of the fleet once more, and updates some pods twice.
KWOK_RESUMES_WATCHES = Amendment(
    "pkg/utils/informer/event.go",
    'opts.ResourceVersion = "0"',
    'if opts.ResourceVersion == "" { opts.ResourceVersion = "0" }',
)
COREDNS = Module("github.com/coredns/coredns", "v1.12.4")
HELM = Module("helm.sh/helm/v3", "v3.20.2")

RECIPES = {
    "etcd": Recipe(ETCD, ETCD.path),
    "kube-apiserver": _kubernetes_program("kube-apiserver"),
    "kubectl": _kubernetes_program("kubectl", "version", "--client"),
    "kube-controller-manager": _kubernetes_program("kube-controller-manager"),
    "kube-scheduler": _kubernetes_program("kube-scheduler"),
    "kubelet": _kubernetes_program("kubelet"),
    "kwok": Recipe(KWOK, "sigs.k8s.io/kwok/cmd/kwok", (), amendments=(KWOK_RESUMES_WATCHES,)),
    "coredns": _test_program("coredns", COREDNS, "-version"),
    "helm": Recipe(HELM, "helm.sh/helm/v3/cmd/helm", ("version",)),
    "gpu-device-plugin": _test_program("gpu-device-plugin", KUBERNETES),
    "pause": _test_program("pause", KUBERNETES),
}


CLUSTER_PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)
"""The programs of a cluster with fake nodes."""
REAL_NODE_PROGRAMS = ("kubelet", "gpu-device-plugin", "pause", "coredns")
"""The further programs of real nodes."""


def wrapper_go_mod(module: Module, own_go_mod: str, *, amended: bool = False) -> str:
    """Returns the ``go.mod`` in which ``module`` is built; ``own_go_mod`` is the one of the module itself."""
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
