"""Nightly payouts from a file: `python script.py payouts.csv`. You can safely run it again at any time.

    id,iban,amount
    2026-11-28-1,DE89370400440532013000,125000

    idem run --no-api --app script:idem             # the daemons; bank and database: see idem.toml

The key is the row's own id. Do not use its number in the file (a row added above changes it), or a new UUID (the
second run would pay again).
"""

import csv
import sys
from collections import Counter
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy import create_engine

from idem import Answer, Idem, Request
from idem.decisions import Accepted, InProgress, Mismatch, Replay, Retrying

idem = Idem()


class Payout(BaseModel):
    iban: str
    amount: int


payout = idem.operation(
    "payouts.create",
    Payout,
    provider="bank",
    request=lambda p: Request("POST", "/payments", json={"amount": p.amount, "currency": "eur", "iban": p.iban}),
    answer=lambda o: Answer(201 if o.succeeded else 402, {"payout": o.reference, "status": o.status}),
    label=lambda p: p.iban,
    key_ttl="30d",  # how long you may run a file again
)


def main(path: str) -> int:
    """Request every row's payout. The exit code is 1 if a row needs an operator."""
    engine = create_engine(idem.database_url.replace("postgresql://", "postgresql+psycopg://"))
    counts: Counter[str] = Counter()
    wrong = 0
    with Path(path).open(newline="") as file:
        for row in csv.DictReader(file):
            wanted = Payout(iban=row["iban"], amount=int(row["amount"]))
            # Each row commits separately: if a run dies in the middle, the rows before have been requested.
            with engine.begin() as db:
                decision = payout.accept(db, wanted, key=f"payout-{row['id']}")
            match decision:
                case Accepted() | Retrying():
                    counts["accepted"] += 1
                case Replay(answer=answer) if answer.status == 201:
                    counts["paid"] += 1
                case Replay(answer=answer):
                    wrong += 1
                    print(f"{row['id']}: refused: {answer.body.decode()}")
                case Mismatch():
                    wrong += 1
                    print(f"{row['id']}: the row has changed since it was requested; give a correction its own id")
                case InProgress():
                    counts["on its way"] += 1
                case _:  # unknown, or an operator must decide: idem continues, and the next run shows the result
                    counts["open"] += 1
    print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())) or "nothing to do")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
