"""The usage of one Run: what its open leases charge now, and what its closed and archived leases used.

GPUs × time is in GPU milliseconds. A charge × time is in thousandths of a GPU times milliseconds.
"""

from collections.abc import Container, Iterable, Mapping

from jobtree.api.kinds.lease import LeaseClass
from jobtree.core.accounts.envelope_accounts import ClassUsage
from jobtree.core.model.gpu_lease import EnvelopeKey, GpuLease

FundingKey = tuple[LeaseClass, EnvelopeKey]


class RunUsage:
    """Usage by class and payer; the carried part is that of archived leases."""

    __slots__ = (
        "archived_leases",
        "by_payer",
        "carried",
        "carried_charge",
        "carried_spare",
        "closed_charge",
    )

    def __init__(self) -> None:
        self.by_payer: dict[FundingKey, ClassUsage] = {}
        self.closed_charge = 0  # charge × time of closed leases
        self.carried: dict[FundingKey, int] = {}  # GPUs × time of archived leases
        self.carried_charge = 0  # the part of closed_charge that archived leases have
        self.carried_spare = 0  # the part of the carried GPUs × time that spares have
        self.archived_leases: dict[str, None] = {}  # archived leases that may still exist as objects

    def of(self, lease: GpuLease) -> ClassUsage:
        """Returns the usage in the lease's class that its payer pays for."""
        return self.by_payer.setdefault((lease.class_, lease.payer), ClassUsage())

    def add_closed(self, lease: GpuLease, span_ms: int, charge: int) -> None:
        """Adds what a closed lease used; a negative span and charge take it back."""
        self.of(lease).closed_usage += lease.gpus * span_ms
        self.closed_charge += charge

    def add_closed_charge(self, charge: int) -> None:
        """Adds the charge of leases that were read as closed before their Run was read."""
        self.closed_charge += charge

    def load_carried(
        self, used: Mapping[FundingKey, int], charge: int, spare: int, leases: Iterable[str]
    ) -> None:
        """Loads what the status says of archived leases, and the names of those that may still exist."""
        for key, amount in used.items():
            self.carried[key] = amount
            self.by_payer.setdefault(key, ClassUsage()).closed_usage += amount
        self.carried_charge, self.carried_spare = charge, spare
        self.closed_charge += charge
        self.archived_leases = dict.fromkeys(leases)

    def carry(self, lease: GpuLease, span_ms: int, charge: int) -> None:
        """Adds a closed lease that is archived now to the carried usage, once."""
        if lease.name in self.archived_leases:
            return
        self.archived_leases[lease.name] = None
        key, used = (lease.class_, lease.payer), lease.gpus * span_ms
        self.carried[key] = self.carried.get(key, 0) + used
        self.carried_charge += charge
        self.carried_spare += used if lease.role == "Spare" else 0

    def forget_archived(self, lease: str) -> None:
        """Forgets an archived lease whose object is gone."""
        self.archived_leases.pop(lease, None)

    def forget_archived_except(self, present: Container[str]) -> None:
        """Forgets all archived leases but those whose objects are present."""
        self.archived_leases = {name: None for name in self.archived_leases if name in present}
