"""The resource names by which pods request GPUs and nodes offer them."""

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
"""The resources that nodes offer and Jobtree allocates."""

GPU_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com", "gpu.amd.com")
"""Device classes for dynamic resource allocation."""

GPU_CLAIMS = tuple(f"deviceclass.resource.kubernetes.io/{name}" for name in GPU_CLASSES)
"""The names of devices of these classes as a plain resource, for which Kubernetes 1.34 makes the claim."""
