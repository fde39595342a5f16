"""How providers sign their events: one module a scheme, each a `Scheme` of `idem.outbox.domain.webhook`. No I/O.

A scheme reads the bytes as they came and tries every active secret in constant time. For any bytes it returns the id
or None, or raises `Unverified`.
"""
