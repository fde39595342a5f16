"""The problems that a client of the HTTP API can meet (RFC 9457): each code, its status, what it means, what to do.

`type` is `/problems/<code>`: a relative reference, so that a stored answer is the same bytes behind every host name.
The API shows a page there; docs/problems.md is made from this table too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TYPE_BASE: Final = "/problems/"

MEDIA_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of problem. `retry` says what the same request with the same key will do."""

    code: str
    status: int
    title: str
    meaning: str
    retry: str

    @property
    def type(self) -> str:
        """The URI reference that names this kind for ever."""
        return TYPE_BASE + self.code


NOTHING_HAPPENED: Final = "Nothing was written and nothing was sent."

_ALL: Final = (
    Problem(
        "unauthorized", 401, "The token is missing or wrong",
        f"Send `Authorization: Bearer <token>` with a token that `idem token create` showed. {NOTHING_HAPPENED}",
        "Correct the token first; the key can stay the same.",
    ),
    Problem(
        "not_found", 404, "There is no such thing here",
        "The path, the operation or the intent does not exist, or the intent belongs to somebody else.",
        "Will get the same answer until it exists.",
    ),
    Problem(
        "method_not_allowed", 405, "This method is not possible here",
        "`Allow` lists the methods that are.",
        "Will get the same answer.",
    ),
    Problem(
        "framing_invalid", 400, "It cannot be told where the body ends",
        "Content-Length and Transfer-Encoding were both sent: what stands between you and idem could see two requests "
        f"in it. The connection is closed. {NOTHING_HAPPENED}",
        "Safe, with one of the two headers.",
    ),
    Problem(
        "too_many_requests", 429, "Too many requests",
        "Your account sends more requests a second than it may, or has more under way at once. "
        f"{NOTHING_HAPPENED}",
        "Safe after `Retry-After`.",
    ),
    Problem(
        "too_many_keys", 429, "Too many new keys",
        "Your account makes new keys faster than it may, or holds as many unexpired ones as it may. Requests with a "
        f"known key are answered as ever. {NOTHING_HAPPENED}",
        "Safe after `Retry-After`.",
    ),
    Problem(
        "unsupported_media_type", 415, "The body must be JSON",
        f"Send `Content-Type: application/json`, without a content coding. {NOTHING_HAPPENED}",
        "Correct the request first; the key can stay the same.",
    ),
    Problem(
        "key_missing", 400, "Idempotency-Key is missing",
        "Every request that causes an effect needs an `Idempotency-Key`: 1 to 255 visible ASCII characters, new for "
        f"each wish and the same for each retry of it. A UUID is a good one. {NOTHING_HAPPENED}",
        "Send it with a key. If it was sent without one before, that one had no effect either.",
    ),
    Problem(
        "key_invalid", 400, "Idempotency-Key cannot be used",
        "A key is one value of 1 to 255 visible ASCII characters, bare or in double quotes (a String of RFC 9651, as "
        "draft-ietf-httpapi-idempotency-key-header-07 says; both spellings are the same key). Lists, parameters, a "
        f"header sent twice and other characters are refused. {NOTHING_HAPPENED}",
        "Correct the key first.",
    ),
    Problem(
        "body_too_large", 413, "The body is too large",
        f"`detail` says how many bytes are allowed. {NOTHING_HAPPENED}",
        "Will get the same answer.",
    ),
    Problem(
        "body_invalid", 400, "The body is not JSON that can be held exactly",
        "Malformed JSON, NaN or Infinity, a member that appears twice, a number that a double or PostgreSQL would "
        "change, a NUL, half a surrogate pair, or nested too deep. `errors` has the JSON pointer (RFC 6901). "
        f"{NOTHING_HAPPENED}",
        "Correct the body first; the key can stay the same.",
    ),
    Problem(
        "params_invalid", 422, "The operation refuses these params",
        "The body is JSON, but not what this operation takes. `errors` has the JSON pointers. "
        f"{NOTHING_HAPPENED}",
        "Correct the body first; the key can stay the same.",
    ),
    Problem(
        "query_invalid", 400, "A parameter of the query cannot be used",
        "`detail` names it, and what it may be.",
        "Will get the same answer.",
    ),
    Problem(
        "key_reused", 422, "Idempotency-Key is already used",
        "This key was used for other content, or, where the operation says `key_owner = \"label\"`, with a token of "
        "another label. The first request stands as it is, this one did nothing. (With the profile `stripe` the status "
        "is 400.)",
        "Will get the same answer. Use a new key for a new wish; send a retry with exactly the first content.",
    ),
    Problem(
        "in_progress", 409, "A request is outstanding for this Idempotency-Key",
        "The first request with this key is still being worked on. Nothing was started a second time.",
        "Safe after `Retry-After`, with the same key, or with `Prefer: wait=N` to be answered when it ends.",
    ),
    Problem(
        "outcome_unknown", 409, "Nobody knows yet what became of this request",
        "The call to the provider broke, and it may or may not have acted. It is being found out; until then nobody "
        "sends it again. `Retry-After` is the next look.",
        "Safe after `Retry-After`, with the same key. A new key could do it twice.",
    ),
    Problem(
        "needs_operator", 409, "This request waits for a person",
        "What became of it, or whether it may be sent, cannot be decided by rules; an operator sees it as a dead "
        "letter.",
        "Will get the same answer until they have decided. A new key could do it twice.",
    ),
    Problem(
        "not_executed", 503, "It was not executed",
        "It is proven that nothing happened, and nothing will without you. Where `detail` says that nothing makes this "
        "call now, the operation was removed or moved: it is done once its operator has brought it back.",
        "Does it: the same key goes back to work.",
    ),
    Problem(
        "key_expired", 410, "This Idempotency-Key has expired",
        "A request with this key ended long ago, and its answer is not kept any more. This one did nothing.",
        "Will get the same answer while the key is remembered. Look at `GET /v1/intents/{intent}` before you use a "
        "new key: the first request may have done what you want.",
    ),
    Problem(
        "cancelled", 409, "This request was cancelled",
        "It was cancelled before anything was sent. A delayed duplicate of it does nothing either.",
        "Will get the same answer. Use a new key if you want it after all.",
    ),
    Problem(
        "not_cancellable", 409, "It cannot be cancelled now",
        "Only what was certainly not sent can be cancelled. `detail` says where it stands.",
        "May be possible later, where it comes back to the queue.",
    ),
    Problem(
        "provider_refused", 402, "The provider refused",
        "The provider decided against it; `provider_code` is its own code. This is the final answer for this key.",
        "Will get the same answer. Use a new key for a new try.",
    ),
    Problem(
        "store_unavailable", 503, "The database cannot answer now",
        "Your request is either whole in the database or not there at all, and it is sent once at most.",
        "Safe after `Retry-After`, with the same key: it finds what there is.",
    ),
    Problem(
        "paused", 503, "New requests are paused",
        "The operator of this service takes no new requests for this operation now. Requests with a known key are "
        f"answered as ever. {NOTHING_HAPPENED}",
        "Safe after `Retry-After`, with the same key.",
    ),
    Problem(
        "internal_error", 500, "A fault of idem's own",
        "Something failed that never should; the log has it. Your request is either whole in the database or not "
        "there at all. Answers like this are never stored.",
        "Safe, with the same key.",
    ),
    Problem(
        "webhook_unverified", 401, "The signature does not fit",
        "A webhook whose signature or time stamp is not right, or that is signed with a secret that is not in use.",
        "Will get the same answer.",
    ),
    Problem(
        "webhook_unreadable", 400, "The event cannot be read",
        "The signature is right, but the body is no event of this provider.",
        "Will get the same answer.",
    ),
    Problem(
        "webhook_not_configured", 503, "No secret can be tried for these webhooks",
        "No secret is configured, or the accounts that share this address have more secrets than are tried for one "
        "event. `detail` says which. Nothing can be verified, so nothing is taken.",
        "Is taken once a secret is configured, or the events go to the account's own address.",
    ),
    Problem(
        "too_many_bodies", 503, "Too many webhooks are on their way at once",
        "Their bodies take all the memory there is for bodies whose signature is not checked yet; this one had been on "
        "its way the longest, or others wait for their check. Nothing of it was kept.",
        "Safe after `Retry-After`.",
    ),
)  # fmt: skip

PROBLEMS: Final = {problem.code: problem for problem in _ALL}
