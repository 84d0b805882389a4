"""Tests the Helm chart, the kustomize overlays and the guides that install Jobtree."""
