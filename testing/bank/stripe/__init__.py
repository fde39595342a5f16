"""The bank as a Stripe-like API: form-encoded bodies, cached keys, PaymentIntents, events.

An account with `api="stripe"` speaks it. It imitates what a client's promises depend on: which answers are kept under
a key, what a replay gets, which statuses follow each other, and what the events say. It does not check cards.
"""
