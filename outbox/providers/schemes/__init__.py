"""How providers sign their events: one module a scheme, each a `Scheme` of `idem.outbox.domain.webhook`. No I/O.

The bytes are looked at as they came, every active secret is tried in constant time, and whatever a sender writes, a
scheme says the id, None, or `Unverified`.
"""
