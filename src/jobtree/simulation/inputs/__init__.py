"""What a replay is given: traces, fleets, budgets, outages."""
