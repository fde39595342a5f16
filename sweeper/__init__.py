"""The sweeper: ends claims whose lease expired and queued rows that are too old, expires keys, removes old history.

It is no row in the queue that it sweeps, and it keeps nothing that matters in memory: any number may run at once, and
what one leaves behind the next takes up. It never calls a provider and never decides that nothing happened: a claim
that ran out becomes `unknown`, and the reconciler finds out.
"""
