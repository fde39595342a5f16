"""Tenants of the HTTP API: their tokens, limits, shares of a process, and what they used."""
