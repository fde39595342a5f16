"""Import: takes over the live outbox of another system: its queue, its calls in flight, its answers.

`records` reads and checks one line of JSON; `takeover` compares with the database and writes, through accept and the
one gate.
"""
