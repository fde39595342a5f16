"""docs/adopt/flask.md, word by word."""

from examples.follow import follow
from examples.town import Town

FILES = ("idem.toml",)
EVENTS = False


def test_the_page_is_right(town: Town) -> None:
    assert len(follow(town, "flask.md")) == 4
    assert town.effects() == 1
    town.until("SELECT state = 'paid' FROM orders WHERE id = 1")
