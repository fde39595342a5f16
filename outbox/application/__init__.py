"""idem inside somebody's own application: operations defined in Python, calls in their transactions, their handlers."""
