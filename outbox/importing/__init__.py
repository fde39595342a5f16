"""Taking over a live outbox that was not idem's: its queue, its calls in flight, its answers.

`lines` reads and checks one line of JSON; `taking` compares with the database and writes, through accept and the one
gate. Both are used by `idem import` and by whatever else shows or takes over rows.
"""
