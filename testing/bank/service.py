"""The path of a request through the bank: read, log, apply the fault, act, log, answer."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from idem.testing.bank.answers import BankAnswer, by_fault, refusal, unauthorized
from idem.testing.bank.control import Control
from idem.testing.bank.errors import SettingsError
from idem.testing.bank.faults import NO_FAULT, Acts, BankFault, chosen_by_rate, ordered_by_request
from idem.testing.bank.order import PREFIX, BankOrder, read_order
from idem.testing.bank.payments import Payments
from idem.testing.bank.records import Changed, EndedRequest, Payment, Received, Record, Voided
from idem.testing.bank.script import Event, Happening, ScriptStep
from idem.testing.bank.settings import BankAccount, BankApi
from idem.testing.bank.state import BankExecution, BankState
from idem.testing.bank.stripe.service import StripeService
from idem.testing.bank.webhooks import Webhooks
from idem.testing.bank.wire import Incoming, WireReply


class BankService:
    """Handles every request; the fault of each is chosen and logged before anything is done."""

    def __init__(self, state: BankState, webhooks: Webhooks, payments: Payments, stripe: StripeService) -> None:
        self._state = state
        self._webhooks = webhooks
        self._payments = payments
        self._stripe = stripe
        self._control = Control(state)
        self._sent: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self._numbers = itertools.count(1)

    def recall(self) -> None:
        """Continue counting where the log ends."""
        last = 0
        for record in self._state.ledger.records:
            if isinstance(record, Received):
                last = max(last, record.id)
                if record.complete and record.nth:
                    self._sent[_identity(record)] = record.nth
        self._numbers = itertools.count(last + 1)

    async def handle(self, incoming: Incoming) -> WireReply:
        """Handle a complete request and answer it."""
        order = read_order(incoming, self._state.settings)
        if self._state.settings.control and order.path.startswith(PREFIX):
            answer = self._control.handle(incoming.method, order.path, incoming.headers, order.params)
            return WireReply.of(answer)
        request = self._received(order)
        self._sent[_identity(request)] = request.nth
        step, refused = ScriptStep(), None
        if order.account is None:
            refused = unauthorized()
        else:
            try:
                step = self._choose(order, order.account, request)
            except SettingsError as error:
                refused = refusal(400, "bad_fault", str(error))
        if step.fault is not None:
            request = replace(request, fault=str(step.fault))
        self._state.ledger.write(request)
        await self._happened("received", request, step)
        await asyncio.sleep(self._state.settings.latency)
        answer = refused or await self._answer(order, request, step)
        return await self._reply(request, step, self._dressed(answer, request, order) if answer.own else answer)

    async def cut(self, incoming: Incoming) -> None:
        """Log an incomplete request; nothing else is done."""
        order = read_order(incoming, self._state.settings)
        self._state.ledger.write(replace(self._received(order), complete=False, nth=0))
        await self._state.ledger.sync()

    def _received(self, order: BankOrder) -> Received:
        request = Received(
            id=next(self._numbers),
            at=self._state.clock.now(),
            account=order.account.name if order.account else None,
            method=order.incoming.method,
            path=order.incoming.target,
            key=order.key,
            reference=order.reference,
            body_sha256=order.body_sha256,
            nth=0,
            fault=None,
            asks=order.asks,
        )
        return replace(request, nth=self._sent[_identity(request)] + 1)

    def _dressed(self, answer: BankAnswer, request: Received, order: BankOrder) -> BankAnswer:
        """The answer in the form of the account's API."""
        if self._speaks_stripe(order):
            return self._stripe.dressed(answer, request, order)
        if order.account is not None and order.account.shape is not None:
            answer = order.account.shape.dressed(answer)
        asked = self._state.settings.accounts if order.account is None else (order.account,)
        carried = next((each.answers_carry for each in asked if each.answers_carry is not None), None)
        return answer if carried is None else replace(answer, headers={**answer.headers, carried: f"req_{request.id}"})

    def _speaks_stripe(self, order: BankOrder) -> bool:
        """If no account has the token, the path shows whose API it was."""
        if order.account is not None:
            return order.account.api is BankApi.STRIPE
        return order.path.startswith("/v1/") and any(
            each.api is BankApi.STRIPE for each in self._state.settings.accounts
        )

    def _choose(self, order: BankOrder, account: BankAccount, request: Received) -> ScriptStep:
        """The fault that the request names, else the script's, else the rate's. A script's step is used up only if it
        is played.
        """
        if order.fault is not None:
            return ScriptStep(ordered_by_request(order.fault, request.nth))
        if (step := self._state.script.take(request)) is not None:
            return step
        settings = self._state.settings
        if request.method == "POST":
            faults, rate = settings.faults, account.fault_rate
            rate = settings.fault_rate if rate is None else rate
        else:
            faults, rate = settings.lookup_faults, settings.lookup_fault_rate
        return ScriptStep(chosen_by_rate(faults, rate, settings.seed, *_identity(request), request.nth))

    async def _answer(self, order: BankOrder, request: Received, step: ScriptStep) -> BankAnswer:
        plan = step.fault.plan if step.fault is not None else NO_FAULT
        if plan.acts is Acts.NEVER:
            # A dropped connection has no answer; this one is never sent.
            return by_fault(plan.answer or "503", step.fault.time if step.fault else None)

        async def acted(payment: Payment | None, more: Sequence[Changed | Voided]) -> None:
            await self._happened("acted", request, step, payment)
            records: Sequence[Record] = more or [each for each in [payment] if each]
            for record in records:
                self._webhooks.announce(record, step.webhook)

        assert order.account is not None
        api = self._stripe if order.account.api is BankApi.STRIPE else self._payments
        answer = await api.serve(BankExecution(order, order.account, request.id, step.fault, acted))
        if answer.status < 400 or answer.effect is not None:
            match plan.answer:
                case "500" if answer.status != 500:
                    return replace(by_fault("500", None), effect=answer.effect, payment=answer.payment)
                case "broken":
                    return replace(answer, body=answer.body[: len(answer.body) // 2])
        return answer

    async def _reply(self, request: Received, step: ScriptStep, answer: BankAnswer) -> WireReply:
        async def sent() -> None:
            await self._happened("answered", request, step, status=answer.status)

        fault: BankFault | None = step.fault
        delivery = fault.plan.delivery if fault is not None else NO_FAULT.delivery
        seconds = fault.time if fault is not None else None
        reply = WireReply.of(answer, delivery, seconds, sent)
        status = answer.status if reply.answers else None
        self._state.ledger.write(
            EndedRequest(request.id, self._state.clock.now(), status, answer.effect, answer.payment)
        )
        await self._state.ledger.sync()
        return reply

    async def _happened(
        self,
        event: Event,
        request: Received,
        step: ScriptStep,
        payment: Payment | None = None,
        status: int | None = None,
    ) -> None:
        happening = Happening(event, request, payment, status)
        await self._state.hooks.fire(happening)
        await step.play(happening)


def _identity(request: Received) -> tuple[str, ...]:
    """What makes two requests sendings of the same request: the key, else the reference, else the same bytes."""
    if request.method != "POST" or request.asks == "cancel":
        return (request.account or "", request.method, request.path)
    return (request.account or "", request.method, request.key or request.reference or request.body_sha256)
