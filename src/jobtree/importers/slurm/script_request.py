"""What a conversion starts from: the script, what the caller adds to it, and where remarks go."""

from dataclasses import dataclass, field

from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import OptionSetting, Script, decode_script
from jobtree.importers.slurm.script.gpu_request import GpuRequest
from jobtree.importers.slurm.site_mapping import Partition, SlurmMap


@dataclass(frozen=True)
class CallerOptions:
    """What the caller adds to the scripts."""

    mapping: SlurmMap = field(default_factory=SlurmMap)
    image: str | None = None
    owner: str | None = None
    gpu_type: str | None = None
    namespace: str | None = None
    checkpoint: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScriptRequest:
    """One script on its way to a Run."""

    script: Script
    wishes: CallerOptions
    partition: Partition
    shape: GpuRequest
    out: Converted

    @property
    def mapping(self) -> SlurmMap:
        return self.wishes.mapping

    def setting(self, name: str) -> OptionSetting | None:
        return self.script.settings.get(name)

    def note(self, setting: OptionSetting, instead: str, what: str = "") -> None:
        """Remark on a setting, or on a part of it."""
        self.out.remark(setting.where, what or str(setting), instead)


def read_environment(source: str, raw: bytes) -> dict[str, str]:
    """Variables from lines ``NAME=VALUE``, as ``env`` prints them. Raises InputError."""
    variables: dict[str, str] = {}
    for number, line in enumerate(decode_script(raw, source).splitlines(), start=1):
        name, equals, value = line.removeprefix("export ").partition("=")
        if not line.strip() or line.startswith("#"):
            continue
        if not equals or not name.strip():
            raise InputError(f"{source}, line {number}", [f"{line!r} must be NAME=VALUE"])
        variables[name.strip()] = value.strip().strip("\"'")
    return variables
