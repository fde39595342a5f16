"""The HTTP API: ask for an effect, wait for its answer, look at it, cancel it."""
