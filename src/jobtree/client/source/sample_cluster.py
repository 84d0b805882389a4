"""The state file of a small simulated cluster, to start from."""

HEAD = """\
# A simulated cluster: ordinary Kubernetes objects in one file. Change it as you like; commands that write
# replace it as a whole, without these comments.

# The clock stands still until 'kubectl runs advance 30m' moves it.
apiVersion: sim.rq.davidlangworthy.io/v1
kind: Clock
spec:
  now: "2026-01-05T09:00:00Z"
---
# Eight nodes of eight GPUs. Nodes with the same region, cluster and fabric.domain are one domain: the
# fastest island of interconnect. A gang, or each of its groups, sits inside one.
apiVersion: v1
kind: List
items:
"""

NODE = """\
- apiVersion: v1
  kind: Node
  metadata:
    name: {name}
    labels: {{region: us-west, cluster: gpu-a, fabric.domain: {domain}, gpu.flavor: H100-80GB}}
  status:
    allocatable: {{nvidia.com/gpu: 8}}
"""

TAIL = """\
---
# What a team may use: 32 GPUs at once, 1,000 GPU-hours in all.
apiVersion: rq.davidlangworthy.io/v1
kind: Budget
metadata:
  name: research
spec:
  owner: org:ai:research
  envelopes:
  - name: west
    flavor: H100-80GB
    selector: {region: us-west}
    concurrency: 32
    maxGPUHours: 1000
---
# Another team. It lends up to 16 of its GPUs to everyone below org:ai who names it as a sponsor.
apiVersion: rq.davidlangworthy.io/v1
kind: Budget
metadata:
  name: vision
spec:
  owner: org:ai:vision
  envelopes:
  - name: west
    flavor: H100-80GB
    concurrency: 32
    lending:
      allow: true
      to: ["org:ai:*"]
      maxConcurrency: 16
---
# A first Run: it starts with the first command, and its work takes half an hour.
apiVersion: rq.davidlangworthy.io/v1
kind: Run
metadata:
  name: hello
  annotations:
    sim.rq.davidlangworthy.io/duration: 30m
spec:
  owner: org:ai:research
  resources:
    gpuType: H100-80GB
    totalGPUs: 8
  runtime:
    checkpoint: 10m
"""


def starting_cluster() -> str:
    """Returns the text of the first state file."""
    nodes = [
        NODE.format(name=f"gpu-{island}-{number:02}", domain=f"nv-{island}")
        for island in "ab"
        for number in range(1, 5)
    ]
    return HEAD + "".join(nodes) + TAIL
