"""idem inside an application: operations defined in Python, calls in its transactions, handlers, webhooks."""
