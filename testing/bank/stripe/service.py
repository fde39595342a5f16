"""The path of a request through a Stripe-like account: key, work, log, answer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from idem.testing.bank.answers import BankAnswer, by_fault, encoded
from idem.testing.bank.cache import CacheDecision
from idem.testing.bank.faults import Acts
from idem.testing.bank.order import FORM, BankOrder
from idem.testing.bank.payments import KEY_MAX
from idem.testing.bank.records import Changed, Payment, Received, Remembered
from idem.testing.bank.settings import BankAccount, SecondRequest
from idem.testing.bank.state import BankExecution, BankState
from idem.testing.bank.stripe import refusals
from idem.testing.bank.stripe.draft import Course, Draft
from idem.testing.bank.stripe.events import event, request_id
from idem.testing.bank.stripe.forms import form
from idem.testing.bank.stripe.reading import read
from idem.testing.bank.stripe.refusals import RETRY, StripeError
from idem.testing.bank.stripe.routes import write


class StripeService:
    """Serves accounts with `api="stripe"`."""

    def __init__(self, state: BankState) -> None:
        self._state = state
        self._payments: dict[tuple[str, str], Payment] = {}

    def remember(self, payment: Payment) -> None:
        """Restore one line of an earlier run."""
        self._payments[payment.account, payment.id] = payment

    def body(self, account: BankAccount, change: Changed) -> bytes | None:
        """The event of a change, as a webhook sends it; None if the change was voided."""
        return (
            encoded(event(self._state.register, account, change)) if self._state.register.is_current(change) else None
        )

    async def serve(self, work: BankExecution) -> BankAnswer:
        """Execute a request."""
        order, account = work.order, work.account
        try:
            if order.incoming.method in ("GET", "HEAD"):
                await self._state.stall(work.fault)
                return read(order, account, self._state.register, self._state.clock.now())
            return await self._write(work)
        except StripeError as refusal:
            return BankAnswer(refusal.status, refusal.body)

    def dressed(self, answer: BankAnswer, request: Received, order: BankOrder) -> BankAnswer:
        """The answer with the headers of every answer, and an error of the bank in Stripe's form."""
        answer = refusals.dressed(answer)
        version = "" if order.account is None else order.account.stripe.version
        headers = {
            "request-id": request_id(request.id),
            "stripe-version": order.incoming.headers.get("stripe-version", version),
            **({"idempotency-key": request.key} if request.key and request.method != "GET" else {}),
        }
        return replace(answer, headers={**headers, **answer.headers})

    async def _write(self, work: BankExecution) -> BankAnswer:
        order, account = work.order, work.account
        params, key = _params(order), order.key
        if key is not None and len(key) > KEY_MAX:
            raise StripeError.invalid(
                f"Idempotency keys must be {KEY_MAX} characters or less.", "idempotency_key_invalid"
            )
        if key is None or not work.keeps or order.incoming.method != "POST":
            return await self._execute(work, params)
        with self._state.cache.decided(account, key, order.fingerprint) as decided:
            match decided:
                case Remembered():
                    return self._replayed(account, decided)
                case CacheDecision.MISMATCH:
                    return refusals.mismatch(key)
                case CacheDecision.IN_FLIGHT | CacheDecision.CANCELED:
                    return refusals.in_flight()
                case CacheDecision.EXECUTE:
                    return await self._execute(work, params)

    async def _execute(self, work: BankExecution, params: Mapping[str, Any]) -> BankAnswer:
        order, account, plan = work.order, work.account, work.plan
        await self._state.stall(work.fault)
        now = self._state.clock.now()
        course = Course.of(work.fault, self._state.settings)
        draft = Draft(
            self._state.register, account, work.number, order.key, now + work.delay, course,
            automatic=plan.acts is Acts.ROLLS_FORWARD,
        )  # fmt: skip
        answer = by_fault("500", None)
        try:
            if plan.acts is not Acts.REMEMBERS:
                answer = write(draft, order.incoming.method, order.path, params)
        except StripeError as refusal:
            if not refusal.executed:
                raise
            answer = BankAnswer(refusal.status, refusal.body)
        if plan.answer == "500":
            answer = by_fault("500", None)
        answer = refusals.dressed(answer)
        if work.keeps and answer.status >= 400:
            answer = replace(answer, headers={**answer.headers, RETRY: "false"})
        payment = self._payment(order, params, draft, answer) if draft.is_new else None
        made = draft.made if draft.changes else None
        remembered = work.remembered(now, answer, made, draft.at) if work.keeps else None
        records = [*([payment] if payment else ()), *draft.changes, *([remembered] if remembered else ())]
        if records:
            # One write: no crash can come between the effect, its events and the answer for replays.
            self._state.ledger.write(*records)
            for change in draft.changes:
                # Before another request is executed: two concurrent refunds must not both find the money.
                self._state.register.add(change)
            await self._state.ledger.sync()
        if payment is not None:
            self.remember(payment)
        if remembered is not None:
            self._state.cache.remember(remembered)
        if not draft.changes:
            return answer
        known = self._payments.get((account.name, draft.made or ""))
        await work.acted(known, draft.changes)
        return replace(answer, effect="made", payment=draft.made)

    def _payment(self, order: BankOrder, params: Mapping[str, Any], draft: Draft, answer: BankAnswer) -> Payment:
        assert draft.made is not None
        shown = draft.view(draft.made)
        course = draft.ordered or Course()
        amount = shown.get("amount")
        return Payment(
            id=draft.made,
            at=draft.at,
            request=draft.request,
            account=draft.account.name,
            key=order.key,
            reference=order.reference,
            amount=amount if isinstance(amount, int) else 0,
            currency=str(shown.get("currency") or ""),
            status=str(shown.get("status") or "created"),
            becomes=course.becomes,
            settles_at=None if course.becomes is None else draft.at + course.seconds,
            fingerprint=order.fingerprint,
            answer_status=answer.status,
            answer_body=answer.body.decode(),
            details=dict(params),
        )

    def _replayed(self, account: BankAccount, remembered: Remembered) -> BankAnswer:
        if account.replay is SecondRequest.CURRENT and remembered.payment is not None:
            shown = self._state.register.get(account.name, remembered.payment, self._state.clock.now())
            return BankAnswer(200, encoded(shown or {}), {}, "replayed", remembered.payment)
        headers = {"idempotent-replayed": "true", "original-request": request_id(remembered.request)}
        if remembered.status >= 400:
            headers[RETRY] = "false"
        return BankAnswer(remembered.status, remembered.body.encode(), headers, "replayed", remembered.payment)


def _params(order: BankOrder) -> dict[str, Any]:
    body = order.incoming.body
    type = order.incoming.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and type != FORM:
        raise StripeError.invalid(f"Invalid content type {type!r}: this API takes {FORM}.")
    try:
        return form(body.decode())
    except ValueError as error:
        raise StripeError.invalid(f"{error}") from None
