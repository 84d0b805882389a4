"""Finds the API server and the credentials: kubeconfigs, credential plugins, TLS."""
