"""`idem find`: find intents by any of their names."""

import asyncio
from typing import Annotated, Any

import typer

from idem.cli.base import opening
from idem.cli.base.failures import FINDINGS
from idem.cli.base.options import Config, Json, examples
from idem.cli.base.output import age, as_json, say, state_text, table, text

EXAMPLES = examples(
    "idem find order-4711",
    "idem find pi_3QK2",
    "idem find 01a224bf-6573",
    "idem find 2026-11-28",
    "idem find KEY --json",
)

NOTHING = (
    "no intent matches {text}: no label, reference, provider key, client's key, id or time equals it. The whole text "
    "must match, and case matters. Next: `idem intents list --since 24h` shows the newest intents, `idem dlq list` "
    "those that need a decision"
)


def find(
    anything: Annotated[
        str,
        typer.Argument(
            help="A label, the provider's reference, a provider key (also an earlier one), the client's key, an id or "
            "its beginning, a day or a minute (UTC).",
            show_default=False,
        ),
    ],
    config: Config = None,
    as_data: Json = False,
) -> None:
    """Find intents by any of their names. Exit code 3: no intent matches.

    The whole text must match, and case matters. For each kind of name it shows the newest 50 (for a label or reference
    that more than 10,000 intents share: of 10,000 of them).
    """

    async def read() -> list[dict[str, Any]]:
        from idem.outbox.operator import search

        async with opening.connected(config) as connection:
            return await search.find(connection, anything)

    found = asyncio.run(read())
    if as_data:
        as_json({"intents": found})
    else:
        table(
            ["intent", "found by", "state", "row", "age", "tenant", "operation", "step", "provider",
             "account",
             "reference", "label", "dead letters"],
            [
                [n["id"], ", ".join(n["found_by"]), state_text(n), n["status"], age(n["age"]),
                 n["tenant_id"], n["operation"], n["step"], n["provider"], n["account"], n["provider_reference"],
                 n["label"], len(n["dead_letters"]) or None]
                for n in found
            ],
            empty=NOTHING.format(text=text(anything)),
            drop=("account", "provider", "operation", "step", "tenant", "row", "age", "label", "reference"),
        )  # fmt: skip
        if len(found) == 1:
            say(f"more: `idem intents show {found[0]['id']}`")
    if not found:
        raise typer.Exit(FINDINGS)
