"""Accept: a request becomes an intent with its key and outbox row, in the transaction of its caller."""
