"""The provider's own list: it shows every object, its owner, and all of its pages."""

from idem.outbox.calls.lookup_pages import ListFailed
from idem.outbox.domain.provider import Item
from idem.testing.providers.calls import AROUND, Calls, around
from idem.testing.providers.errors import Broken, NotSupported, applies, must, world_must


class ListingRules:
    """Rules about `listing` and `read_listing`."""

    def test_the_list_shows_what_was_made(self, calls: Calls) -> None:
        """After the horizon the list has the object, with the answer's reference and a state that a rule reads."""
        _listed(calls)
        sent = calls.made()
        calls.past_the_horizon()
        item = _only(_items(calls, [sent.at]), sent.reference)
        must(item.said is not None, "list", f"the list shows {item.said!r} for a call that was answered {sent.word}")

    def test_the_list_shows_whose_an_object_is(self, calls: Calls) -> None:
        """By the key, or by this deployment's tag."""
        _listed(calls)
        sent = calls.made()
        calls.past_the_horizon()
        item = _only(_items(calls, [sent.at]), sent.reference)
        must(item.key in (None, sent.key), "list.key", f"the list shows the key {item.key} instead of {sent.key}")
        if calls.contract.deployment is not None:
            must(item.ours is True, "deployment_tag", "an object of this deployment does not show its tag in the list")
        elif item.key is None:
            applies(
                calls.contract.dedicated_account,
                "the list shows neither key nor tag: only references show whose an object is",
            )

    def test_the_list_shows_others_as_others(self, calls: Calls) -> None:
        """An object of another program in the account is not this deployment's."""
        _listed(calls)
        sent = calls.made()
        known = {each.reference for each in _items(calls, [sent.at])}
        calls.world.foreign()
        calls.past_the_horizon()
        others = [each for each in _items(calls, [sent.at]) if each.reference not in known | {sent.reference}]
        world_must(bool(others), "World.foreign made nothing that the list shows")
        for each in others:
            message = f"the object {each.reference} of another program is read as this deployment's"
            must(not each.ours and each.key != sent.key, "deployment_tag", message)

    def test_the_list_goes_on_to_its_end(self, calls: Calls) -> None:
        """With one object more than a page holds, the list has all of them, on more than one page."""
        _listed(calls)
        if calls.world.page_size is None:
            raise NotSupported("World.page_size is not set: how many objects the list shows on one page")
        sent = [calls.made() for _ in range(calls.world.page_size + 1)]
        calls.past_the_horizon()
        since, until = around([each.at for each in sent])
        items, pages = _walk(calls, since, until + calls.passed)
        must(pages > 1, "list.page", f"{len(sent)} objects were shown on {pages} page, and World.page_size is "
             f"{calls.world.page_size}")  # fmt: skip
        missing = {each.reference for each in sent} - {each.reference for each in items}
        must(not missing, "list.page", f"{len(missing)} of {len(sent)} objects are missing on its {pages} pages")

    def test_the_list_keeps_to_its_time(self, calls: Calls) -> None:
        """An object that was made later is not in the list, or the list says when it was made."""
        _listed(calls)
        sent = calls.made()
        calls.past_the_horizon()
        items, _ = _walk(calls, sent.at - 30 * AROUND, sent.at - 10 * AROUND)
        for each in items:
            message = f"the list of an earlier period shows the object {each.reference} without its time"
            must(each.reference != sent.reference or each.created is not None, "list.path", message)


def _listed(calls: Calls) -> None:
    applies(calls.contract.listed, "list is not set")


def _walk(calls: Calls, since: float, until: float) -> tuple[list[Item], int]:
    try:
        return calls.listed(since, until)
    except ListFailed as error:
        raise Broken(f"list: {error}") from None


def _items(calls: Calls, moments: list[float]) -> list[Item]:
    since, until = around(moments)
    return _walk(calls, since, until + calls.passed)[0]


def _only(items: list[Item], reference: str | None) -> Item:
    must(reference is not None, "object.reference", "the answer has none, so its object cannot be found in the list")
    found = [each for each in items if each.reference == reference]
    message = f"the list shows the object {reference} {len(found)} times among {len(items)} after the horizon"
    must(len(found) == 1, "list", message)
    return found[0]
