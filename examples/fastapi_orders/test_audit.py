"""The shop's own test: nobody adds a POST that a client's retry would run twice."""

from app import app
from payments import idem


def test_every_post_has_a_contract() -> None:
    # The mount is the bank's: its events have ids of their own.
    assert not idem.audit(app)
