"""A cluster to try Jobtree on: ``make cluster``, or ``make cluster REAL=1`` as root.

It has a control plane of the tests, the fleet of ``config/samples/cluster.yaml`` as fake nodes, the CRDs and
a running manager; with ``--real`` also two real nodes in a domain of their own. It runs until Ctrl-C, and
leaves nothing behind.
"""

import argparse
import signal
import sys
import time
from typing import NoReturn

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import ServerExitedError
from tests.live.crds.samples import sample_namespaces
from tests.live.manager.installation import NAMESPACE, install
from tests.live.nodes.container_images import PYTHON_IMAGE
from tests.live.programs.build_recipes import CLUSTER_PROGRAMS, REAL_NODE_PROGRAMS
from tests.live.programs.debian_packages import why_no_real_nodes
from tests.live.programs.long_command import CommandFailedError, report_progress
from tests.live.programs.program_finder import MissingProgramError, find_programs

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
Logs are in {directory}. Press Ctrl-C to stop the cluster and remove all of it.
"""


def main(arguments: list[str]) -> int:
    """Starts the cluster, prints how to use it, and runs it until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make cluster", description="A cluster to try Jobtree on.")
    parser.add_argument("--real", action="store_true", help="add two real nodes (needs root)")
    real: bool = parser.parse_args(arguments).real
    if real and (why := why_no_real_nodes()):
        sys.stderr.write(f"{why}.\n")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        find_programs([*CLUSTER_PROGRAMS, *(REAL_NODE_PROGRAMS if real else ())])
        with ControlPlane() as plane:
            _add_nodes_and_manager(plane, real=real)
            sys.stdout.write(_first_steps(plane, real=real))
            sys.stdout.flush()
            _run_until_interrupted(plane)
    except KeyboardInterrupt:
        report_progress("the cluster is stopped and removed")
        return 0
    except (MissingProgramError, CommandFailedError, ServerExitedError, TimeoutError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1


def _add_nodes_and_manager(plane: ControlPlane, *, real: bool) -> None:
    report_progress("starting the controllers, the scheduler and 32 fake nodes")
    plane.start_controllers(controllers="*")
    plane.start_scheduler()
    fleet = plane.start_fake_fleet(NODE_LEASE_SECONDS)
    for rack in range(1, 9):
        domain = "us-west/gpu-a/nv-a" if rack <= 4 else "us-west/gpu-a/nv-b"
        fleet.add_nodes(domain, 4, prefix="gpu-a", labels={"rack": f"r{rack:02}"})
    kubeconfig = install(plane)
    for namespace in sample_namespaces():
        plane.kubectl("create", "namespace", namespace)
    if real:
        report_progress("starting two real nodes")
        plane.start_real_nodes(2)
    flags = [f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", "--health-address=127.0.0.1:0"]
    plane.launch("manager", [sys.executable, "-m", "jobtree.manager", *flags], plane.environment())


def _first_steps(plane: ControlPlane, *, real: bool) -> str:
    remarks = []
    if real:
        remarks.append(f"The real nodes, real-01 and real-02, have one image: {PYTHON_IMAGE}.")
    return FIRST_STEPS.format(
        kubeconfig=plane.admin_kubeconfig,
        kubectl=plane.kubectl_program.parent,
        directory=plane.directory,
        remarks="".join(f"{remark}\n" for remark in remarks),
    )


def _run_until_interrupted(plane: ControlPlane) -> NoReturn:
    """Raises ServerExitedError if a server of the cluster ends."""
    while True:
        for server in plane.servers:
            server.check()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
