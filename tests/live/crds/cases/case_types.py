"""The rows of the tables of manifests: a manifest, and whether the API server must accept it."""

from dataclasses import dataclass

from tests.live.crds.manifests import Manifest


@dataclass(frozen=True)
class Accepted:
    """A manifest that must be accepted; ``claim`` says what is special about it."""

    claim: str
    manifest: Manifest


@dataclass(frozen=True)
class Refused:
    """A manifest that must be refused; the message contains ``field`` and matches the pattern ``says``."""

    claim: str
    manifest: Manifest
    field: str
    says: str


@dataclass(frozen=True)
class RefusedByValidator:
    """A manifest that breaks a rule which CEL cannot check within the cost limit of an API server.

    ``jobtree.api.kinds.crd`` lists those rules. The validator refuses the manifest, and the API server
    accepts it.
    """

    claim: str
    manifest: Manifest
    field: str
    says: str
