"""Implements ``doctor``: the checks of a cluster and of a live installation."""

import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jobtree import __version__
from jobtree.api.kinds.policy import is_sim_document
from jobtree.api.kubernetes.node import read_node
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import parse_time
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import live_cluster, read_cluster
from jobtree.cli.views.fleet.label_repairs import label_repairs, nodes_without_gpus
from jobtree.messages.wording import counted_noun, joined_list
from jobtree.snapshot.cluster import Cluster

OLDEST = (1, 27)  # version of Kubernetes
MOST_SKEW_SECONDS = 30.0
INSTALL = (
    "install it: helm install jobtree deploy/helm/gpu-fleet --namespace jobtree-system --create-namespace"
)
READ_LOGS = "'kubectl -n jobtree-system logs deploy/jobtree-controller-manager' says why"
NO_TEMPLATE = "there is no defaultTemplate: Runs without a template have no pods"
SET_TEMPLATE = "set defaultTemplate in the policy, or spec.template in each Run"

ObjectBody = dict[str, Any]


GOOD, BAD, UNKNOWN = "ok", "!!", "? "


class Finding(NamedTuple):
    """What was found about a subject, and what to do."""

    mark: str
    subject: str
    text: str
    advice: str = ""


def good(subject: str, text: str) -> Finding:
    return Finding(GOOD, subject, text)


def bad(subject: str, text: str, advice: str) -> Finding:
    return Finding(BAD, subject, text, advice)


def unknown(subject: str, text: str, advice: str = "") -> Finding:
    """Returns what could not be checked, or is no fault."""
    return Finding(UNKNOWN, subject, text, advice)


def good_or(problem: Finding, text: str, *, well: bool) -> Finding:
    """Returns that all is well, or the problem."""
    return good(problem.subject, text) if well else problem


def diagnose(settings: CommandOptions) -> Iterator[Finding]:
    if settings.live:
        found = []
        for finding in LiveChecks(settings).findings():
            found.append((finding.subject, finding.mark, finding.text))
            yield finding
        broken_policy = any(part[:2] == ("policy", BAD) and part[2] != NO_TEMPLATE for part in found)
        if ("kinds", GOOD, "installed") not in found or broken_policy:
            return
    cluster = read_cluster(settings)
    yield from check_nodes(cluster)
    yield from check_budgets(cluster)
    if not settings.live and cluster.world.policy.default_template is None:
        yield unknown("policy", f"{NO_TEMPLATE}, on a live cluster", SET_TEMPLATE)


def check_nodes(cluster: Cluster) -> Iterator[Finding]:
    nodes = [read_node(body, key[2]) for key, body in cluster.objects.of("Node")]
    with_gpus = [node for node in nodes if node.gpus]
    repairs, empty = list(label_repairs(nodes)), nodes_without_gpus(nodes)
    if not with_gpus:
        advice = "is the device plugin running? 'kubectl describe node' shows what a node reports"
        yield bad("nodes", f"none of {counted_noun(len(nodes), 'node')} reports GPUs", advice)
        return
    domains = len({domain.name for domain in cluster.world.fleet.domain_by_node.values()})
    gpus = counted_noun(sum(node.gpus for node in with_gpus), "GPU")
    text = f"{counted_noun(len(with_gpus), 'node')} with {gpus} in {counted_noun(domains, 'domain')}"
    yield good("nodes", text)
    missing = f"{counted_noun(len(repairs), 'label')} missing or wrong"
    problem = bad("labels", missing, "'kubectl runs topology' prints the commands")
    yield good_or(problem, "complete", well=not repairs)
    if empty:
        text = f"{joined_list(empty)} have a flavor and report no GPUs"
        yield bad("devices", text, "is the device plugin running there?")


