"""Handlers: the user's own code, run once for each event of an intent, in one transaction with its mark."""
