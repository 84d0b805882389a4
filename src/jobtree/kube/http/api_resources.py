"""The kinds that Jobtree reads and writes, and their paths on the API server."""

from typing import NamedTuple
from urllib.parse import quote

from jobtree.api.schema.object_meta import GROUP, VERSION


class Resource(NamedTuple):
    """A kind as the API server knows it. The core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Returns the path of a collection (without a namespace: in all), an object or a subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            root += f"/namespaces/{quote(namespace, safe='')}"
        parts = [self.plural, *(quote(part, safe=":") for part in (name, subresource) if part)]
        return "/".join([root, *parts])


BUDGETS = Resource(GROUP, VERSION, "budgets", "Budget", namespaced=False)
RUNS = Resource(GROUP, VERSION, "runs", "Run", namespaced=True)
RESERVATIONS = Resource(GROUP, VERSION, "reservations", "Reservation", namespaced=True)
LEASES = Resource(GROUP, VERSION, "gpuleases", "Lease", namespaced=False)

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
SERVICES = Resource("", "v1", "services", "Service", namespaced=True)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
ELECTIONS = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
