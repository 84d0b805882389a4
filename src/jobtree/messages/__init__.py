"""Words what users are told about a decision, whether it was simulated or live."""