def check_budgets(cluster: Cluster) -> Iterator[Finding]:
    budgets = cluster.world.budgets.budgets
    flavors = {name for name, flavor in cluster.world.fleet.flavors.items() if flavor.domains}
    unknown = sorted(
        f"{name}/{envelope.name} ({envelope.flavor})"
        for name, budget in budgets.items()
        for envelope in budget.spec.envelopes
        if envelope.flavor not in flavors
    )
    if not budgets:
        advice = "create one: config/samples/budgets/budget-west-h100.yaml is an example"
        yield bad("budgets", "there is no Budget, so no Run can be paid", advice)
        return
    yield good("budgets", counted_noun(len(budgets), "Budget"))
    if unknown:
        text = f"no node has the flavor of {joined_list(unknown)}"
        yield bad("flavors", text, "correct the flavor, or label nodes gpu.flavor")


class LiveChecks:
    """The checks of an installation on a live cluster, with the user's own rights."""

    def __init__(self, settings: CommandOptions) -> None:
        self.live = live_cluster(settings)

    def findings(self) -> Iterator[Finding]:
        checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
            ("server", self._server),
            ("kinds", self._kinds),
            ("manager", self._manager),
            ("clock", self._leader),
            ("webhook", self._webhook),
            ("policy", self._policy),
            ("rights", self._rights),
        ]
        for subject, check in checks:
            yield from self._guarded(subject, check)

    def _guarded(self, subject: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
        from jobtree.kube.http.api_errors import FORBIDDEN, StatusError

        try:
            yield from check()
        except StatusError as refused:
            if refused.code == FORBIDDEN:
                yield unknown(subject, "you may not read this: ask an administrator to run doctor")
            else:
                yield bad(subject, str(refused), READ_LOGS if subject != "kinds" else INSTALL)

    def _server(self) -> Iterator[Finding]:
        from jobtree.client.source.server_refusals import translated_errors
        from jobtree.kube.http.api_requests import Request

        with translated_errors():  # a cluster that does not answer ends the command
            version = self.live.client.ask(Request("GET", "/version"))
        numbers = tuple(
            int("".join(filter(str.isdigit, str(version.get(part, "0")))) or 0) for part in ("major", "minor")
        )
        problem = bad("server", f"Kubernetes {version.get('gitVersion', '?')}", "Jobtree needs 1.27 or later")
        yield good_or(problem, problem.text, well=numbers >= OLDEST)

    def _kinds(self) -> Iterator[Finding]:
        from jobtree.api.schema.object_meta import API_VERSION
        from jobtree.kube.http.api_errors import NOT_FOUND, StatusError
        from jobtree.kube.http.api_requests import Request

        try:
            served = self.live.client.ask(Request("GET", f"/apis/{API_VERSION}"))
        except StatusError as refused:
            if refused.code != NOT_FOUND:
                raise
            yield bad("kinds", "the server does not know Jobtree's kinds", INSTALL)
            return
        names = {resource["name"] for resource in served.get("resources", [])}
        missing = sorted({"budgets", "runs", "reservations", "gpuleases"} - names)
        problem = bad(
            "kinds", f"the server does not know {joined_list(missing)}", "upgrade the CRDs: config/crd"
        )
        yield good_or(problem, "installed", well=not missing)

    def _manager(self) -> Iterator[Finding]:
        from jobtree.kube.http import api_requests
        from jobtree.kube.http.api_resources import DEPLOYMENTS
        from jobtree.kube.installation import ACCOUNT, NAMESPACE

        deployment = self.live.client.ask(api_requests.get(DEPLOYMENTS, ACCOUNT, NAMESPACE))
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        wanted = deployment["spec"].get("replicas", 1)
        problem = bad("manager", f"{ready} of {wanted} managers are ready", READ_LOGS)
        yield good_or(problem, problem.text, well=ready > 0)
        image = deployment["spec"]["template"]["spec"]["containers"][0].get("image", "")
        text = f"this is {__version__}, the manager's image is {image}"
        same = image.rpartition(":")[2] in (__version__, f"v{__version__}")
        yield good_or(unknown("version", text, "use the same version of both"), text, well=same)

    def _leader(self) -> Iterator[Finding]:
        from jobtree.kube.http import api_requests
        from jobtree.kube.http.api_resources import ELECTIONS
        from jobtree.kube.installation import ACCOUNT, NAMESPACE

        lease = self.live.client.ask(api_requests.get(ELECTIONS, ACCOUNT, NAMESPACE))
        renewed = lease["spec"].get("renewTime", "")
        ahead = parse_time(f"{renewed[:19]}Z") / 1000 - time.time() if renewed else 0.0
        text = f"the leader's last sign of life is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'ago'}"
        advice = "does no manager lead, or do the clocks differ? check the time service of the nodes and here"
        yield good_or(bad("clock", text, advice), text, well=abs(ahead) < MOST_SKEW_SECONDS)

    def _webhook(self) -> Iterator[Finding]:
        from jobtree.kube.http import api_requests
        from jobtree.kube.http.api_errors import NOT_FOUND, StatusError
        from jobtree.kube.http.api_resources import VALIDATING_WEBHOOKS
        from jobtree.kube.installation import WEBHOOK_NAME

        try:
            configuration = self.live.client.ask(api_requests.get(VALIDATING_WEBHOOKS, WEBHOOK_NAME))
        except StatusError as refused:
            if refused.code != NOT_FOUND:
                raise
            advice = "without it, rules that need other objects are not checked: set webhook.enabled"
            yield unknown("webhook", "is not installed", advice)
            return
        bundles = {hook["clientConfig"].get("caBundle", "") for hook in configuration["webhooks"]}
        if "" in bundles:
            yield bad("webhook", "has no certificate authority yet", READ_LOGS)
            return
        yield good("webhook", "installed")
        for bundle in sorted(bundles):
            yield certificate_finding(b64decode(bundle), time.time())

    def _policy(self) -> Iterator[Finding]:
        from jobtree.api.kinds.policy import parse_policy

        document = self.live.policy_document()
        assert is_sim_document(document)
        try:
            policy = parse_policy(document, "ConfigMap jobtree-policy")
        except InputError as broken:
            edit = "'kubectl -n jobtree-system edit configmap jobtree-policy' corrects it"
            yield bad("policy", str(broken), edit)
            return
        problem = bad("policy", NO_TEMPLATE, SET_TEMPLATE)
        text = "Runs without a template get the defaultTemplate"
        yield good_or(problem, text, well=policy.default_template is not None)

    def _rights(self) -> Iterator[Finding]:
        for verb, resource, what in (
            ("create", "runs", "submit Runs"),
            ("list", "budgets", "read Budgets"),
            ("list", "gpuleases", "read leases"),
        ):
            allowed = self._may(verb, resource)
            where = f" in namespace {self.live.namespace}" if resource == "runs" else ""
            role = "jobtree-researcher" if verb == "create" else "jobtree-planner"
            advice = f"ask an administrator to bind you to the ClusterRole {role}"
            problem = bad("rights", f"you may not {what}{where}", advice)
            yield good_or(problem, f"you may {what}{where}", well=allowed)

    def _may(self, verb: str, resource: str) -> bool:
        from jobtree.api.schema.object_meta import GROUP
        from jobtree.kube.http import api_requests
        from jobtree.kube.http.api_resources import Resource

        kind = "SelfSubjectAccessReview"
        reviews = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", kind, namespaced=False)
        attributes = {"verb": verb, "group": GROUP, "resource": resource}
        if resource == "runs":
            attributes["namespace"] = self.live.namespace
        body: ObjectBody = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }
        answer = self.live.client.ask(api_requests.create(reviews, body))
        return bool(answer.get("status", {}).get("allowed"))


def certificate_finding(bundle: bytes, now_seconds: float) -> Finding:
    """Returns until when the certificate authority of the webhook is valid."""
    from cryptography.x509 import load_pem_x509_certificate

    end = load_pem_x509_certificate(bundle).not_valid_after_utc
    problem = bad("certificate", f"of the webhook was valid until {end:%Y-%m-%d}", READ_LOGS)
    text = f"of the webhook is valid until {end:%Y-%m-%d}"
    return good_or(problem, text, well=end.timestamp() > now_seconds)
