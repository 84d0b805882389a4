"""The world: nodes, budgets, runs and open leases, with indexes kept by events.

Every event costs what it changes. Planning tries changes on the world itself and takes them back:
``open_lease``, ``close_lease`` and ``transition`` each have an exact inverse, so a trial needs no copy.
Closed leases leave nothing behind but their sums in the books.
"""

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator
from heapq import heappop, heappush

import msgspec

from jobtree.api.budget import Budget
from jobtree.api.lease import ClosureReason
from jobtree.api.lease import Lease as WireLease
from jobtree.api.nodes import Node
from jobtree.api.pods import Pod
from jobtree.api.policy import Policy
from jobtree.api.quantities import parse_time
from jobtree.api.run import Phase, Run
from jobtree.core import carried
from jobtree.core.actions import Action, Plan
from jobtree.core.alarms import Alarms, ripe_at
from jobtree.core.attempts import RESIZES, begin_attempt
from jobtree.core.books import Account, EnvelopeState, Tally, reported_amount, use_class
from jobtree.core.durations import History
from jobtree.core.fleet import Domain, Fleet, NodeState
from jobtree.core.follow import upstreams
from jobtree.core.hopes import hope_of
from jobtree.core.kinship import Kinship
from jobtree.core.lease import Lease, RunKey, from_wire, number_of
from jobtree.core.ledger import Ledger
from jobtree.core.promise import Order, Promise, Rank
from jobtree.core.runs import FINISHED, Mishap, Progress, RunState
from jobtree.core.seats import read_seats, reseat

PHASES: dict[str, Phase] = {
    "Release": "Pending",
    "Start": "Running",
    "Requeue": "Pending",
    "Preempt": "Pending",
    "Complete": "Completed",
    "Fail": "Failed",
    "Cancel": "Failed",
}
PROMISING = ("Reserve", "Move")
UNPROMISING = ("Activate", "Supersede", "Withdraw", "Settle")


class Held(msgspec.Struct, frozen=True):
    """An open lease with what was posted for it, so that closing undoes exactly that."""

    lease: Lease
    envelope: EnvelopeState
    run: RunState | None
    known_end: int | None
    cpu_milli: int
    memory_bytes: int
    pod_size: int


