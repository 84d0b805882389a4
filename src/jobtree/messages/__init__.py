"""The Events, warnings and signed records of decisions, alike on live and simulated clusters; and wording."""
