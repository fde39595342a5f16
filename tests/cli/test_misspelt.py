"""A list that is empty because a name was misspelt says so: it must not look like good news."""

import pytest
from fix_desk import Desk

LISTS = [
    (("dlq", "list"), "--provider", "keyd", "keyed"),
    (("dlq", "list"), "--account", "keyd", "keyed"),
    (("unknowns", "list"), "--provider", "keyd", "keyed"),
    (("intents", "list"), "--provider", "keyd", "keyed"),
    (("intents", "list"), "--account", "keyd", "keyed"),
    (("intents", "list"), "--operation", "pay.keyd", "pay.keyed"),
]


@pytest.mark.parametrize(("command", "option", "written", "meant"), LISTS)
async def test_an_empty_list_of_a_misspelt_name_says_so(
    desk: Desk, command: tuple[str, ...], option: str, written: str, meant: str
) -> None:
    for form in ((), ("--json",)):
        await desk.cli(
            *command,
            option,
            written,
            *form,
            code=0,
            err=(f"note: {option.strip('-')} '{written}' is n", f"Did you mean {meant}?"),
        )
        right = await desk.cli(*command, option, meant, *form)
        assert "note: " not in right.err
