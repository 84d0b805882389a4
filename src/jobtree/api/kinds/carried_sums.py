"""The exact usage of archived leases, as sums in the status of Budgets and Runs.

Sums are in GPU-seconds. A thousandth of a GPU times a millisecond is a millionth of a GPU-second, so no sum
is ever rounded. ``leases`` names the leases that are in the sums and whose objects may still exist, since the
objects are deleted one after another. A reader of both must not count these leases twice.
"""

from typing import Annotated

from msgspec import Meta

from jobtree.api.kinds.lease import LeaseClass, Payer
from jobtree.api.schema.object_meta import Wire
from jobtree.api.schema.scalars import FlavorName, GpuSeconds, Name, ShortName

MAX_ENVELOPES = 1024  # of one Budget, including removed ones
MAX_SHARES = 256  # payers and classes of one Run
MAX_LEAVING = 256  # archived leases of one Budget or Run whose objects may still exist

Leaving = Annotated[tuple[Name, ...], Meta(max_length=MAX_LEAVING)]


class ClassSeconds(Wire):
    """Charged GPU-seconds, by class of lease. Opportunistic leases, which are not charged, count in full."""

    owned: GpuSeconds = "0"
    shared: GpuSeconds = "0"
    borrowed: GpuSeconds = "0"
    spare: GpuSeconds = "0"
    opportunistic: GpuSeconds = "0"


class CarriedUse(Wire):
    """The usage of archived leases that one envelope paid for."""

    name: ShortName
    flavor: FlavorName
    gpu_seconds: ClassSeconds = ClassSeconds()
    lent_gpu_seconds: GpuSeconds = "0"  # the part that counts against the lending limit


class CarriedUses(Wire):
    """The usage of archived leases, in the status of a Budget."""

    envelopes: Annotated[tuple[CarriedUse, ...], Meta(max_length=MAX_ENVELOPES)] = ()
    leases: Leaving = ()


class CarriedShare(Wire):
    """The usage of archived leases of a Run, for one payer and one class."""

    class_: LeaseClass
    payer: Payer
    gpu_seconds: GpuSeconds


class CarriedRun(Wire):
    """The usage of archived leases, in the status of a Run."""

    funding: Annotated[tuple[CarriedShare, ...], Meta(max_length=MAX_SHARES)] = ()
    charged_gpu_seconds: GpuSeconds = "0"  # the part that counts against the quotas of trees
    spare_gpu_seconds: GpuSeconds = "0"  # the part of spares
    leases: Leaving = ()
