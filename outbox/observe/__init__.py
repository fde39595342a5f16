"""Shows what idem does: events, log lines and metrics. It makes no decisions."""
