"""The process on a live cluster: watch, plan, carry out, and keep leases and pods as decided."""
