"""Recovery: what idem does when a database lost commits, e.g. by a restore, a clone or an asynchronous promotion.

A row that looks queued may have been sent. `guard` notices it, `quarantine` doubts every open row, and `release` takes
an operator's word that nothing was lost (docs/design.md, Recovery). `idem.outbox.database.identity` knows which
database this is.
"""
