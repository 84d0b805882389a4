"""Defines Budget, Run, Reservation, Lease and the policy, and generates the CRDs."""
