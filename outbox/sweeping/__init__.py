"""Walks over outbox rows that end what is over: pages under lock, and the claims whose lease ran out.

The sweeper runs them; the reconciler and the HTTP API run what a row needs before they can go on with it.
"""
