"""docs/adopt/django.md, word by word, in a copy of the example."""

from examples.follow import follow
from examples.town import Town

FILES = ("django_orders",)
EVENTS = False


def test_the_page_is_right(town: Town) -> None:
    assert len(follow(town, "django.md")) == 6
    assert town.effects() == 1
