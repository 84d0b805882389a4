"""Keeps the cluster as the manager sees it: one object store for each kind, and the changes since last time.

Planning needs all kinds of ``NEEDED``. If there is no policy, or the manager may not read it, the defaults
apply. If the policy is broken, the one before stays in force; if there was none before, nothing is planned.
Services are watched because those that somebody deletes are made again.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.policy import Policy, PolicySpec, build_policy
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Run
from jobtree.kube.http.api_requests import EVERYTHING, Selector
from jobtree.kube.http.api_resources import (
    BUDGETS,
    CONFIG_MAPS,
    LEASES,
    NODES,
    PODS,
    RESERVATIONS,
    RUNS,
    SERVICES,
    Resource,
)
from jobtree.kube.installation import POLICY_NAME, UID_LABEL, policy_spec
from jobtree.kube.watch import object_decoder
from jobtree.kube.watch.object_decoder import LiveNode, LivePod
from jobtree.kube.watch.object_store import Change, DeferredWake, Encoded, Store, StoredObject, Unreadable

NEEDED = (NODES, PODS, BUDGETS, RUNS, LEASES, RESERVATIONS)


class Changes(NamedTuple):
    """The changes since the last turn, by kind."""

    policy: list[Change[Policy]]
    nodes: list[Change[LiveNode]]
    pods: list[Change[LivePod]]
    budgets: list[Change[Budget]]
    runs: list[Change[Run]]
    leases: list[Change[Lease]]
    reservations: list[Change[Reservation]]
    unread: frozenset[str] = frozenset()  # UIDs of Runs that exist and cannot be read
    services: Sequence[Change[str]] = ()  # of Runs, whose UIDs are the values


class ClusterView:
    """``wake`` is called when a change may need a turn, ``wake_later`` when pods only start as expected."""

    def __init__(
        self,
        namespace: str,
        report: Callable[[str, Unreadable], None],
        wake: Callable[[], None],
        wake_later: Callable[[], None] = lambda: None,
    ) -> None:
        def reporter(kind: str) -> Callable[[Unreadable], None]:
            return lambda unreadable: report(kind, unreadable)

        self.policy = Store(read_policy, reporter("ConfigMap"), wake)
        self.nodes = Store(object_decoder.read_live_node, reporter("Node"), wake)
        deferred_wake = DeferredWake(object_decoder.needs_no_action, wake_later)
        self.pods = Store(object_decoder.read_live_pod, reporter("Pod"), wake, deferred_wake=deferred_wake)
        self.budgets = Store(object_decoder.read_budget, reporter("Budget"), wake, object_decoder.restamp)
        self.runs = Store(object_decoder.read_run, reporter("Run"), wake, object_decoder.restamp)
        self.leases = Store(object_decoder.read_lease, reporter("Lease"), wake, object_decoder.restamp)
        self.reservations = Store(
            object_decoder.read_reservation, reporter("Reservation"), wake, object_decoder.restamp
        )
        self.services = Store(object_decoder.read_service, reporter("Service"), wake)
        self._policy_selector = Selector(namespace, fields=f"metadata.name={POLICY_NAME}")

    def by_resource(self) -> dict[Resource, tuple[Store[Any], Selector]]:
        return {
            NODES: (self.nodes, EVERYTHING),
            PODS: (self.pods, EVERYTHING),
            BUDGETS: (self.budgets, EVERYTHING),
            RUNS: (self.runs, EVERYTHING),
            LEASES: (self.leases, EVERYTHING),
            RESERVATIONS: (self.reservations, EVERYTHING),
            CONFIG_MAPS: (self.policy, self._policy_selector),
            SERVICES: (self.services, Selector(labels=UID_LABEL)),
        }

    @property
    def kinds_not_listed(self) -> list[Resource]:
        """The kinds that planning needs and that have not been listed yet."""
        stores = self.by_resource()
        return [resource for resource in NEEDED if not stores[resource][0].synced]

    @property
    def unread_policy(self) -> str:
        """Why the existing policy cannot be read; empty if one was read, or if there is none."""
        return (
            ""
            if len(self.policy)
            else next((unreadable.why for unreadable in self.policy.unreadable.values()), "")
        )

    def drain(self) -> Changes:
        return Changes(
            self.policy.drain(),
            self.nodes.drain(),
            self.pods.drain(),
            self.budgets.drain(),
            self.runs.drain(),
            self.leases.drain(),
            self.reservations.drain(),
            self.unreadable_runs(),
            self.services.drain(),
        )

    def unreadable_runs(self) -> frozenset[str]:
        """Returns the UIDs of Runs that were never read and are not being deleted: they keep their leases."""
        return frozenset(
            uid
            for uid, unreadable in self.runs.unreadable.items()
            if self.runs.get(uid) is None and unreadable.head.metadata.deletion_timestamp is None
        )

    def everything(self) -> Changes:
        """Returns all objects as changes, to build a world from.

        Objects that are gone are not in it: parts that count objects must have drained the changes before.
        """

        def additions(store: Store[Any]) -> list[Change[Any]]:
            return [Change(None, stored) for stored in store]

        return Changes(
            additions(self.policy),
            additions(self.nodes),
            additions(self.pods),
            additions(self.budgets),
            additions(self.runs),
            additions(self.leases),
            additions(self.reservations),
            self.unreadable_runs(),
        )


class _ConfigMeta(msgspec.Struct, rename="camel"):
    uid: str
    name: str
    namespace: str
    resource_version: str


class _ConfigMap(msgspec.Struct):
    metadata: _ConfigMeta
    data: dict[str, str] = {}


_decode_config_map = msgspec.json.Decoder(_ConfigMap).decode


def read_policy(encoded: Encoded) -> StoredObject[Policy]:
    """Reads the policy in a ConfigMap: YAML under ``policy.yaml``. Raises InputError."""
    raw = _decode_config_map(encoded)
    written, where = policy_spec(raw.data, raw.metadata.namespace)
    policy = build_policy(decode_struct(written, PolicySpec, where), where)
    metadata = raw.metadata
    return StoredObject(metadata.uid, metadata.name, metadata.namespace, metadata.resource_version, policy)
