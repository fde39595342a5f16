"""What idem shows of itself: events, log lines and metrics. Nothing here decides anything."""
