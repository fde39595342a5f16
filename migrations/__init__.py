"""The history of idem's schema. A migration imports nothing of idem: it must still run when today's code is gone."""
