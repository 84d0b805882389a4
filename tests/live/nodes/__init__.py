"""Adds nodes to a control plane: fake ones, which kwok simulates, and real kubelets."""
