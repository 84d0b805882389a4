"""The names by which pods ask for GPUs and nodes offer them."""

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
"""What nodes offer and Jobtree gives out."""

GPU_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com", "gpu.amd.com")
"""Classes of devices that are claimed (dynamic resource allocation)."""

GPU_CLAIMS = tuple(f"deviceclass.resource.kubernetes.io/{name}" for name in GPU_CLASSES)
"""A device of such a class, asked for like any resource: since 1.34, Kubernetes makes the claim itself."""
