"""What idem does when the database is not the one any more that it wrote to (docs/design.md, Recovery).

A restore, a clone or an asynchronous promotion forgets commits: a row that looks queued may have been sent. `guard`
notices it, `quarantine` doubts every open row, `window` says how long a doubted row may still be sent, and `release`
takes an operator's word that nothing was lost.
"""
