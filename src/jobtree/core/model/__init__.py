"""The values that all rooms of the core use: leases, promises, gang shapes, actions, reasons, outcomes."""
