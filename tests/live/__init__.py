"""Tests on a real Kubernetes control plane, which they start themselves."""
