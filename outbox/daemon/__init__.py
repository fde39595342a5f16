"""What all daemons share: identity, heartbeat, schedule, stop, size of the fleet."""
