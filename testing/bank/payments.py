"""The routes of the payments API: create, show and list payments."""

import uuid
from datetime import datetime
from typing import Any

from idem.testing.bank.answers import BankAnswer, by_fault, encoded, in_flight, refusal
from idem.testing.bank.cache import CacheDecision
from idem.testing.bank.cancelling import Cancelling
from idem.testing.bank.faults import Acts
from idem.testing.bank.order import FAULT_MEMBER, BankOrder
from idem.testing.bank.records import Payment, Remembered, Voided
from idem.testing.bank.settings import BankAccount, SecondRequest
from idem.testing.bank.shape import BankLookup, BankShape, answered
from idem.testing.bank.state import BankExecution, BankState

LIMIT = 100
LIMIT_MAX = 1000
KEY_MAX = 255

_KEEP_A_500 = (Acts.REMEMBERS, Acts.ROLLS_FORWARD)


class Payments:
    """Executes orders. Only this class makes effects."""

    def __init__(self, state: BankState) -> None:
        self._state = state
        self._cancelling = Cancelling(state)

    def remember(self, record: Payment | Voided) -> None:
        """Restore one line of an earlier run."""
        if isinstance(record, Voided):
            self._cancelling.remember(record)
            return
        self._state.book.add(record)
        if record.key is not None:
            self._state.cache.remember(Remembered.of(record))

    async def serve(self, work: BankExecution) -> BankAnswer:
        """Execute a request."""
        order, account = work.order, work.account
        if order.asks == "cancel":
            await self._state.stall(work.fault)
            return await self._canceled(work)
        if account.shape is not None:
            if order.incoming.method != "GET":
                return await self._create(work)
            await self._state.stall(work.fault)
            return self._answered_lookup(order, account, account.shape)
        match order.incoming.method, order.path.strip("/").split("/"):
            case "POST", ["payments"]:
                return await self._create(work)
            case "GET", ["payments"]:
                await self._state.stall(work.fault)
                return self._list(order, account)
            case "GET", ["payments", payment_id]:
                await self._state.stall(work.fault)
                payment = self._state.book.get(account, payment_id)
                if payment is None:
                    return refusal(404, "not_found", f"There is no payment {payment_id}.")
                return BankAnswer(200, encoded(self._state.book.shown(account, payment)))
            case _, ["payments"] | ["payments", _]:
                return refusal(405, "method_not_allowed", "This resource does not support this method.")
            case _:
                return refusal(404, "not_found", "There is no such resource.")

    async def _create(self, work: BankExecution) -> BankAnswer:
        order, account = work.order, work.account
        if (wrong := _wrong(order) if account.shape is None else _wrong_key(order)) is not None:
            return wrong
        if order.key is None or not work.keeps:
            return await self._execute(work)
        with self._state.cache.decided(account, order.key, order.fingerprint) as decided:
            match decided:
                case Remembered():
                    return self._replayed(account, decided)
                case CacheDecision.MISMATCH:
                    message = "This key was used for another request."
                    return refusal(400, "idempotency_key_reused", message, type="idempotency_error")
                case CacheDecision.IN_FLIGHT:
                    return in_flight()
                case CacheDecision.CANCELED:
                    return _called_off()
                case CacheDecision.EXECUTE:
                    return await self._execute(work)

    async def _execute(self, work: BankExecution) -> BankAnswer:
        await self._state.stall(work.fault)
        if work.order.key is not None and self._state.cache.canceled(work.account, work.order.key):
            return _called_off()
        payment = None if work.plan.acts is Acts.REMEMBERS else self._drawn_up(work)
        remembered = None
        if work.keeps and work.plan.acts in _KEEP_A_500:
            now = self._state.clock.now()
            made, appears = (None, now) if payment is None else (payment.id, payment.at)
            remembered = work.remembered(now, by_fault("500", None), made, appears)
        # The effect and its answer for replays are one write: no crash can come between them.
        self._state.ledger.write(*([payment] if payment else []), *([remembered] if remembered else []))
        await self._state.ledger.sync()
        if payment is not None:
            self.remember(payment)
        if remembered is not None:
            self._state.cache.remember(remembered)
        if payment is None:
            return by_fault("500", None)
        await work.acted(payment, ())
        return BankAnswer(payment.answer_status, payment.answer_body.encode(), {}, "made", payment.id)

    async def _canceled(self, work: BankExecution) -> BankAnswer:
        answer, ended = await self._cancelling.serve(work.order, work.account, work.number)
        for payment, line in ended:
            await work.acted(payment, [line])
        return answer

    def _drawn_up(self, work: BankExecution) -> Payment:
        order, account, fault, plan = work.order, work.account, work.fault, work.plan
        params = dict(order.params or {})
        now = self._state.clock.now() + work.delay
        pending = self._state.settings.pending_seconds if fault is None or fault.time is None else fault.time
        # An order of another shape is kept whole, whatever its members mean there.
        reserved = {FAULT_MEMBER, account.key_field}
        if account.shape is None:
            reserved |= {"amount", "currency", "reference"}
        amount, currency = params.get("amount"), params.get("currency")
        draft = Payment(
            id=f"pay_{uuid.uuid4().hex[:24]}",
            at=now,
            request=work.number,
            account=account.name,
            key=order.key,
            reference=order.reference,
            amount=amount if isinstance(amount, int) else 0,
            currency=currency if isinstance(currency, str) else "",
            status=plan.status,
            becomes=plan.becomes,
            settles_at=None if plan.becomes is None else now + pending,
            fingerprint=order.fingerprint,
            answer_status=0,
            answer_body="",
            details={name: value for name, value in params.items() if name not in reserved},
        )
        answer = by_fault("500", None) if plan.answer == "500" else self._own_answer(account, draft, 201)
        return Payment(**{**vars(draft), "answer_status": answer.status, "answer_body": answer.body.decode()})

    def _own_answer(self, account: BankAccount, payment: Payment, status: int) -> BankAnswer:
        shown = self._state.book.shown(account, payment)
        if account.shape is not None:
            return account.shape.made(shown, payment.details, payment.id, status)
        if shown["status"] == "declined":
            error = {"type": "card_error", "code": "card_declined", "message": "The card was declined."}
            return BankAnswer(402, encoded({"error": error, **shown}), {}, "replayed", payment.id)
        return BankAnswer(status, encoded(shown), {}, "replayed", payment.id)

    def _replayed(self, account: BankAccount, known: Remembered) -> BankAnswer:
        if account.replay is SecondRequest.CURRENT and known.payment is not None:
            payment = self._state.book.get(account, known.payment)
            assert payment is not None
            return self._own_answer(account, payment, 200)
        return BankAnswer(known.status, known.body.encode(), {"idempotent-replayed": "true"}, "replayed", known.payment)

    def _answered_lookup(self, order: BankOrder, account: BankAccount, shape: BankShape) -> BankAnswer:
        asked = shape.asked(order.incoming.target)
        last = order.path.rsplit("/", 1)[-1]
        lookup, words = asked or (BankLookup("", ("data", "0")), [last, *order.query.values()])
        found = self._state.book.carrying(account, words)
        if asked is None and last in {payment.id for payment in found}:
            lookup = BankLookup("")
        return answered(
            lookup, words, (shape.shown(self._state.book.shown(account, each), each.details) for each in found)
        )

    def _list(self, order: BankOrder, account: BankAccount) -> BankAnswer:
        query = order.query
        if unknown := set(query) - {"key", "reference", "since", "until", "limit", "after"}:
            return refusal(400, "unknown_parameter", f"Unknown: {', '.join(sorted(unknown))}.")
        if "key" in query and account.replay is SecondRequest.NONE:
            # A client would read an empty list as "absent", but this bank cannot know.
            return refusal(400, "unknown_parameter", "This account has no idempotency keys.")
        try:
            since, until = _moment(query.get("since", "0")), _moment(query.get("until", "inf"))
            limit = int(query.get("limit", LIMIT))
        except ValueError:
            return refusal(400, "invalid_parameter", "since and until are times, limit is a number.")
        if not 1 <= limit <= LIMIT_MAX:
            return refusal(400, "invalid_parameter", f"limit must be 1 to {LIMIT_MAX}.")
        found = self._state.book.find(account, key=query.get("key"), reference=query.get("reference"))
        found = [payment for payment in found if since <= payment.at < until]
        if "after" in query:
            places = [place for place, payment in enumerate(found) if payment.id == query["after"]]
            if not places:
                return refusal(400, "invalid_parameter", "after is not a payment of this list.")
            found = found[places[0] + 1 :]
        data = [self._state.book.shown(account, payment) for payment in found[:limit]]
        return BankAnswer(200, encoded({"object": "list", "data": data, "has_more": len(found) > limit}))


def _called_off() -> BankAnswer:
    return refusal(409, "payment_canceled", "The payment of this key was cancelled.")


def _wrong(order: BankOrder) -> BankAnswer | None:
    params: Any = order.params
    if params is None:
        return refusal(400, "invalid_json", "The body is not a JSON object.")
    amount, currency = params.get("amount"), params.get("currency")
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 1:
        return refusal(400, "invalid_amount", "amount must be a positive whole number of minor units.")
    if not isinstance(currency, str) or len(currency) != 3:
        return refusal(400, "invalid_currency", "currency must have three letters.")
    return _wrong_key(order)


def _wrong_key(order: BankOrder) -> BankAnswer | None:
    if order.key is not None and len(order.key) > KEY_MAX:
        return refusal(400, "invalid_idempotency_key", f"A key has at most {KEY_MAX} characters.")
    return None


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()
