"""The process: control loop, leader election, health, metrics, beacon."""
