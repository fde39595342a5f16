"""Asks a provider, page after page, and reads the answers. The lane makes the calls."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from idem.outbox.calls.call_end import CallEnd, Lost, NotSent, is_trouble
from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outbox.domain.outcomes import Absent, Ambiguous, CouldNotAsk, LookupOutcome, Outcome, Seen, Succeeded
from idem.outbox.domain.provider import Page, Provider, Question
from idem.outbox.providers.errors import retry_after
from idem.outbox.providers.reading import best
from idem.outbox.values import clock, threads

Ask: TypeAlias = Callable[[FrozenRequest], Awaitable[CallEnd]]
"""Makes one call under the lane's limits. A cancellation of the task does not get through it."""

AGAIN: Final = (0.5, 2.0)
"""Seconds before a page of a listing is asked for again: a walk of an hour must not end with one lost packet."""

LONGEST_WAIT: Final = 60.0
"""Seconds that a listing waits at the most because the provider said so; longer, and it has failed."""


class ListFailed(Exception):
    """The provider's list was not read to its end: what is not in the part that was seen proves nothing."""


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The result of a look-up. `reached`: whether the provider answers; None: nothing was learned about that."""

    lookup: LookupOutcome
    seen: Seen
    reached: bool | None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The result of a cancel. `outcome` and `trouble` are for the breaker: it was a write."""

    lookup: LookupOutcome
    seen: Seen
    outcome: Outcome
    trouble: bool = True


@dataclass(frozen=True, slots=True)
class Named:
    """The result of the question for the account. `account`: its identity; None: the provider did not name it."""

    account: str | None
    seen: Seen
    reached: bool | None


def task_cancelled() -> bool:
    """Whether this task was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def observed(seen: Seen, response: Response, elapsed: float) -> Seen:
    """What was seen, with what the lane knows of the response. `elapsed` in seconds."""
    cut = None if response.complete else "the body of the response is not complete"
    note = not_its_own(response) or seen.note or cut
    # Every call comes here: `replace` would take five times as long.
    return Seen(response.status, seen.error, note, seen.code, True, elapsed, seen.copies, seen.message, seen.body)


def not_its_own(response: Response) -> str | None:
    """Why the response is not the provider's own answer; None where it is, as far as the contract can show."""
    if response.kept_for is not None:
        return f"not a current answer of the provider: a cache has kept it for {response.kept_for} s (header Age)"
    if response.lacks is None:
        return None
    return f"not the provider's own answer: it lacks the header {response.lacks}"


async def ask(provider: Provider, question: Question, call: Ask) -> LookupResult:
    """Ask, best question first, until one is answered; of a list, as many pages as the provider needs.

    A page that fails, or that was there before, makes the whole question one that could not be asked.
    """
    result = LookupResult(CouldNotAsk(), Seen(note="no look-up is possible for this row"), None)
    for first in provider.questions(question):
        result = await _walk(provider, question, first, call)
        if not isinstance(result.lookup, CouldNotAsk) or not result.seen.started or task_cancelled():
            break
    return replace(result, reached=None) if task_cancelled() else result


async def _walk(provider: Provider, question: Question, first: FrozenRequest, call: Ask) -> LookupResult:
    result = LookupResult(Absent(), Seen(), None)
    asked: set[str] = set()
    request: FrozenRequest | None = first
    while request is not None:
        if request.path in asked:
            return LookupResult(CouldNotAsk(), Seen(note="the list is circular", started=True), True)
        if asked and task_cancelled():
            return LookupResult(CouldNotAsk(), Seen(note="the list was not read to the end", started=True), None)
        asked.add(request.path)
        began = clock.boottime()
        match await call(request):
            case Response() as response:
                elapsed = clock.boottime() - began
                read = partial(_read, provider, response, question, request)
                lookup, seen, request = await threads.read_to_the_end(response.body, read)
                result = _together(result, LookupResult(lookup, observed(seen, response, elapsed), response.reached))
            case NotSent() | Lost() as failed:
                return LookupResult(CouldNotAsk(), failed.seen, failed.reached)
    return result


def _read(
    provider: Provider, response: Response, question: Question, request: FrozenRequest
) -> tuple[LookupOutcome, Seen, FrozenRequest | None]:
    """What an answer says, and the request for the next page where one is needed."""
    try:
        lookup, seen = provider.read_lookup(response, question, request)
    except Exception as error:
        return CouldNotAsk(), Seen(error=type(error).__name__, note="the contract could not read the response"), None
    following = None if isinstance(lookup, CouldNotAsk) else provider.next_page(response, question, request)
    return lookup, seen, following


