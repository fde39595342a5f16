"""How a process comes to its database: the address, the session and its settings, and what stands in the way."""