class World:
    def __init__(self, policy: Policy | None = None, now: int = 0) -> None:
        self.policy = policy or Policy()
        self.now = now
        self.fleet = Fleet()
        self.ledger = Ledger(self.policy)
        self.history = History()  # how long Runs ran, from closed leases
        self.runs: dict[RunKey, RunState] = {}
        self.held: dict[str, Held] = {}
        self.by_node: dict[str, dict[str, None]] = {}  # names of open leases
        self.orphans: dict[RunKey, dict[str, Lease]] = {}  # without their Run: they hold nothing
        self.queue: list[Order] = []  # Runs that wait, or hold GPUs that nobody pays for
        self.attention: set[RunKey] = set()  # finished, cancelled, or on a failed node
        self.alarms = Alarms(self)
        self.ranks: list[Rank] = []  # of all promises, in the order in which they hold
        self.provisional: dict[RunKey, None] = {}  # Runs on promised slots or money
        self.edited: set[RunKey] = set()  # waiting Runs whose spec changed
        self.replaced: dict[str, set[str]] = {}  # leases that stood on a node which came anew under its name
        self.gone: dict[str, tuple[str, str]] = {}  # flavor and domain of deleted nodes that leases stand on
        self.cordons: dict[str, None] = {}  # failed nodes that are not cordoned yet
        self.doubtful: dict[str, None] = {}  # nodes that are not Ready, and have not failed yet
        self._ripening: list[tuple[int, RunKey]] = []  # when Runs that want to grow may
        self.hopes = 0  # counts what could bring a date to a promise without one, money apart
        self.shaken = False  # nodes or budgets changed: promises must be looked at again
        self.diminished: set[str] = set()  # domains that lost GPUs since the last plan
        self.lottery_key = b""  # secret; whoever runs the world sets it
        self.beacon_values: dict[tuple[str, int], str] = {}  # public; by beacon and round, in hex
        self.budgets_edited_at = 0  # since then the family is as it is
        self._closed: set[str] = set()  # names of leases whose use is in the sums
        self._pods: dict[str, Pod] = {}
        self._pods_on: dict[str, dict[str, Pod]] = {}  # the same by node
        self._claimed: dict[str, dict[str, Pod]] = {}  # those that name a Run nobody knows, by its UID
        self._namespaces: dict[str, str] = {}  # of all Runs that there are or were, by UID
        self._successors: dict[RunKey, Run] = {}  # made anew under a name whose leases are still open
        self._spent: dict[str, int] = {}  # use of closed leases whose Run has not come yet, by its UID
        self.kin = Kinship(self.runs)

    # Events: nodes and other people's pods

    def put_node(self, node: Node) -> None:
        """A node came or changed. Under its name, but with another UID, it is another node."""
        known = self.fleet.nodes.get(node.name)
        leases = self.by_node.get(node.name, {})
        if known is not None and known.node.uid != node.uid and leases:
            self.replaced.setdefault(node.name, set()).update(leases)
        elif (
            known is not None and not node.gpus and leases
        ):  # its plugin is silent: that is not yet a failure
            node = msgspec.structs.replace(node, gpus=known.node.gpus, cordoned=True)
        self.drop_node(node.name)
        if not node.gpus:
            return
        state = self.fleet.add(node)
        self.hopes += 1
        self._reindex_promises(state)
        for pod in self._pods_on.get(node.name, {}).values():
            self.fleet.load_foreign(node.name, pod.gpus, pod.cpu_milli, pod.memory_bytes)
        for name in self.by_node.get(node.name, ()):
            self._occupy(self.held[name], [node.name], 1)
        if self.has_failed(node.name):
            self._note_failure(node.name)
        elif node.not_ready_since_ms is not None:
            self.doubtful[node.name] = None
            self.alarms.watch_node(node.name)
        self._gain(state)

    def has_failed(self, name: str, lease: str = "") -> bool:
        """Deleted, out of service, or not Ready for too long (F2); or not the node this lease stood on."""
        state = self.fleet.nodes.get(name)
        if state is None or state.node.failed or lease in self.replaced.get(name, ()):
            return True
        since = state.node.not_ready_since_ms
        return since is not None and since + self.policy.node_grace_ms <= self.now

    def deserted(self, lease: Lease) -> Iterator[Domain]:
        """Domains of deleted nodes that a lease stands on."""
        for node, _ in lease.slots:
            flavor, name = self.gone.get(node, ("", ""))
            domain = self.fleet.flavor(flavor).domains.get(name) if flavor else None
            if domain is not None:
                yield domain

    def _note_failure(self, name: str) -> None:
        """Runs on this node must go on elsewhere; nothing new is placed there until it is healed (F3)."""
        self.attention.update(self.held[lease].lease.run for lease in self.by_node.get(name, ()))
        if name in self.fleet.nodes and not self.fleet.nodes[name].node.cordoned:
            self.cordons[name] = None

    def drop_node(self, name: str, uid: str = "") -> None:
        """The node is gone; with a UID, only if that very node is the one that is known."""
        known = self.fleet.nodes.get(name)
        if known is None or (uid and known.node.uid != uid):
            return
        for lease_name in self.by_node.get(name, ()):
            held = self.held[lease_name]
            self._occupy(held, [name], -1)
            self.attention.add(held.lease.run)
        self.diminished.add(self.fleet.nodes[name].domain.name)
        if name in self.by_node:
            domain = self.fleet.nodes[name].domain
            self.gone[name] = (domain.flavor, domain.name)
        self.fleet.remove(name)
        self.cordons.pop(name, None)
        self.doubtful.pop(name, None)
        self.shaken = True

    def put_pod(self, pod: Pod) -> None:
        """A pod that is not Jobtree's uses up its node until it is finished (P1).

        It is Jobtree's if a Run of its namespace has the UID that it names: else anybody could hide a pod.
        """
        self.drop_pod(pod.uid)
        if pod.finished or not pod.node:
            return
        if pod.run_uid:
            if self._namespaces.get(pod.run_uid) == pod.namespace:
                return
            self._claimed.setdefault(pod.run_uid, {})[pod.uid] = pod
        self._pods[pod.uid] = pod
        self._pods_on.setdefault(pod.node, {})[pod.uid] = pod
        self.fleet.load_foreign(pod.node, pod.gpus, pod.cpu_milli, pod.memory_bytes)
        if pod.gpus and pod.node in self.fleet.nodes:
            self.diminished.add(self.fleet.nodes[pod.node].domain.name)
            self.shaken = True

    def drop_pod(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._claimed.get(pod.run_uid, {}).pop(uid, None)
            del self._pods_on[pod.node][uid]
            if not self._pods_on[pod.node]:
                del self._pods_on[pod.node]
            self.fleet.load_foreign(pod.node, -pod.gpus, -pod.cpu_milli, -pod.memory_bytes)
            self.hopes += 1

    def _know_run(self, uid: str, namespace: str) -> None:
        """There is such a Run, or was, as a lease says: pods of its namespace that name it are Jobtree's."""
        if uid not in self._namespaces:
            self._namespaces[uid] = namespace
            for pod in list(self._claimed.pop(uid, {}).values()):
                self.put_pod(pod)

    # Events: budgets, policy and the clock

    def put_budget(self, budget: Budget) -> None:
        """A budget came or was edited. Its leases count against its new limits from now on."""
        if not self.ledger.knows(budget.metadata.name):
            carried.take_in_budget(self.ledger, budget)
        held = self._lift(budget.metadata.name)
        touched = self.ledger.put(budget, self.now)
        self._lay_back(held, touched)

    def drop_budget(self, name: str) -> None:
        held = self._lift(name)
        self._lay_back(held, self.ledger.drop(name, self.now))

    def _lift(self, budget: str) -> list[Lease]:
        """Take the budget's open leases off the books, so that its caps can change under them."""
        leases = [held.lease for held in self.held.values() if held.envelope.key[0] == budget]
        for lease in leases:
            self.unopen_lease(lease.name)
        return leases

    def _lay_back(self, leases: list[Lease], touched: list[EnvelopeState]) -> None:
        for lease in leases:
            self.open_lease(lease)
        for envelope in touched:
            self.alarms.watch_envelope(envelope)
        self.shaken = True
        if self.held:
            self.budgets_edited_at = self.now
        self._forget_horizons()
        self._gain_everywhere()

    def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        for envelope in self.ledger.set_policy(policy, self.now):
            self.alarms.watch_envelope(envelope)
        self._forget_horizons()
        self._gain_everywhere()

    def tick(self, now: int) -> None:
        """The clock moved. It never moves back: an earlier instant is taken as the present one."""
        before, self.now = self.now, max(now, self.now)
        for envelope in self.ledger.opening(before, self.now):
            self.fleet.flavor(envelope.spec.flavor).gains += 1
        for name in [name for name in self.doubtful if self.has_failed(name)]:
            del self.doubtful[name]
            self._note_failure(name)
            self.shaken = True
        while self._ripening and self._ripening[0][0] <= self.now:
            _, key = heappop(self._ripening)
            if key in self.runs:
                self._note_wishes(self.runs[key])

    # Events: Runs that come, change and go

    def put_run(self, run: Run) -> RunState:
        key = (run.metadata.namespace, run.metadata.name)
        state = self.runs.get(key)
        if state is not None and state.uid != run.metadata.uid:
            self.drop_run(key)
            if key in self.runs:  # the next plan ends the one that is gone; then this one comes
                self._successors[key] = run
                return state
            state = None
        if state is None:
            self._know_run(run.metadata.uid, run.metadata.namespace)
            state = self.runs[key] = RunState(run, self.now)
            state.spent = self._spent.pop(state.uid, 0)
            carried.take_in_run(self.ledger, state)
            self._join_tree(state)
            self._take_orphans(state)
            self._adopt(state)
            if state.cpu_only and state.phase == "Running":
                reseat(state)
        else:
            if state.run.spec != run.spec:
                self.edited.add(key)
                self._gain_everywhere()  # if it runs it may end sooner now
                self.kin.detach(state)
            state.amend(run)
            self._join_tree(state)
            self._repost(list(state.leases))
            self._note_wishes(state)
        if state.cancelled:
            self.attention.add(key)
        self.alarms.watch_run(state)
        self._enqueue(state)
        return state

    def drop_run(self, key: RunKey) -> None:
        """The Run's object is gone; leases it still has are closed by the next plan."""
        state = self.runs.get(key)
        if state is None:
            return
        for child in self.kin.children(state):
            self.drop_run(child.key)
        if state.leases or state.promise is not None:
            state.cancelled = True
            self.attention.add(key)
            self._enqueue(state)
            return
        self._leave_queue(state)
        self._notify(key)
        self.kin.forget(state)
        del self.runs[key]
        self.alarms.watch_run(state)
        successor = self._successors.pop(key, None)
        if successor is not None:
            self.put_run(successor)

    def finish(self, key: RunKey, *, succeeded: bool, at: int) -> None:
        """All ranks ended. The next plan closes the Run's leases at that instant."""
        if self.runs[key].phase == "Running":  # else they are those of an earlier life
            self.runs[key].outcome = ("Complete" if succeeded else "Fail", at)
            self.attention.add(key)

    def lose_rank(self, key: RunKey, mishap: Mishap) -> None:
        """A pod failed, or somebody evicted or deleted it (F5). Pods of earlier attempts do not count."""
        state = self.runs[key]
        if state.phase == "Running" and mishap.attempt == state.attempt and mishap.seat in state.seats:
            state.mishaps.append(mishap)
            self.attention.add(key)

    def _join_tree(self, state: RunState) -> None:
        """Find the Run's place among others; trees, gangs and quotas change with what arrives."""
        self.kin.add(state)
        for one in (state, *self.kin.below(state)):
            quotas = self.kin.join(one)
            if quotas != one.quotas:
                names = list(one.leases)
                leases = [self.held[name].lease for name in names]
                for name in names:
                    self.unopen_lease(name)
                for account in one.quotas:
                    account.settled -= one.spent
                one.quotas = quotas
                for account in quotas:
                    account.settled += one.spent
                self.alarms.watch_quotas(quotas)
                for lease in leases:
                    self.open_lease(lease)
            self._wait_or_queue(one)
        for member in self.kin.members(state):
            self._wait_or_queue(member)  # what one of a gang waits for, all wait for
        self._notify(state.key)

    def _wait_or_queue(self, state: RunState) -> None:
        """Whether a Run that has not begun waits for others first (J1)."""
        if state.phase in ("Waiting", "Pending") and state.run.status.phase in (None, "Waiting"):
            state.phase = "Waiting" if any(True for _ in upstreams(self, state)) else "Pending"
        if state.phase == "Waiting" or state.shape is None:
            self.attention.add(state.key)
        self.alarms.watch_run(state)
        self._enqueue(state)

    def _notify(self, key: RunKey) -> None:
        """A Run came, ended or went: those that wait for it or sum it up look again."""
        for other in self.kin.touched_by(key):
            self.attention.add(other.key)
            self.alarms.watch_run(other)

    # Events: leases. Opening, closing and transition are what a plan is made of

    def put_lease(self, lease: WireLease) -> None:
        """A lease as the ledger has it. A closed one only adds to the sums: others may have its slots."""
        known = from_wire(lease)
        self._know_run(known.uid, known.run[0])
        if lease.status.end is not None:
            self._take_in_closed(known, parse_time(lease.status.end), lease.status.closure_reason)
        elif known.name not in self.held and known.name not in self._closed:
            self.take_in_open(known)
        state = self.runs.get(known.run)
        if state is not None and state.uid == known.uid:
            state.opened = max(state.opened, number_of(known))
            self._adopt(state)

    def take_in_open(self, lease: Lease) -> None:
        """An open lease counts once its Run is there: without one nobody holds it, and it is to be closed."""
        state = self.runs.get(lease.run)
        if state is None or state.uid != lease.uid:
            self.orphans.setdefault(lease.run, {})[lease.name] = lease
        else:
            self.open_lease(lease)
            self._adopt(state)

    def _take_orphans(self, state: RunState) -> None:
        waiting = self.orphans.get(state.key, {})
        for lease in [lease for lease in waiting.values() if lease.uid == state.uid]:
            del waiting[lease.name]
            self.open_lease(lease)
        if not waiting:
            self.orphans.pop(state.key, None)

    def _take_in_closed(self, lease: Lease, end: int, reason: ClosureReason | None) -> None:
        """What it used is in the sums once, however often it is told."""
        if lease.name in self._closed:
            return
        self._closed.add(lease.name)
        self.history.close(lease, end, reason)
        waiting = self.orphans.get(lease.run, {})
        if waiting.pop(lease.name, None) is not None and not waiting:
            del self.orphans[lease.run]
        if lease.name in self.held:
            self.close_lease(lease.name, end)
            return
        held = self._holding(lease)
        if lease.name not in self.ledger.leaving.get(lease.payer[0], ()):
            self._settle_payer(held, end, 1)
        if held.run is None or lease.name not in held.run.leaving:
            self._settle_run(held, end, 1)
        self.alarms.watch_envelope(held.envelope)  # what it used is gone: hours may run out sooner
        if held.run is not None:
            self.alarms.watch_quotas(held.run.quotas)

    def set_aside(self, lease: Lease, end: int) -> None:
        """A closed lease is in the archive, and about to be deleted: its use is carried."""
        carried.set_aside(self.ledger, self._run_of(lease), lease, end)

    def may_leave(self, lease: Lease) -> bool:
        """Whether a lease is closed, in the sums, and can be carried."""
        return lease.name in self._closed and carried.has_room(self.ledger, self._run_of(lease), lease)

    def forget_gone(self, there: Container[str]) -> None:
        """Of the leases that leave, only those that are still there can be counted twice."""
        carried.keep_only(self.ledger, self.runs.values(), there)

    def drop_lease(self, lease: Lease, end: int) -> None:
        """A closed lease is gone. What it used stays in the sums."""
        carried.see_gone(self.ledger, self._run_of(lease), lease)
        self.history.drop(lease, end)
        self._closed.discard(lease.name)

    def _run_of(self, lease: Lease) -> RunState | None:
        state = self.runs.get(lease.run)
        return state if state is not None and state.uid == lease.uid else None

    def _adopt(self, state: RunState) -> None:
        """A Run that holds leases is running, whatever its status says yet."""
        if not state.leases or state.phase in FINISHED:
            return
        state.opened = max(state.opened, *map(number_of, state.leases.values()))
        if state.phase != "Running":
            state.phase = "Running"
            state.attempt = max(state.attempt, 1)
            if state.since is None:
                state.since = min(lease.start for lease in state.leases.values())
            state.changed_at = max(state.changed_at, state.since)
            if not state.pod_size and state.shape:
                biggest = self.fleet.flavor(state.shape.flavor).biggest_node
                state.pod_size = state.shape.pod_size(biggest)
            self.alarms.watch_run(state)
        self._repost(list(state.leases))
        self._recall_seats(state)
        reseat(state)
        held = state.leases.values()
        if any(self.has_failed(node, lease.name) for lease in held for node, _ in lease.slots):
            self.attention.add(state.key)  # it failed, or comes later than its leases
        self._note_wishes(state)
        self._enqueue(state)

    @staticmethod
    def _recall_seats(state: RunState) -> None:
        """Leases may arrive one by one: every rank comes back to the seat that the status tells."""
        taken = set(state.seats.values())
        told = read_seats(state.run.status.ranks)
        state.seats = {seat: pod for seat, pod in told.items() if pod not in taken} | state.seats

    def _note_wishes(self, state: RunState) -> None:
        """A running Run may be wider than it wants to be now, or want more than it has (E1, E2)."""
        shape = state.shape
        if state.phase != "Running" or shape is None:
            return
        if shape.malleable and state.width > shape.desired:
            self.attention.add(state.key)
        flavor, at = self.fleet.flavor(shape.flavor), ripe_at(state)
        if not state.wants_more or at > self.now:
            flavor.eager.pop(state.key, None)
        else:
            flavor.eager[state.key] = None
            flavor.asked = -1
        if state.wants_more and at > self.now:
            heappush(self._ripening, (at, state.key))
            self.alarms.watch_run(state)

    def open_lease(self, lease: Lease) -> None:
        self._hold(self._holding(lease))

    def _holding(self, lease: Lease) -> Held:
        state = self._run_of(lease)
        envelope = self.ledger.envelope(lease.payer, lease.payer_owner, lease.flavor)
        shape = state.shape if state else None
        end = state.known_end if state else None
        if end is not None and lease.role != "Opportunistic":  # an unpaid one does not end with a window
            end = max(lease.start, min(end, envelope.end))
        return Held(
            lease=lease,
            envelope=envelope,
            run=state,
            known_end=end,
            cpu_milli=shape.cpu_milli if shape else 0,
            memory_bytes=shape.memory_bytes if shape else 0,
            pod_size=(state.pod_size if state else 0) or 1,
        )

    def _hold(self, held: Held) -> None:
        lease = held.lease
        self.held[lease.name] = held
        self._post(held, 1)
        self._occupy(held, None, 1)
        for node, _ in lease.slots:
            self.by_node.setdefault(node, {})[lease.name] = None
        if held.run is not None:
            held.run.leases[lease.name] = lease
            self._weigh(held, 1)

    def close_lease(self, name: str, at: int) -> Held:
        held = self.held[name]
        self._release(held)
        self._settle(held, at, 1)
        self._gain_money(held, 1)
        return held

    def reopen_lease(self, held: Held, at: int) -> None:
        """The inverse of close_lease."""
        self._gain_money(held, -1)
        self._settle(held, at, -1)
        self._hold(held)

    def unopen_lease(self, name: str) -> None:
        """The inverse of open_lease."""
        self._release(self.held[name])

    def _release(self, held: Held) -> None:
        lease = held.lease
        del self.held[lease.name]
        self._post(held, -1)
        self._occupy(held, None, -1)
        for node, _ in lease.slots:
            on_node = self.by_node[node]
            del on_node[lease.name]
            if not on_node:
                del self.by_node[node]
        if held.run is not None:
            del held.run.leases[lease.name]
            self._weigh(held, -1)

    def transition(self, state: RunState, action: Action) -> None:
        """What an action does to the Run itself."""
        phase = PHASES.get(action.kind, state.phase)
        if action.kind == "Reserve" and state.phase == "Pending":
            phase = "Reserved"
        if phase != state.phase:
            state.phase, state.phase_at = phase, action.at
            if phase in FINISHED:
                self._notify(state.key)
        begin_attempt(state, action)
        if action.kind == "Start":
            state.since, state.pod_size, state.provisional = action.at, action.pod_size, action.provisional
        elif action.kind in ("Requeue", "Preempt"):
            state.since, state.pod_size, state.provisional = None, 0, False
            state.lost += action.kind == "Preempt"
            if state.promise is not None:
                state.phase = "Reserved"
        elif action.kind in (*PROMISING, *UNPROMISING):
            self.set_promise(state, action.promise if action.kind in PROMISING else None)
            if action.kind in ("Activate", "Settle"):
                self._unsettle(state)
        if state.phase in FINISHED:
            state.provisional = False
        self._note_provisional(state)
        self.alarms.watch_run(state)
        self._enqueue(state)

    def _note_provisional(self, state: RunState) -> None:
        if state.provisional:
            self.provisional[state.key] = None
        else:
            self.provisional.pop(state.key, None)

    def restore(self, state: RunState, before: Progress) -> None:
        """The inverse of transition."""
        promise, provisional = state.promise, state.provisional
        state.restore(before)
        if state.promise is not promise:
            now, state.promise = state.promise, promise
            self.set_promise(state, now, undo=True)
        if state.provisional != provisional:
            self._note_provisional(state)
            self._forget_around(state)
        self.alarms.watch_run(state)
        self._enqueue(state)

    def put_promise(self, state: RunState, promise: Promise) -> None:
        """A pending Reservation as it was written: its promise holds."""
        self.set_promise(state, promise)
        if state.phase == "Pending":
            state.phase = "Reserved"
        self._note_provisional(state)
        self.alarms.watch_run(state)

    def set_promise(self, state: RunState, promise: Promise | None, *, undo: bool = False) -> None:
        """Promise something else, or nothing; who else may start changes with it."""
        if state.promise is not None:
            self._index_promise(state.promise, present=False)
        if promise is not None:
            self._index_promise(promise, present=True)
            state.reservations = max(state.reservations, promise.number)
        gone, sign = (promise, -1) if undo else (state.promise, 1)
        if gone is not None:
            self.fleet.flavor(state.flavor).gains += sign
            for key, _ in gone.funding:
                if key in self.ledger.envelopes:
                    self._give_back(self.ledger.envelopes[key], sign)
        state.promise = promise

    def _index_promise(self, promise: Promise, *, present: bool) -> None:
        flavor = self.fleet.flavor(promise.flavor)
        domains = [flavor.domains[name] for name, _ in promise.shares if name in flavor.domains]
        horizons = [one for domain in domains for one in domain.horizons.values()]
        for horizon in horizons:
            horizon.forget_promises()
        holders = [domain.promises for domain in domains]
        for key, _ in promise.funding:
            if key in self.ledger.envelopes:
                self.ledger.envelopes[key].forget(ends=False)
                holders.append(self.ledger.envelopes[key].promises)
        for holder in holders:
            if present:
                holder[promise.run] = promise
            else:
                holder.pop(promise.run, None)
        for horizon in horizons:
            horizon.recall_promises()
        if present:
            insort(self.ranks, promise.rank)
        else:
            del self.ranks[bisect_left(self.ranks, promise.rank)]

    def _unsettle(self, state: RunState) -> None:
        if state.provisional:
            state.provisional = False
            self._forget_around(state)

    def _forget_around(self, state: RunState) -> None:
        """Something about the Run changed that horizons of all its domains depend on."""
        for lease in state.leases.values():
            for node, _ in lease.slots:
                known = self.fleet.nodes.get(node)
                if known is not None:
                    known.domain.forget_horizons()

    def _forget_horizons(self) -> None:
        """Who can pay until when, or what the policy says, changed: so did what is certain to end."""
        for flavor in self.fleet.flavors.values():
            for domain in flavor.domains.values():
                domain.forget_horizons()

    # Carrying out a plan

    def commit(self, plan: Plan) -> None:
        """Apply a plan that was made from this very world."""
        self.attention.clear()
        asked = [self.fleet.flavor(name) for name in plan.asked]
        for flavor in asked:
            flavor.asked = flavor.gains
        for action in plan.actions:
            self.apply(action)
        for flavor in asked:
            if flavor.asked >= 0:  # nobody else wants to grow since
                flavor.asked = flavor.gains
        for key, verdict in plan.verdicts.items():
            if key in self.runs:
                self.runs[key].verdict = verdict
        for key in plan.settled:
            state = self.runs.get(key)
            if state is not None and state.shape is not None:
                state.seen = self.fleet.flavor(state.shape.flavor).gains
                state.hoped = hope_of(self, state) if state.promise and state.promise.at is None else None
        for name in plan.served:
            self.fleet.flavor(name).served = self.fleet.flavor(name).gains
        self.cordons.clear()
        self.replaced = {
            node: held for node, names in self.replaced.items() if (held := names & self.held.keys())
        }
        self.gone = {node: where for node, where in self.gone.items() if node in self.by_node}
        self.ledger.amended.clear()
        self.edited.clear()
        self.diminished.clear()
        self.shaken = False

    def apply(self, action: Action) -> None:
        state = self.runs[action.run]
        self.transition(state, action)
        for closing in action.closes:
            lease = self.close_lease(closing.lease, closing.at).lease
            self.history.close(lease, closing.at, closing.reason)
            self._closed.add(closing.lease)
        for lease in action.opens:
            self.open_lease(lease)
            state.opened = max(state.opened, number_of(lease))
        if action.closes or action.opens or action.kind in ("Start", "Restart"):
            state.revision += 1
            self._follow_leases(state)
        if action.kind in RESIZES or state.phase != "Running":
            state.mishaps.clear()
        if action.kind == "Cancel":
            self.drop_run(action.run)

    def _follow_leases(self, state: RunState) -> None:
        if state.phase == "Running":
            reseat(state)
            self._note_wishes(state)
        else:
            state.seats = {}
            self.fleet.flavor(state.flavor).eager.pop(state.key, None)

    # Bookkeeping

    def _post(self, held: Held, sign: int) -> None:
        lease, envelope = held.lease, held.envelope
        envelope.by_class[use_class(lease)].open(reported_amount(lease), lease.start, sign)
        if lease.role == "Opportunistic":
            return
        if sign > 0:
            envelope.leases[lease.name] = lease
        else:
            del envelope.leases[lease.name]
        if held.known_end is not None:
            envelope.forget(ends=True)
        for account in self._accounts(held):
            account.open(lease.charge, lease.start, held.known_end, sign)
        if sign > 0:  # a lease less never brings an instant nearer
            self.alarms.watch_envelope(envelope)
            if held.run is not None and held.run.quotas:
                self.alarms.watch_quotas(held.run.quotas)

    def _settle(self, held: Held, at: int, sign: int) -> None:
        """Add what a closed lease used; it was taken off the open ones before."""
        self._settle_payer(held, at, sign)
        self._settle_run(held, at, sign)

    @staticmethod
    def _settle_payer(held: Held, at: int, sign: int) -> None:
        lease, envelope = held.lease, held.envelope
        span = sign * (at - lease.start)
        envelope.by_class[use_class(lease)].settled += reported_amount(lease) * span
        if lease.role != "Opportunistic":
            for account in envelope.accounts(lease):
                account.settled += lease.charge * span

    def _settle_run(self, held: Held, at: int, sign: int) -> None:
        lease, run = held.lease, held.run
        span = sign * (at - lease.start)
        charged = 0 if lease.role == "Opportunistic" else lease.charge * span
        if run is None:
            self._spent[lease.uid] = self._spent.get(lease.uid, 0) + charged
            return
        self._share(held).settled += lease.gpus * span
        run.spent += charged
        if charged:
            for account in run.quotas:
                account.settled += charged

    def _accounts(self, held: Held) -> Iterable[Account]:
        yield from held.envelope.accounts(held.lease)
        if held.run is not None:
            yield from held.run.quotas

    def _occupy(self, held: Held, only: list[str] | None, sign: int) -> None:
        slots = held.lease.slots
        if only is not None:
            slots = tuple((node, mask) for node, mask in slots if node in only)
        change = self.fleet.occupy if sign > 0 else self.fleet.vacate
        change(slots, held.lease.role, held.cpu_milli, held.memory_bytes, held.pod_size)

    def _weigh(self, held: Held, sign: int) -> None:
        """Keep the Run's width, its unpaid and borrowed GPUs, and who paid how much of it."""
        state, lease = held.run, held.lease
        if state is None:
            return
        self._share(held).open(lease.gpus, lease.start, sign)
        if lease.role != "Spare":
            state.width += sign * lease.gpus
            if state.shape is not None and state.shape.malleable:
                self._forget_around(state)  # which of its steps could be taken depends on its width
        if lease.role == "Opportunistic":
            state.unpaid += sign * lease.gpus
            self._enqueue(state)
        elif lease.class_ == "Borrowed":
            state.borrowed += sign * lease.gpus

    def _share(self, held: Held) -> Tally:
        lease = held.lease
        assert held.run is not None
        return held.run.funding.setdefault((lease.class_, lease.payer), Tally())

    def _repost(self, names: list[str]) -> None:
        """Known ends or limits changed: post these leases anew."""
        for name in names:
            lease = self.held[name].lease
            self.unopen_lease(name)
            self.open_lease(lease)

    def _enqueue(self, state: RunState) -> None:
        belongs = state.waiting or (state.unpaid > 0 and not state.cancelled)
        if belongs and not state.queued:
            insort(self.queue, state.order)
            state.queued = True
            self.fleet.flavor(state.flavor).served = -1
        elif not belongs:
            self._leave_queue(state)

    def _leave_queue(self, state: RunState) -> None:
        if state.queued:
            del self.queue[bisect_left(self.queue, state.order)]
            state.queued = False

    def _reindex_promises(self, state: NodeState) -> None:
        """A node came to a domain, perhaps a new one: promises there count on it."""
        domain = state.domain
        if len(domain.nodes) == 1:
            for other in self.runs.values():
                promise = other.promise
                if promise and promise.flavor == domain.flavor and domain.name in dict(promise.shares):
                    domain.promises[other.key] = promise

    # What could let a waiting Run start

    def _gain(self, state: NodeState) -> None:
        self.fleet.flavor(state.domain.flavor).gains += 1

    def _gain_everywhere(self) -> None:
        self.hopes += 1
        for flavor in self.fleet.flavors.values():
            flavor.gains += 1

    def _gain_money(self, held: Held, sign: int) -> None:
        flavors = {held.lease.flavor}
        for cap in held.envelope.caps:
            flavors.update(envelope.spec.flavor for envelope in cap.envelopes)
        for name in flavors:
            self.fleet.flavor(name).gains += sign
        self._give_back(held.envelope, sign)

    @staticmethod
    def _give_back(envelope: EnvelopeState, sign: int) -> None:
        for one in envelope.kin:
            one.gains += sign