def _together(earlier: LookupResult, later: LookupResult) -> LookupResult:
    """Two pages of one list: what a later one shows of the same object is newer, and other objects are copies."""
    if isinstance(earlier.lookup, Absent | CouldNotAsk) or isinstance(later.lookup, CouldNotAsk):
        return later
    if isinstance(later.lookup, Absent):
        return replace(earlier, reached=later.reached)
    if later.lookup.reference == earlier.lookup.reference:
        return replace(later, seen=replace(later.seen, copies=max(earlier.seen.copies, later.seen.copies)))
    copies = max(earlier.seen.copies, 1) + max(later.seen.copies, 1)
    lookup, _ = best([(earlier.lookup, ""), (later.lookup, "")])
    return LookupResult(lookup, replace(later.seen, copies=copies), later.reached)


async def cancel(provider: Provider, question: Question, request: FrozenRequest, call: Ask) -> Cancelled:
    """Send the cancel of `Provider.cancel`, once."""
    began = clock.boottime()
    ended = await call(request)
    if not isinstance(ended, Response):
        return Cancelled(CouldNotAsk(), ended.seen, ended.outcome, is_trouble(ended))
    elapsed = clock.boottime() - began
    read = partial(_read_cancel, provider, ended, question)
    lookup, seen, outcome = await threads.read_to_the_end(ended.body, read)
    return Cancelled(lookup, observed(seen, ended, elapsed), outcome, is_trouble(ended))


def _read_cancel(provider: Provider, response: Response, question: Question) -> tuple[LookupOutcome, Seen, Outcome]:
    try:
        lookup, seen = provider.read_cancel(response, question)
        # It was an answer in every case; for the breaker it counts as a write's would.
        outcome = provider.classify(response)[0] if isinstance(lookup, CouldNotAsk) else Succeeded(None)
        return lookup, seen, outcome
    except Exception as error:
        unread = Seen(error=type(error).__name__, note="the contract could not read the response")
        return CouldNotAsk(), unread, Ambiguous()


async def whose(provider: Provider, call: Ask) -> Named:
    """Ask once for the account of the credentials."""
    request = provider.account_check()
    if request is None:
        return Named(None, Seen(note="this provider has no account_check"), None)
    began = clock.boottime()
    match await call(request):
        case Response() as response:
            elapsed, account = clock.boottime() - began, None
            if response.complete:
                account = await threads.read_to_the_end(response.body, partial(provider.read_account, response))
            note = None if account is not None else "the answer does not name an account"
            return Named(account, observed(Seen(note=note), response, elapsed), response.reached)
        case NotSent() | Lost() as failed:
            return Named(None, failed.seen, failed.reached)


async def listing(provider: Provider, since: float, until: float, call: Ask) -> AsyncIterator[Page]:
    """Every page of the provider's own list of what it made between two times (POSIX seconds), to its end.

    Raises ListFailed: it has none, a page failed, or it goes on and cannot be followed. CancelledError passes.
    """
    request = provider.listing(since, until)
    if request is None:
        raise ListFailed(
            f"provider {provider.contract.provider} cannot list everything that it made: write "
            f"[providers.{provider.contract.provider}.list] if the provider has such a list"
        )
    asked: set[str] = set()
    while request is not None:
        if request.path in asked:
            raise ListFailed(f"page {len(asked)} of the list leads back to an earlier one: check list.page")
        asked.add(request.path)
        page = await _page(provider, request, call, len(asked))
        yield page
        if page.broken:
            raise ListFailed(f"after page {len(asked)}: {page.broken}")
        request = page.following


async def _page(provider: Provider, request: FrozenRequest, call: Ask, number: int) -> Page:
    why = ""
    for pause in (*AGAIN, None):
        wait = pause
        match await call(request):
            case Response() as response:
                page = await threads.read(response.body, partial(provider.read_listing, response, request))
                if page is not None:
                    return page
                why = f"the answer (HTTP {response.status}) " + (
                    "does not contain a list" if (other := not_its_own(response)) is None else f"is {other}"
                )
                if response.complete and response.status != 429 and response.status < 500:
                    break
                wanted = retry_after(response.headers, provider.contract.retry_after_cap) or 0.0
                wait = None if pause is None or wanted > LONGEST_WAIT else max(pause, wanted)
            case NotSent(seen=seen) | Lost(seen=seen):
                why = seen.note or seen.error or "no answer came"
        if task_cancelled():
            raise asyncio.CancelledError
        if wait is None:
            break
        await asyncio.sleep(wait)
    raise ListFailed(f"page {number} of the list could not be read: {why}")
