"""Nightly payouts out of a file: `python script.py payouts.csv`. To run it again is harmless, at any time.

    id,iban,amount
    2026-11-28-1,DE89370400440532013000,125000

    idem run --no-api --app script:idem             # the daemons; bank and database: see idem.toml

The key is the row's own id. Not its number in the file (a row that is added above moves it), and not a new UUID (the
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
    key_ttl="30d",  # for so long a file may be run again
)


def main(path: str) -> int:
    """Wish every row's payout. The exit code is 1 if a row needs somebody's look."""
    engine = create_engine(idem.database_url.replace("postgresql://", "postgresql+psycopg://"))
    told: Counter[str] = Counter()
    wrong = 0
    with Path(path).open(newline="") as file:
        for row in csv.DictReader(file):
            wish = Payout(iban=row["iban"], amount=int(row["amount"]))
            # Each row is committed by itself: a run that dies in the middle has wished what it has wished.
            with engine.begin() as db:
                decision = payout.accept(db, wish, key=f"payout-{row['id']}")
            match decision:
                case Accepted() | Retrying():
                    told["accepted"] += 1
                case Replay(answer=answer) if answer.status == 201:
                    told["paid"] += 1
                case Replay(answer=answer):
                    wrong += 1
                    print(f"{row['id']}: refused: {answer.body.decode()}")
                case Mismatch():
                    wrong += 1
                    print(f"{row['id']}: the row has changed since it was wished; a correction needs an id of its own")
                case InProgress():
                    told["on its way"] += 1
                case _:  # nobody knows yet, or a person decides: idem sees to it, the next run tells
                    told["open"] += 1
    print(", ".join(f"{number} {what}" for what, number in sorted(told.items())) or "nothing to do")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
