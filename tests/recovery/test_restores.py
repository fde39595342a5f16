"""A database that goes back at any step of a row's life: P2, P4 and P5 hold for everything that it still knows.

A seed makes a story: calls are accepted, made under faults, asked about, retried, cancelled, redriven; time passes; at
some step a backup is made, at a later one it takes the database's place; then `idem recover --lost` is run, or a daemon
remembers the database before. `IDEM_TEST_RESTORES` says how many stories are told of each kind.
"""

import os
import random
from contextlib import suppress
from typing import Any

import pytest
from fix_restore import FAR, MEMORY, Restorable, notices
from producers.application import Application, synced
from settling import shop

from idem.errors import OperatorRefused
from idem.outbox.domain import keys
from idem.testing.bank import BankAccount as BankAccount

STORIES = int(os.environ.get("IDEM_TEST_RESTORES", "2"))
FAULTS = ["act_then_drop", "act_then_500", "drop_before_acting", "500_before_acting", "503", "429", "422_before_acting",
          "401", "decline", "pending", "broken_body"]  # fmt: skip
DAY = 86400.0
PAUSE = """
INSERT INTO idem.lanes (provider, account, paused) VALUES ('keyed', 'keyed', %(paused)s)
    ON CONFLICT (provider, account) DO UPDATE SET paused = excluded.paused
"""


