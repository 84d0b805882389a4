"""Prints leases as rows of CSV."""

import csv
import sys
from collections.abc import Iterable

from jobtree.client.answers.lease_rows import LEASE_COLUMNS, lease_row
from jobtree.client.source.lease_entries import LeaseEntry
from jobtree.client.source.ledger_period import Period
from jobtree.snapshot.cluster import Cluster


def print_rows(cluster: Cluster, leases: Iterable[LeaseEntry], period: Period) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(LEASE_COLUMNS)
    policy = cluster.world.policy
    writer.writerows(lease_row(policy, cluster.now, entry, period).texts() for entry in leases)
