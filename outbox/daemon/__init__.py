"""Gives every daemon its identity, heartbeat, schedule, stop and the size of the fleet."""
