"""Converts the world to status, forecasts and Reservations, and checks the invariants."""
