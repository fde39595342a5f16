"""The shop's own test: it fails if a new POST would run twice on a client's retry."""

from app import app
from payments import idem


def test_every_post_has_a_contract() -> None:
    # The mount is for the bank's events: they have their own ids.
    assert not idem.audit(app)
