"""Valid and invalid manifests and updates, for the API server and for the validator."""
