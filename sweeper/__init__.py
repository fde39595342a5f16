"""The sweeper: ends claims whose lease expired and queued rows that are too old, expires keys, removes old history.

It is not a row in the queue that it sweeps, and it keeps nothing important in memory: any number may run at once, and
the next one continues what one leaves behind. It never calls a provider and never decides that nothing happened: an
expired claim becomes `unknown`, and the reconciler finds out.
"""
