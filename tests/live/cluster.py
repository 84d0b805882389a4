"""A cluster to try Jobtree on: ``make cluster``, or ``make cluster REAL=1`` as root.

One control plane of the tests' own, with the fleet of ``config/samples/cluster.yaml`` as fake nodes, the four
kinds defined and the manager running; with ``--real``, two real nodes besides, in a domain of their own. It
stays until it is interrupted, and leaves nothing behind.
"""

import argparse
import signal
import sys
import time
from typing import NoReturn

from tests.live.binaries import MissingProgramError, find_all
from tests.live.control_plane import ControlPlane
from tests.live.images import PYTHON
from tests.live.managing import NAMESPACE, install
from tests.live.packages import why_no_real_nodes
from tests.live.process import ServerExitedError
from tests.live.progress import CommandFailedError, say
from tests.live.samples import sample_namespaces

PROGRAMS = ("etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kwok")
REAL_PROGRAMS = ("kubelet", "gpu-device-plugin", "pause", "coredns")
NODE_LEASE_SECONDS = 40

FIRST_STEPS = """
The cluster is up. In another terminal:

  export KUBECONFIG={kubeconfig}
  export PATH="$PWD/.venv/bin:{kubectl}:$PATH"

  kubectl get nodes -L fabric.domain,gpu.flavor
  kubectl apply -f config/samples/budgets/
  kubectl apply -f config/samples/runs/resnet-small.yaml
  kubectl get runs,gpuleases,pods

{remarks}
Logs are in {directory}. Interrupt this (Ctrl-C) to stop the cluster and remove all of it.
"""


def main(arguments: list[str]) -> int:
    """Starts the cluster, says how to use it, and keeps it until it is interrupted."""
    parser = argparse.ArgumentParser(prog="make cluster", description="A cluster to try Jobtree on.")
    parser.add_argument("--real", action="store_true", help="add two real nodes (needs root)")
    real: bool = parser.parse_args(arguments).real
    if real and (why := why_no_real_nodes()):
        sys.stderr.write(f"{why}.\n")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        find_all([*PROGRAMS, *(REAL_PROGRAMS if real else ())])
        with ControlPlane() as plane:
            _fill(plane, real=real)
            sys.stdout.write(_first_steps(plane, real=real))
            sys.stdout.flush()
            _stay(plane)
    except KeyboardInterrupt:
        say("the cluster is gone")
        return 0
    except (MissingProgramError, CommandFailedError, ServerExitedError, TimeoutError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1


def _fill(plane: ControlPlane, *, real: bool) -> None:
    say("starting the controllers, the scheduler and 32 fake nodes")
    plane.start_controllers(controllers="*")
    plane.start_scheduler()
    fleet = plane.kwok(NODE_LEASE_SECONDS)
    for rack in range(1, 9):
        domain = "us-west/gpu-a/nv-a" if rack <= 4 else "us-west/gpu-a/nv-b"
        fleet.add_nodes(domain, 4, prefix="gpu-a", labels={"rack": f"r{rack:02}"})
    kubeconfig = install(plane)
    for namespace in sample_namespaces():
        plane.kubectl("create", "namespace", namespace)
    if real:
        say("starting two real nodes")
        plane.real_nodes(2)
    flags = [f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", "--health-address=127.0.0.1:0"]
    plane.launch("manager", [sys.executable, "-m", "jobtree.manager", *flags], plane.environment())


def _first_steps(plane: ControlPlane, *, real: bool) -> str:
    remarks = []
    if real:
        remarks.append(f"The real nodes, real-01 and real-02, know one image: {PYTHON}.")
    return FIRST_STEPS.format(
        kubeconfig=plane.admin_kubeconfig,
        kubectl=plane.kubectl_program.parent,
        directory=plane.directory,
        remarks="".join(f"{remark}\n" for remark in remarks),
    )


def _stay(plane: ControlPlane) -> NoReturn:
    """Raises ServerExitedError should a part of the cluster end."""
    while True:
        for server in plane.servers:
            server.check()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