class Story:
    """One story, and what it has to hold at its end."""

    def __init__(self, restorable: Restorable, kind: str, seed: int) -> None:
        self.restorable, self.spine = restorable, restorable.spine
        self.kind, self.chance = kind, random.Random(f"{kind} {seed}")
        self.names = ["pay.keyed"] if kind != "both" else ["pay.keyed", "pay.keyless"]
        self.faults = [*FAULTS, "500_cached"] if kind == "burning" else FAULTS
        self.wished: dict[tuple[str, str], int] = {}
        self.log: list[str] = []
        redrive: dict[str, Any] = {"redrive": self.chance.choice(["auto", "none"])}
        retry: dict[str, Any] = {"retry": self.chance.choice(["client", "operator"])}
        if kind == "burning":
            shop.use(self.spine, kept=True, operation=redrive | retry)
        elif kind == "cancelling":
            self.spine.bank.add_account(BankAccount("voiding", "voiding-token", retention=MEMORY, cancel=True))
            shop.cancelling(self.spine, operation=redrive | retry)
        elif kind == "blind":
            shop.use(self.spine, lookups=False, operation=redrive | retry)

        synced(self.spine.url, self.spine.catalogue)

    async def step(self, lost: bool = False) -> None:
        spine, chance = self.spine, self.chance
        what = chance.choice(["accept", "accept", "work", "work", "work", "reconcile", "reconcile", "sweep", "time",
                              "retry", "cancel", "redrive", "pause"])  # fmt: skip
        self.log.append(what)
        match what:
            case "accept":
                wish = (chance.choice(self.names), f"k{len(self.wished)}")
                self.wished[wish] = 100 + len(self.wished)
                if chance.random() < 0.3:
                    # By SQL alone: a worker renders it.
                    Application(spine.url).once(wish[1], {"amount": self.wished[wish]}, operation=wish[0])
                else:
                    spine.accept(wish[1], self.wished[wish], operation=wish[0])
            case "work":
                if chance.random() < 0.7:
                    spine.bank.script(None, [chance.choice(self.faults)])
                await spine.work()
            case "reconcile":
                await spine.reconcile(hasten=chance.random() < 0.5)
            case "sweep":
                await self.restorable.sweep()
            case "time":
                # Of what is lost less passes than the provider remembers: what is accepted there is not known later.
                longest = 3600.0 if lost else 1.2 * MEMORY
                await self.restorable.pass_time(chance.choice([10.0, 200.0, 700.0, 3600.0, longest]))
            case "retry":
                await self.retry_known()
            case "cancel" | "redrive":
                for row in await spine.all("SELECT id FROM idem.intents"):
                    if chance.random() < 0.5:
                        with suppress(OperatorRefused):
                            await spine.act(what, row["id"])
            case "pause":
                # The lane's pause goes back with the database.
                await spine.execute(PAUSE, {"paused": chance.random() < 0.3})

    async def retry_known(self) -> None:
        """Clients come again with keys that the database knows, and that have not expired."""
        known = {
            (row["operation"], row["idempotency_key"])
            for row in await self.spine.all(
                "SELECT operation, idempotency_key FROM idem.idempotency_keys WHERE state <> 'expired'"
            )
        }
        for wish, amount in self.wished.items():
            if wish in known and self.chance.random() < 0.6:
                self.spine.accept(wish[1], amount, operation=wish[0])

    async def tell(self, *, told: bool) -> None:
        """`told`: an operator runs `idem recover`; else a daemon remembers the database before."""
        for _ in range(self.chance.randint(2, 7)):
            await self.step()
        await self.restorable.backup()
        for _ in range(self.chance.randint(2, 8)):
            await self.step(lost=True)
        await self.restorable.restore()
        self.log.append("restored")
        if told:
            await self.restorable.recover_lost()
        else:
            await notices(self.spine, moved=FAR)
        if self.chance.random() < 0.5:
            # What was accepted in the lost time comes again, while the provider remembers it. One that knows no keys
            # remembers nothing, and its clients are told to look first.
            for (name, key), amount in self.wished.items():
                if name == "pay.keyed":
                    self.spine.accept(key, amount, operation=name)
        for _ in range(self.chance.randint(3, 8)):
            await self.step()
        await self.end()

    async def end(self) -> None:
        """Nothing goes wrong any more, and much time passes."""
        await self.spine.execute(PAUSE, {"paused": False})
        for seconds in (10.0, 200.0, 400.0, 700.0, 4000.0, 4000.0, 4000.0, DAY, DAY):
            await self.restorable.sweep()
            await self.spine.work()
            await self.spine.reconcile(hasten=True)
            await self.restorable.pass_time(seconds)
        await self.restorable.sweep()

    async def holds(self) -> None:
        await self._pays_once()
        await self._changes_have_evidence()
        await self._nothing_is_silent()

    async def _pays_once(self) -> None:
        secret = bytes((await self.spine.one("SELECT secret FROM idem.installation"))["secret"])
        # What was cancelled by its key stands no more.
        voided = {r.payment for r in self.spine.bank.log.records if type(r).__name__ == "Voided"}
        made = [p for p in self.spine.bank.log.payments() if p.status != "declined" and p.id not in voided]
        for (name, key), amount in self.wished.items():
            ours = {str(keys.provider_key(secret, "t", name, key, 1, generation)) for generation in range(1, 8)}
            effects = [p for p in made if p.key in ours or p.reference in ours]
            assert len(effects) <= 1, f"P2: {name} {key} ({amount}): {effects}"

    async def _changes_have_evidence(self) -> None:
        for row in await self.spine.all(
            "SELECT n.id, n.state, o.status, (SELECT e.to_status FROM idem.evidence e WHERE e.intent_id = n.id"
            "  AND e.outbox_id = o.id AND e.to_status IS NOT NULL ORDER BY e.id DESC LIMIT 1) AS seen"
            " FROM idem.intents n JOIN idem.outbox o ON o.intent_id = n.id"
        ):
            assert row["seen"] == row["status"] or row["status"] == "claimed", f"P4: {row}"

    async def _nothing_is_silent(self) -> None:
        for row in await self.spine.all(
            "SELECT n.id, n.operation, n.state, o.status, o.doubted_since,"
            " EXISTS (SELECT FROM idem.dead_letters d WHERE d.intent_id = n.id AND d.resolved_at IS NULL) AS letter"
            " FROM idem.intents n LEFT JOIN idem.outbox o ON o.intent_id = n.id WHERE n.state <> 'completed'"
        ):
            retries = self.spine.catalogue.operations[row["operation"]].retry == "client"
            rests = row["state"] == "failed_retryable" and retries and row["doubted_since"] is None
            assert row["letter"] or rests or row["status"] == "awaiting", f"P5: {row}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("told", [True, False], ids=["recovered", "remembered"])
@pytest.mark.parametrize("kind", ["both", "burning", "cancelling", "blind"])
@pytest.mark.parametrize("seed", range(STORIES))
async def test_a_restore_at_any_step_keeps_promises(restorable: Restorable, kind: str, told: bool, seed: int) -> None:
    story = Story(restorable, kind, 2 * seed + told)
    await story.tell(told=told)
    try:
        await story.holds()
    except AssertionError as error:
        raise AssertionError(f"{error}\nthe story: {' '.join(story.log)}") from error
