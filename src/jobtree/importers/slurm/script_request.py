"""The input of a conversion: a script, the options of the caller, and the result so far."""

from dataclasses import dataclass, field

from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import OptionSetting, Script, decode_script
from jobtree.importers.slurm.script.gpu_request import GpuRequest
from jobtree.importers.slurm.site_mapping import Partition, SlurmMap


@dataclass(frozen=True)
class CallerOptions:
    """What the caller adds to all scripts."""

    mapping: SlurmMap = field(default_factory=SlurmMap)
    image: str | None = None
    owner: str | None = None
    gpu_type: str | None = None
    namespace: str | None = None
    checkpoint: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScriptRequest:
    """One script that is converted to a Run."""

    script: Script
    options: CallerOptions
    partition: Partition
    shape: GpuRequest
    out: Converted

    @property
    def mapping(self) -> SlurmMap:
        return self.options.mapping

    def setting(self, name: str) -> OptionSetting | None:
        return self.script.settings.get(name)

    def note(self, setting: OptionSetting, instead: str, what: str = "") -> None:
        """Adds a remark about a setting, or about the part ``what`` of it."""
        self.out.remark(setting.where, what or str(setting), instead)


def read_environment(source: str, raw: bytes) -> dict[str, str]:
    """Reads variables from lines ``NAME=VALUE``, as ``env`` prints them. Raises InputError."""
    variables: dict[str, str] = {}
    for number, line in enumerate(decode_script(raw, source).splitlines(), start=1):
        name, equals, value = line.removeprefix("export ").partition("=")
        if not line.strip() or line.startswith("#"):
            continue
        if not equals or not name.strip():
            raise InputError(f"{source}, line {number}", [f"{line!r} must be NAME=VALUE"])
        variables[name.strip()] = value.strip().strip("\"'")
    return variables
