"""Handlers of settled intents: the user's own code, run once for each event, in one transaction with its mark."""
