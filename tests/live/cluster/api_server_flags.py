"""The flags with which the API server of a test cluster runs, and the files that they name.

RBAC is on, and admission is Kubernetes' default except for one plugin. All parts of the cluster have
certificates of the cluster's own authority.
"""

from pathlib import Path

from tests.live.cluster.certificates import Authority, private_file, token_signer
from tests.live.nodes.real_nodes import GATEWAYS

ADMIN_GROUP = "system:masters"


def api_server_flags(directory: Path, authority: Authority, etcd_socket: Path, port: int) -> dict[str, str]:
    """Returns the flags of an API server on this port, and writes their files to ``directory``."""

    def private(name: str, text: str) -> Path:
        return private_file(directory / name, text)

    names = ["127.0.0.1", "localhost", "kubernetes.default.svc", *GATEWAYS]
    serving = authority.server("kube-apiserver", names)
    tokens = token_signer()
    to_kubelets = authority.client("kube-apiserver", [ADMIN_GROUP])
    return {
        "etcd-servers": f"unix://{etcd_socket}",
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": str(port),
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": "10.96.0.0/16",
        # There is no kube-proxy: the API server reaches a Service at the addresses of its pods.
        "enable-aggregator-routing": "true",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "ValidatingAdmissionPolicy",
        # This plugin taints every new node until a controller sees it ready. Fake nodes are ready at once.
        "disable-admission-plugins": "TaintNodesByCondition",
        "allow-privileged": "true",
        "client-ca-file": str(private("ca.crt", authority.certificate)),
        "tls-cert-file": str(private("kube-apiserver.crt", serving.public)),
        "tls-private-key-file": str(private("kube-apiserver.key", serving.key)),
        "kubelet-certificate-authority": str(directory / "ca.crt"),
        "kubelet-client-certificate": str(private("to-kubelets.crt", to_kubelets.public)),
        "kubelet-client-key": str(private("to-kubelets.key", to_kubelets.key)),
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": str(private("tokens.pub", tokens.public)),
        "service-account-signing-key-file": str(private("tokens.key", tokens.key)),
    }
