"""What status carries of leases that have left the cluster for the archive: exact sums, and nothing else.

Sums are in GPU-seconds: thousandths of a GPU times milliseconds are whole millionths of one, so nothing is
rounded however long it goes on. ``leases`` names those that are in the sums and may still be there: they
leave one after another, and whoever reads both at that time must not count them twice.
"""

from typing import Annotated

from msgspec import Meta

from jobtree.api.kinds.lease import LeaseClass, Payer
from jobtree.api.schema.object_meta import Wire
from jobtree.api.schema.scalars import FlavorName, GpuSeconds, Name, ShortName

MAX_ENVELOPES = 1024  # of one Budget, those included that it had once
MAX_SHARES = 256  # payers and classes of one Run
MAX_LEAVING = 256  # leases of one Budget or Run that leave at a time

Leaving = Annotated[tuple[Name, ...], Meta(max_length=MAX_LEAVING)]


class ClassSeconds(Wire):
    """Charged GPU-seconds by class of lease; of opportunistic ones, which are not charged, whole GPUs."""

    owned: GpuSeconds = "0"
    shared: GpuSeconds = "0"
    borrowed: GpuSeconds = "0"
    spare: GpuSeconds = "0"
    opportunistic: GpuSeconds = "0"


class CarriedUse(Wire):
    """What one envelope paid for."""

    name: ShortName
    flavor: FlavorName
    gpu_seconds: ClassSeconds = ClassSeconds()
    lent_gpu_seconds: GpuSeconds = "0"  # the part that counts against the lending limit


class CarriedUses(Wire):
    """In the status of a Budget."""

    envelopes: Annotated[tuple[CarriedUse, ...], Meta(max_length=MAX_ENVELOPES)] = ()
    leases: Leaving = ()


class CarriedShare(Wire):
    """What one payer paid in one class."""

    class_: LeaseClass
    payer: Payer
    gpu_seconds: GpuSeconds


class CarriedRun(Wire):
    """In the status of a Run."""

    funding: Annotated[tuple[CarriedShare, ...], Meta(max_length=MAX_SHARES)] = ()
    charged_gpu_seconds: GpuSeconds = "0"  # what counts against the quotas of trees
    spare_gpu_seconds: GpuSeconds = "0"  # the part that did no work
    leases: Leaving = ()
