"""The nodes and budgets of a replay: from a state file, or made up from flags.

A state file gives nodes, budgets, policy and clock; its Runs are ignored, since a replay begins with an empty
fleet. Nodes that are cordoned, failed or not ready are left out. Jobs of a trace tolerate every taint.
Made-up teams are siblings below ``org``, so they share idle GPUs like the queues of a cohort. Their budgets
are given in GPUs or in per cent of the fleet; the other teams share the rest in proportion to the GPU-hours
of their jobs, in whole nodes: a pod has one payer, so two budgets that share a node could pay no pod that
fills it. A team that wants little may get an empty Budget; it uses the GPUs of its siblings.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.kinds.budget import Budget, BudgetSpec, Envelope
from jobtree.api.kinds.policy import Policy, is_sim_document, parse_clock, parse_policy
from jobtree.api.kubernetes.node import DomainName, Node, read_node
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.schema.quantities import parse_time
from jobtree.api.validation.object_parser import parse_object
from jobtree.simulation.inputs.csv_table import MAX_DIGITS
from jobtree.simulation.inputs.job_trace import Trace

FLAVOR = "GPU"
PARENT = "org"
EPOCH = parse_time("2026-01-05T00:00:00Z")
MOST_NODES = 100_000
MOST_GPUS_PER_NODE = 64


class ReplayCluster(msgspec.Struct, frozen=True):
    nodes: tuple[Node, ...]
    budgets: tuple[Budget, ...] = ()
    policy: Policy = Policy()
    epoch: int = EPOCH
    left_out: tuple[str, ...] = ()  # nodes of the state file that can carry nothing as they are

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


def made_up(count: int, gpus_per_node: int, domains: int) -> ReplayCluster:
    """So many nodes alike, in domains of one size. Raises InputError."""
    bounds = (("--nodes", count, MOST_NODES), ("--gpus-per-node", gpus_per_node, MOST_GPUS_PER_NODE))
    for option, value, most in (*bounds, ("--domains", domains, count)):
        if not 1 <= value <= most:
            raise InputError("options", [Problem(option, value, f"must be between 1 and {most}")])
    return ReplayCluster(
        tuple(made_up_node(number, number * domains // count, gpus_per_node) for number in range(count))
    )


def made_up_node(number: int, domain: int, gpus: int) -> Node:
    fabric = f"nv-{domain:03d}"
    return Node(
        name=f"node-{number:05d}",
        uid=f"node-{number:05d}",
        labels={"fabric.domain": fabric, "gpu.flavor": FLAVOR},
        flavor=FLAVOR,
        domain=DomainName("", "", fabric),
        gpus=gpus,
        gpu_resource="nvidia.com/gpu",
        cpu_milli=None,
        memory_bytes=None,
        max_pods=110,
        taints=(),
        cordoned=False,
        ready=True,
        not_ready_since_ms=None,
        failed=False,
    )


def of_state_file(path: str, flavor: str | None) -> ReplayCluster:
    """The nodes and budgets of a state file. Raises InputError."""
    nodes: list[Node] = []
    budgets: list[Budget] = []
    cluster = ReplayCluster(())
    for document in read_documents(Path(path).read_text(encoding="utf-8"), path):
        body, kind = document.body, document.body.get("kind")
        if is_sim_document(body):
            if kind == "Clock":
                cluster = msgspec.structs.replace(cluster, epoch=parse_clock(body, document.where))
            else:
                cluster = msgspec.structs.replace(cluster, policy=parse_policy(body, document.where))
        elif kind == "Node":
            nodes.append(read_node(body, document.where))
        elif kind == "Budget":
            parsed = parse_object(body, document.where)
            budgets += [parsed] if isinstance(parsed, Budget) else []
    chosen = of_flavor([node for node in nodes if node.gpus], flavor, path)
    usable = [node for node in chosen if node.ready and not node.cordoned and not node.failed]
    if not usable:
        raise InputError(path, ["every node with GPUs is cordoned, failed or not ready"])
    return msgspec.structs.replace(
        cluster,
        nodes=tuple(msgspec.structs.replace(node, taints=()) for node in usable),
        budgets=tuple(budgets),
        left_out=tuple(node.name for node in chosen if node not in usable),
    )


def of_flavor(nodes: list[Node], flavor: str | None, where: str) -> list[Node]:
    """The nodes of the one flavor that is replayed."""
    flavors = sorted({node.flavor for node in nodes})
    if not flavors:
        raise InputError(where, ["there is no node with GPUs to replay on"])
    if flavor is None and len(flavors) > 1:
        raise InputError(where, [f"nodes have GPUs of {', '.join(flavors)}: choose one with --flavor"])
    if flavor is not None and flavor not in flavors:
        raise InputError(where, [Problem("--flavor", flavor, f"the fleet has {', '.join(flavors)}")])
    return [node for node in nodes if node.flavor == (flavor or flavors[0])]


# Teams and their budgets


def owners_in(budgets: Iterable[Budget], teams: Iterable[str], where: str) -> tuple[str, ...]:
    """The owner that each team of a trace means: an owner, a budget's name, or the end of an owner's path."""
    owners_by_name: dict[str, set[str]] = {}
    for budget in budgets:
        owner = budget.spec.owner
        for name in (owner, budget.metadata.name, owner.rpartition(":")[2]):
            owners_by_name.setdefault(name, set()).add(owner)
    owners, problems = [], []
    for team in teams:
        matches = {team} if team in owners_by_name.get(team, ()) else owners_by_name.get(team, set())
        if len(matches) == 1:
            owners.append(next(iter(matches)))
        else:
            rule = (
                f"could be {' or '.join(sorted(matches))}"
                if matches
                else "no Budget has such an owner or name"
            )
            problems.append(
                Problem(
                    "user_or_team", team, f"{rule}; there are {', '.join(sorted(owners_by_name)) or 'none'}"
                )
            )
    if problems:
        raise InputError(where, problems)
    return tuple(owners)


def made_up_budgets(
    trace: Trace, nodes: Sequence[Node], asked: Mapping[str, str], oversubscribed: float = 1.0
) -> tuple[tuple[Budget, ...], tuple[str, ...]]:
    """Returns Budgets for the teams of a trace on equal nodes, and their owners. Raises InputError."""
    gpus = sum(node.gpus for node in nodes)
    if unknown := sorted(set(asked) - set(trace.teams)):
        rule = f"the trace has {', '.join(sorted(trace.teams))}"
        raise InputError("options", [Problem("--budget", team, rule) for team in unknown])
    granted = {team: share_of(text, gpus) for team, text in asked.items()}
    demand = [0] * len(trace.teams)
    for team, job_gpus, duration in zip(trace.team, trace.gpus, trace.duration, strict=True):
        demand[team] += job_gpus * duration
    rest = max(0, int(gpus * oversubscribed) - sum(granted.values()))
    granted |= in_proportion(
        {team: demand[at] for at, team in enumerate(trace.teams) if team not in granted}, rest, nodes[0].gpus
    )
    names = names_for(trace.teams)
    budgets = [made_up_budget(PARENT, PARENT, 0)]
    for at, name in enumerate(trace.teams):
        budgets.append(made_up_budget(names[at], f"{PARENT}:{names[at]}", granted[name]))
    return tuple(budgets), tuple(f"{PARENT}:{name}" for name in names)


def in_proportion(demand: Mapping[str, int], gpus: int, node: int) -> dict[str, int]:
    """Distributes GPUs as whole nodes in proportion to demand; the largest remainders are rounded up.

    GPUs that make no whole node go to the team that wants most.
    """
    total = max(1, sum(demand.values()))
    nodes, crumb = divmod(gpus, node)
    parts = {team: divmod(nodes * wanted, total) for team, wanted in demand.items()}
    left = nodes - sum(whole for whole, _ in parts.values())
    most_cut = sorted(parts, key=lambda team: (-parts[team][1], team))[:left]
    granted = {team: node * (whole + (team in most_cut)) for team, (whole, _) in parts.items()}
    if demand:
        granted[min(demand, key=lambda team: (-demand[team], team))] += crumb
    return granted


def made_up_budget(name: str, owner: str, gpus: int) -> Budget:
    envelopes = (Envelope(name="main", flavor=FLAVOR, concurrency=gpus),) if gpus else ()
    return Budget(metadata=ObjectMeta(name=name, uid=name), spec=BudgetSpec(owner=owner, envelopes=envelopes))


def share_of(text: str, gpus: int) -> int:
    """Returns the GPUs of ``128``, or of ``30%`` of the fleet."""
    number = text.removesuffix("%")
    share = int(number) if number.isdecimal() and len(number) <= MAX_DIGITS else 0
    if text.endswith("%"):
        share = share * gpus // 100
    if share < 1:
        raise InputError(
            "options", [Problem("--budget", text, "must be GPUs such as 128, or 30% of the fleet")]
        )
    return share


def names_for(teams: Iterable[str]) -> list[str]:
    """Returns valid names of owners and budgets that are similar to the names of the teams."""
    names: list[str] = []
    for team in teams:
        name = re.sub(r"[^a-z0-9]+", "-", team.lower()).strip("-")[:40].strip("-") or "team"
        unique = name if name not in names and name != PARENT else f"{name}-{len(names)}"
        names.append(unique)
    return names
