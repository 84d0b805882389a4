"""The state that a pass plans on, the events that change it, and its indexes."""
