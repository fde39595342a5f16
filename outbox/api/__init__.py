"""The HTTP API: clients request an effect, wait for its answer, read it and cancel it."""
