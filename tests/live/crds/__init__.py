"""Tests the CRDs of config/crd: what the API server accepts, refuses and shows."""
