"""Every operator's command in every situation of a row, as data: allowed, refused, or only with the override.

`docs/operators.md` is generated from here. `tests/operators` tries each cell on a real database, with a provider that
has carried out everything it may have carried out. The guards are in `idem.outbox.operator.guards`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Cell(StrEnum):
    """What a command does in a situation. The risk of an override is a word of `RISKS`."""

    ALLOWED = "yes"
    REFUSED = "no"
    MAY_STILL_ACT = "override: quiet_after"
    CONTRADICTED = "override: conflict"
    UNPROVEN = "override: new_key"
    NO_MEMORY = "override: no_memory"
    NOT_BURNED = "override: not_burned"
    ON_A_WORD = "override: word"


RISKS: Final = {
    "quiet_after": "A request that was sent may still act at the provider after the command.",
    "conflict": "The records say that the provider has it: a second send makes it happen twice.",
    "new_key": "Nothing proves that what was sent did not act, and under a new provider key the provider cannot know "
    "the second call: it may happen twice.",
    "no_memory": "Nothing proves that what was sent did not act, and the provider does not recognise a second call (it "
    "has no replay, or its memory of the key is over): it may happen twice.",
    "not_burned": "The old provider key still protects the call: under a new one it does not.",
    "word": "Only an operator says that it did not happen: if it did happen, the client still gets `cancelled`.",
}

COMMANDS: Final = {
    "completed": "dlq resolve --as completed",
    "failed": "dlq resolve --as failed_retryable",
    "redrive": "dlq redrive",
    "new_key": "dlq redrive --new-provider-key",
    "bulk": "dlq redrive, many at once",
    "cancel": "intents cancel",
    "client": "the client's cancel (HTTP, Python)",
    "approve": "intents approve",
    "reject": "intents reject",
}
"""The commands about one intent. A bulk redrive and the client have no override."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A row's situation, and what each command does in it.

    `cells` in the order of `COMMANDS`. `acted`: whether the provider may have carried it out already.
    """

    name: str
    text: str
    acted: bool
    cells: tuple[Cell, ...]

    def cell(self, command: str) -> Cell:
        """The cell of a command."""
        return self.cells[list(COMMANDS).index(command)]


Y, N = Cell.ALLOWED, Cell.REFUSED
Q, C, U = Cell.MAY_STILL_ACT, Cell.CONTRADICTED, Cell.UNPROVEN
M, B, W = Cell.NO_MEMORY, Cell.NOT_BURNED, Cell.ON_A_WORD

SITUATIONS: Final = (
    Situation("pending", "queued, nothing sent", False, (Y, N, N, N, N, Y, Y, N, N)),
    Situation("pending, hint", "queued, and an unconfirmed event concerns it", True, (Y, N, C, N, N, C, N, N, N)),
    Situation("pending, proof", "queued, and a stored proof waits to be applied", True, (N, N, N, N, N, N, N, N, N)),
    Situation("pending, on a word", "queued again after a redrive of an unknown one", True,
              (Y, N, N, N, N, W, N, N, N)),
    Situation("waiting", "blocked by its ordering key", False, (Y, N, N, N, N, Y, Y, N, N)),
    Situation("approval", "waits for an approval", False, (Y, N, N, N, N, Y, Y, Y, Y)),
    Situation("approval, hint", "waits for an approval, and an unconfirmed event concerns it", True,
              (Y, N, C, N, N, C, N, N, C)),
    Situation("approval, proof", "waits for an approval, and a stored proof waits to be applied", True,
              (N, N, N, N, N, N, N, N, N)),
    Situation("unfrozen", "accepted by SQL, not rendered yet", False, (Y, N, N, N, N, Y, Y, N, N)),
    Situation("claimed, live", "a worker is making the call", True, (N, N, N, N, N, N, N, N, N)),
    Situation("claimed inline, live", "the caller's own code is making the call", True, (N, N, N, N, N, N, N, N, N)),
    Situation("claimed, lease expired", "the sweeper is about to make it unknown", True, (Y, N, N, N, N, N, N, N, N)),
    Situation("unknown, remembered", "the provider still knows its key", True, (Y, Y, Y, U, N, N, N, N, N)),
    Situation("unknown, may still act", "inside its quiet time", True, (Y, Q, Q, N, N, N, N, N, N)),
    Situation("unknown, forgotten", "the provider's memory of its key is over", True, (Y, Y, M, U, N, N, N, N, N)),
    Situation("unknown, no replay", "the provider recognises no second call", True, (Y, Y, M, U, N, N, N, N, N)),
    Situation("unknown, key burned", "the provider keeps a failure under its key", True, (Y, U, U, U, N, N, N, N, N)),
    Situation("unknown, contradicted", "proofs disagree (an open `conflict`)", True, (Y, C, C, U, N, N, N, N, N)),
    Situation("unknown, hint", "an unconfirmed event concerns it", True, (Y, C, C, U, N, N, N, N, N)),
    Situation("unknown, proof", "a stored proof waits to be applied", True, (N, N, N, N, N, N, N, N, N)),
    Situation("unknown, asked about", "the reconciler has taken it", True, (N, N, N, N, N, N, N, N, N)),
    Situation("unknown, take lost", "a reconciler went away while it asked", True, (Y, Q, Q, N, N, N, N, N, N)),
    Situation("unknown, inline", "the caller's own code made the call", True, (Y, Y, N, N, N, N, N, N, N)),
    Situation("unknown, key gone", "the client may send it as something new", True, (Y, Y, N, N, N, N, N, N, N)),
    Situation("unknown, database changed", "a restore, and no replay", True, (Y, Y, M, U, N, N, N, N, N)),
    Situation("awaiting", "the provider has accepted it and is working", True, (Y, N, N, N, N, N, N, N, N)),
    Situation("held, never sent", "too late", False, (Y, N, Y, B, Y, Y, Y, N, N)),
    Situation("held, never approved", "not approved in time: a redrive asks again", False,
              (Y, N, Y, B, Y, Y, Y, N, N)),
    Situation("held, never rendered", "its request could not be rendered", False, (Y, N, Y, Y, Y, Y, Y, N, N)),
    Situation("held, refused as it is", "an open `rejected`", False, (Y, N, Y, Y, Y, Y, Y, N, N)),
    Situation("held, proven absent", "a verdict of the reconciler's", False, (Y, N, Y, B, Y, Y, Y, N, N)),
    Situation("held, proven absent, key burned", "the same, and the next send has a new key", False,
              (Y, N, Y, Y, Y, Y, Y, N, N)),
    Situation("held, on a word, remembered", "an operator's word, and the provider still knows the key", True,
              (Y, N, Y, U, Y, W, N, N, N)),
    Situation("held, on a word, no replay", "an operator's word, and the provider recognises no second call", True,
              (Y, N, M, U, N, W, N, N, N)),
    Situation("held, on a word, key burned", "an operator's word, and the next send has a new key", True,
              (Y, N, U, U, N, W, N, N, N)),
    Situation("held, inline", "only its caller's own retry makes the call", False, (Y, N, N, N, N, Y, Y, N, N)),
    Situation("held, hint", "an unconfirmed event concerns it", True, (Y, N, C, C, N, C, N, N, N)),
    Situation("held, proof", "a stored proof waits to be applied", True, (N, N, N, N, N, N, N, N, N)),
    Situation("held, key expired", "the client may send it as something new", False, (Y, N, N, N, N, Y, Y, N, N)),
    Situation("held, a later step", "an earlier step is done, and nothing undoes it", False,
              (Y, N, Y, Y, Y, N, N, N, N)),
    Situation("completed", "the answer is stored", True, (N, N, N, N, N, N, N, N, N)),
)  # fmt: skip

WHOLE: Final = {
    "reconcile --now": "ends claims whose lease has expired, then looks up every unknown and awaiting row that no "
    "reconciler has claimed; sends replays only, while the provider remembers the key; never a "
    "first send",
    "reconcile --since": "ends claims whose lease has expired, looks up what is due and what was accepted from then "
    "on, then compares; discrepancies become dead letters; sends replays only; never a first send",
    "recover --lost": "queued and resting rows become unknown, except those whose second send is harmless",
    "recover --lossless": "rows that the change of the database made unknown, and that nothing has changed since, "
    "return to their earlier status; every other row stays unchanged",
    "dlq resolve --as closed": "no row changes; closes an entry that asks for no decision about its intent: "
    "discrepancy, answer_failed, event_failed, and, where the intent is not unknown, conflict and possible_duplicate; "
    "for handler_failed, the handler skips the event",
    "dlq discard": "no row changes; closes an entry that has no intent",
    "intents unblock": "the intent's own row stays as it is; with `--skip` it leaves the order. The next row of the "
    "ordering key goes from waiting to pending, or to unfrozen, if nothing else blocks it",
    "import": "creates rows for new keys; a key that idem already has, and not from an import, is an error, and then "
    "nothing is written; rows of an earlier import stay unchanged",
    "pause, resume": "no row changes; while calls are paused no first send, replay or cancel begins",
    "token create": "no row changes",
    "token revoke": "no row changes; the token's next request is 401",
    "db upgrade, db sync, db grant": "no row changes; only the schema, names of operations and rights change",
}
"""The other commands of an operator, and what they do to a row."""

READ_ONLY: Final = (
    "status", "doctor", "find", "intents list", "intents show", "intents blocked", "unknowns list", "unknowns export",
    "dlq list", "dlq show", "tenants top", "token list", "config check", "config show", "db check", "db current",
    "db sql",
)  # fmt: skip
"""The commands that change no row. With `--unmask`, the two `show` add who looked to the evidence."""
