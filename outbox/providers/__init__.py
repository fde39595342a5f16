"""Providers as data: requests, outcome rules, look-ups, lists, webhooks of one provider. No I/O."""
