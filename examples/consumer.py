"""A message consumer. A broker delivers at least once; what a message asks for happens once.

    idem run --no-api --app consumer:idem           # the daemons; bank and database: see idem.toml
    echo '{"id": "m-1", "type": "item.sold", "item": "tea", "count": 2}' | python consumer.py
    echo '{"id": "m-2", "type": "order.cancelled", "order": 7, "amount": 4200}' | python consumer.py

Here messages arrive as lines, and `ack`, `later` and `park` are lines too, so that you need no broker to try it. With
a broker use: receive_message, delete_message, nothing (SQS); consume, basic_ack, basic_nack (RabbitMQ). The key is the
id that the *sender* gave the message, which stays the same when it is delivered or sent again: SQS's
MessageDeduplicationId and not its MessageId, a CloudEvent's source and id, the id of an outbox row.
"""

import json
import sys
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from sqlalchemy import Engine, create_engine, text

from idem import Answer, Idem, KeyInvalid, Request
from idem.decisions import Accepted, InProgress, Mismatch

idem = Idem()

Reply = Literal["ack", "later", "park"]
"""ack: done, the broker may forget it. later: deliver it again. park: an operator must look (a dead-letter queue)."""


class Sold(BaseModel):
    item: str
    count: int


class Refund(BaseModel):
    order: int
    amount: int


# Local: the rows that are written here are the effect.
sell = idem.operation("stock.sell", Sold, key_ttl="14d")  # longer than the broker keeps a message
# The effect is at a provider: a worker makes the call.
refund = idem.operation(
    "refunds.create",
    Refund,
    provider="bank",
    request=lambda p: Request("POST", "/payments", json={"amount": p.amount, "currency": "eur", "order": p.order}),
    answer=lambda o: Answer(201 if o.succeeded else 402, {"refund": o.reference}),
    key_ttl="14d",
)


def sold(engine: Engine, id: str, message: dict[str, Any]) -> Reply:
    """Reduce the stock by what was sold."""
    params = Sold.model_validate(message)
    call = sell.begin(key=id, body=params.model_dump())
    with engine.begin() as db:
        if call.reserve(db):
            db.execute(text("UPDATE stock SET count = count - :count WHERE item = :item"), params.model_dump())
            call.complete(db, Answer(200))
    match call.answer().status:  # after the commit; for a redelivery, the stored answer
        case 200:
            return "ack"
        case 409:  # another consumer is processing it; it may still roll back
            return "later"
        case _:  # 422: the same id with different content. One of them is not what its sender thinks
            return "park"


def cancelled(engine: Engine, id: str, message: dict[str, Any]) -> Reply:
    """Refund an order."""
    params = Refund.model_validate(message)
    with engine.begin() as db:
        decision = refund.accept(db, params, key=id)
        if isinstance(decision, Accepted):  # only a new message writes
            db.execute(
                text("INSERT INTO refunds (order_id, intent) VALUES (:order, :intent)"),
                {"order": params.order, "intent": decision.intent_id},
            )
    match decision:
        case Mismatch():
            return "park"
        case InProgress(intent_id=None):  # another consumer has not committed yet
            return "later"
        case _:  # the database has it: idem takes care of it, even if this process dies
            return "ack"


HANDLERS = {"item.sold": sold, "order.cancelled": cancelled}


def handle(engine: Engine, id: str, message: dict[str, Any]) -> Reply:
    try:
        return HANDLERS[message["type"]](engine, id, message)
    except (KeyError, ValidationError, KeyInvalid) as error:  # a retry would not help
        print(f"{id}: {error!r}", file=sys.stderr)
        return "park"


def main() -> None:
    engine = create_engine(idem.database_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as db:
        db.execute(text("CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, count int NOT NULL)"))
        db.execute(text("CREATE TABLE IF NOT EXISTS refunds (order_id int NOT NULL, intent uuid PRIMARY KEY)"))
    for line in sys.stdin:
        try:
            message = json.loads(line)
            id = message["id"]
        except (ValueError, KeyError, TypeError):
            print(f"park: this is not a message: {line}", file=sys.stderr)
            continue
        reply = handle(engine, id, message)
        # A process that dies here gets the message again, and it is a retry.
        print(reply, id, flush=True)


if __name__ == "__main__":
    main()
