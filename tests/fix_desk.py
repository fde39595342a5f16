"""A desk: intents in every state that an operator meets, and the command line, called as a person calls it."""

import asyncio
import contextlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import pytest
from fix_spine import Spine
from fix_steps import claim_one, report, settle

from idem import Answer
from idem.cli.main import main
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Proof
from idem.outbox.domain.transition import Evidence
from idem.outbox.operator import dead_letters
from idem.outbox.settle import results
from idem.outbox.settle.proofs import store
from idem.outbox.values.errors import OperatorRefused
from idem.outbox.worker.claim import Claim
from idem.outcomes import Ambiguous, NotExecuted, Outcome, Pending, Succeeded

CONFIGURATION = Path(__file__).with_name("desk_configuration.toml").read_text()

Texts = str | tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@dataclass
class Desk:
    """What an operator's test needs on top of the spine."""

    spine: Spine
    environment: dict[str, str]

    async def claim(self, *, lease: float = 30) -> Claim:
        return await claim_one(self.spine, lease=lease)

    async def settle(self, claimed: Claim, outcome: Outcome) -> None:
        while True:
            try:
                await settle(self.spine, report(self.spine, claimed, outcome, status=500))
                return
            except results.RowIsLocked:  # like the settler
                await asyncio.sleep(0.02)

    async def pending(self, key: str) -> UUID:
        return await asyncio.to_thread(self.spine.accepted, key)

    async def after(self, key: str, outcome: Outcome) -> UUID:
        """An intent whose first attempt had this outcome."""
        intent = await self.pending(key)
        await self.settle(await self.claim(), outcome)
        return intent

    async def unknown(self, key: str, *, quiet: bool = True) -> UUID:
        """An unknown intent; `quiet`: its quiet time has passed, so it cannot act any more."""
        intent = await self.after(key, Ambiguous())
        if quiet:
            await self.spine.advance(200)
        return intent

    async def held(self, key: str) -> UUID:
        """An intent at rest: the provider refused the request itself; the dead letter is `rejected`."""
        return await self.after(key, NotExecuted("request"))

    async def awaiting(self, key: str) -> UUID:
        return await self.after(key, Pending("pay_9"))

    async def live(self, key: str) -> UUID:
        intent = await self.pending(key)
        await self.claim()
        return intent

    async def completed(self, key: str) -> UUID:
        return await self.after(key, Succeeded("pay_1"))

    async def bury(self, intent: UUID | None, reason: str, subject: str | None = None) -> UUID:
        row = await self.spine.one(
            "INSERT INTO idem.dead_letters (intent_id, subject, reason) VALUES (%(i)s, %(s)s, %(r)s) RETURNING id",
            i=intent, s=subject, r=reason,
        )  # fmt: skip
        return UUID(str(row["id"]))

    async def letter(self, intent: UUID, reason: str) -> UUID:
        row = await self.spine.one(
            "SELECT id FROM idem.dead_letters WHERE intent_id = %(i)s AND reason = %(r)s", i=intent, r=reason
        )
        return UUID(str(row["id"]))

    async def buried(self, status: str, reason: str, key: str = "k") -> tuple[UUID, UUID]:
        """An intent in this status, e.g. `unknown`, and its open dead letter."""
        intent = await getattr(self, status)(key)
        return intent, await self.bury(intent, reason)

    async def rejected(self, key: str = "k") -> tuple[UUID, UUID]:
        """An intent that the provider has refused, and its dead letter."""
        intent = await self.held(key)
        return intent, await self.letter(intent, "rejected")

    async def close(self, letter: UUID) -> None:
        """Like `idem dlq resolve --as closed`."""
        row = await self.spine.one(
            "SELECT l.seen, n.version FROM idem.dead_letters l JOIN idem.intents n ON n.id = l.intent_id"
            " WHERE l.id = %(l)s", l=letter,
        )  # fmt: skip
        await self.spine.run(dead_letters.close_dead_letter, letter, by="ada", reason="known", **row)

    async def store_proof(self, intent: UUID, proof: Proof) -> None:
        """Store a proof that is not applied yet."""
        row = await self.spine.row_if_any(intent)
        found = StoredProof(uuid4(), "webhook", proof, Answer(201, b"{}"))
        assert await self.spine.run(store, row["id"], found, Evidence("webhook", "webhook", "succeeded")) == "stored"

    async def version(self, intent: UUID) -> int:
        row = await self.spine.one("SELECT version FROM idem.intents WHERE id = %(i)s", i=intent)
        return int(row["version"])

    async def act(self, action: str, intent: UUID, *, by: str = "ada", reason: str = "ticket 7", **options: Any) -> Any:
        """Run an operator's action on the current version of the intent."""
        return await self.spine.act(action, intent, by=by, reason=reason, **options)

    async def refuses(self, match: str, action: str, intent: UUID, **options: Any) -> None:
        """Check that the action is refused with this message."""
        with pytest.raises(OperatorRefused, match=match):
            await self.act(action, intent, **options)

    async def state(self, intent: UUID) -> tuple[str, str | None]:
        """The intent's state and its row's status."""
        row = await self.spine.row_if_any(intent)
        found = await self.spine.one("SELECT state FROM idem.intents WHERE id = %(i)s", i=intent)
        return found["state"], row["status"] if row else None

    async def alive(self, kind: str) -> bool:
        """Whether a daemon of this kind has started and not ended."""
        return bool(await self.spine.all("SELECT FROM idem.daemons WHERE kind = %(k)s AND ended_at IS NULL", k=kind))

    async def settled(self, intent: UUID) -> bool:
        return (await self.state(intent))[0] == "completed"

    async def cli(
        self, *arguments: object, answer: str = "", code: int | None = None, out: Texts = (), err: Texts = ()
    ) -> Result:
        """Run a command in this process; `answer` is what the person types.

        Checks the exit code, if given, and that stdout and stderr contain these texts.
        """
        result = await asyncio.to_thread(run, [str(each) for each in arguments], self.environment, answer)
        assert code in (None, result.code), result
        for texts, written in ((out, result.out), (err, result.err)):
            for text in (texts,) if isinstance(texts, str) else texts:
                assert text in written, result
        return result


def run(arguments: list[str], environment: dict[str, str], answer: str = "") -> Result:
    """Run a command with this environment, like the entry point."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch("sys.stdin", io.StringIO(answer)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(arguments)
    return Result(code, out.getvalue(), err.getvalue())
