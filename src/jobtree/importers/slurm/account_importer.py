"""Converts associations (``sacctmgr show assoc -p``) to Budgets.

An account becomes an owner, and the tree of accounts becomes its path: ``root``, ``root:physics``,
``root:physics:ml``, or the owner in the mapping. GrpTRES becomes concurrency, GrpTRESMins becomes GPU-hours.

In Slurm the limits of an account include those below it; in Jobtree the envelopes of a family add up. The
envelope of an account therefore has what the limits of its children leave of its own; a remark says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted, ObjectBody
from jobtree.importers.kubernetes_names import flavor_name, short_name, unused
from jobtree.importers.slurm.parsable_table import TableRow, gpus_in, read_table
from jobtree.importers.slurm.site_mapping import SlurmMap

COMMAND: Final = "sacctmgr show assoc -p"
NEEDED: Final = ("Account",)
MINUTES: Final = 60
IGNORED: Final = {
    "MaxTRES": "limits of one job: a Run is limited by the envelope of its team",
    "MaxTRESMins": "limits of one job: use --time in the script",
    "GrpJobs": "Jobtree limits GPUs, not jobs",
    "MaxJobs": "Jobtree limits GPUs, not jobs",
    "GrpWall": "set maxDuration in the Run",
    "MaxWall": "set maxDuration in the Run",
    "Priority": "Jobtree has no priorities",
}


@dataclass
class SlurmAccount:
    """An account of one cluster, with its limits by type of GPU."""

    name: str
    parent: str
    cluster: str
    where: str
    gpus: dict[str, int] = field(default_factory=dict)
    minutes: dict[str, int] = field(default_factory=dict)
    children: list["SlurmAccount"] = field(default_factory=list)


def convert_accounts(source: str, raw: bytes, mapping: SlurmMap, gpu_type: str | None) -> Converted:
    """Converts each account to a Budget. Raises InputError."""
    out = Converted()
    accounts = _accounts(raw, source, out)
    _refuse_cycles(accounts, source)
    for account in accounts.values():
        parent = accounts.get((account.cluster, account.parent))
        if parent:
            parent.children.append(account)
    many = len({account.cluster for account in accounts.values()}) > 1
    budgets: dict[str, ObjectBody] = {}
    for account in accounts.values():
        owner = _owner(account, accounts, mapping)
        budget = budgets.setdefault(owner, _budget(account, owner, budgets))
        budget["spec"]["envelopes"] += _envelopes(account, mapping, gpu_type, out, many=many)
    if len(budgets) > 1:
        hint = "'sharing: none' on an envelope reserves it for its team"
        out.remark(
            source, "limits of accounts", f"accounts of one family may use each other's idle GPUs: {hint}"
        )
    if any(account.minutes for account in accounts.values()):
        out.remark(
            source, "GrpTRESMins", "past usage is not imported, and usage does not decay: check maxGPUHours"
        )
    out.add(budgets.values(), source)
    return out


def _accounts(raw: bytes, source: str, out: Converted) -> dict[tuple[str, str], SlurmAccount]:
    accounts: dict[tuple[str, str], SlurmAccount] = {}
    for where, row in read_table(raw, source, NEEDED, COMMAND):
        name, cluster = row["Account"], row.get("Cluster", "")
        if row.get("User"):
            if row.get("GrpTRES") or row.get("GrpTRESMins"):
                out.remark(
                    where,
                    f"limits of user {row['User']}",
                    "Budgets belong to teams: give the user a team of its own",
                )
            continue
        if not name:
            raise InputError(where, ["Account: is empty"])
        account = SlurmAccount(name, row.get("ParentName") or row.get("Par Name", ""), cluster, where)
        account.gpus, account.minutes = _limits(row, where, "GrpTRES"), _limits(row, where, "GrpTRESMins")
        accounts[cluster, name] = account
        for column, instead in IGNORED.items():
            if row.get(column):
                out.remark(source, column, instead)
        if row.get("Share", row.get("Fairshare", "1")) not in ("", "1", "parent"):
            out.remark(source, "Share", "Jobtree has no fair share: a team is limited by its envelopes")
    if not accounts:
        raise InputError(source, [f"has no accounts: give the output of '{COMMAND}'"])
    return accounts


def _limits(row: TableRow, where: str, column: str) -> dict[str, int]:
    try:
        return gpus_in(row.get(column, ""))
    except ValueError as broken:
        raise InputError(where, [f"{column}: {broken}"]) from None


def _refuse_cycles(accounts: dict[tuple[str, str], SlurmAccount], source: str) -> None:
    for account in accounts.values():
        path = [account.name]
        at: SlurmAccount | None = account
        while at and (at := accounts.get((account.cluster, at.parent))):
            path.append(at.name)
            if at is account:
                raise InputError(source, [f"ParentName: {' → '.join(path)} is a cycle"])
            if len(path) > len(accounts):
                break


def _owner(account: SlurmAccount, accounts: dict[tuple[str, str], SlurmAccount], mapping: SlurmMap) -> str:
    parts: list[str] = []
    at: SlurmAccount | None = account
    while at and len(parts) <= len(accounts):
        if at.name in mapping.accounts:
            return ":".join([mapping.accounts[at.name], *parts])
        parts.insert(0, short_name(at.name))
        at = accounts.get((account.cluster, at.parent))
    return ":".join(parts)


def _budget(account: SlurmAccount, owner: str, budgets: dict[str, ObjectBody]) -> ObjectBody:
    taken = {budget["metadata"]["name"] for budget in budgets.values()}
    metadata = {"name": unused(short_name(account.name), taken)}
    spec: dict[str, Any] = {"owner": owner, "envelopes": []}
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": metadata, "spec": spec}


def _envelopes(
    account: SlurmAccount, mapping: SlurmMap, gpu_type: str | None, out: Converted, *, many: bool
) -> list[ObjectBody]:
    typed = [kind for kind in account.gpus if kind]
    if typed and "" in account.gpus:
        instead = "the limit on all types together is ignored: only types have envelopes"
        out.remark(account.where, "gres/gpu beside a type", instead)
    if account.minutes and not account.gpus:
        instead = "hours need a number of GPUs: set GrpTRES, or concurrency in the envelope"
        out.remark(account.where, f"GrpTRESMins of {account.name}", instead)
    envelopes = []
    for kind in typed or [kind for kind in account.gpus if not kind]:
        flavor = mapping.gpus.get(kind) or (flavor_name(kind) if kind else gpu_type or mapping.gpu_type)
        if not flavor:
            raise InputError(account.where, ["GrpTRES: gres/gpu has no type: give --gpu-type"])
        rest = _rest(account, kind, out)
        if rest > 0:
            envelopes.append(_envelope(account, kind, flavor, rest, many=many))
    return envelopes


def _envelope(account: SlurmAccount, kind: str, flavor: str, gpus: int, *, many: bool) -> ObjectBody:
    """An envelope of the account. With several clusters, a selector on the label ``cluster`` is added."""
    name = short_name(f"{account.cluster}-{flavor}" if many else flavor, "gpus")
    envelope: ObjectBody = {"name": name, "flavor": flavor, "concurrency": gpus}
    if many:
        envelope["selector"] = {"cluster": flavor_name(account.cluster)}
    if kind in account.minutes:
        given = sum(_given(account, lambda child: child.minutes.get(kind)).values())
        envelope["maxGPUHours"] = max(account.minutes[kind] - given, 0) // MINUTES
    return envelope


def _rest(account: SlurmAccount, kind: str, out: Converted) -> int:
    """The GPUs that the limits below an account leave of its own."""
    given = _given(account, lambda child: child.gpus.get(kind))
    rest = account.gpus[kind] - sum(given.values())
    if given:
        sums = " − ".join(map(str, [account.gpus[kind], *given.values()]))
        left = f"{account.name} itself gets {rest} GPUs ({sums})"
        if rest < 0:
            left = f"the accounts below it may use {-rest} GPUs more than it ({sums}): lower their envelopes"
        out.remark(account.where, f"GrpTRES of {account.name}", f"the envelopes of a family add up: {left}")
    return rest


def _given(account: SlurmAccount, limit: Callable[[SlurmAccount], int | None]) -> dict[str, int]:
    """The limits of the accounts below, by name. A child without a limit is replaced by its children."""
    limits: dict[str, int] = {}
    for child in account.children:
        own = limit(child)
        limits |= _given(child, limit) if own is None else {child.name: own}
    return limits
