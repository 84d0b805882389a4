"""What a row of the table is: a manifest, and whether the API may take it."""

from dataclasses import dataclass

from tests.live.manifests import Manifest


@dataclass(frozen=True)
class Accepted:
    """A manifest that must be taken. ``claim`` says why one might think otherwise."""

    claim: str
    manifest: Manifest


@dataclass(frozen=True)
class Refused:
    """A manifest that must be refused, with a message that names ``field`` and matches ``says``."""

    claim: str
    manifest: Manifest
    field: str
    says: str


@dataclass(frozen=True)
class RefusedByValidator:
    """A manifest that breaks a rule which CEL cannot say within the cost that a server allows.

    ``jobtree.api.kinds.crd`` lists those rules. The validator refuses it; the server alone still takes it.
    """

    claim: str
    manifest: Manifest
    field: str
    says: str
