"""Numbers with their nouns, for messages."""


def several(count: int, one: str, many: str | None = None, *, more: bool = False) -> str:
    """A number with its noun; `many` defaults to `one` with an s. `more`: there may be others that were not read."""
    return f"{'at least ' if more else ''}{count} {one if count == 1 else many or one + 's'}"
