"""The problems that a client of the HTTP API can meet (RFC 9457): each code, its status, what it means, what to do.

`type` is `/problems/<code>`: a relative reference, so that a stored answer is the same bytes behind every host name.
The API shows a page there; docs/problems.md is made from this table too.
"""

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

_TABLE: Final = (
    ("unauthorized", 401, "The token is missing or wrong",
     f"Send `Authorization: Bearer <token>` with a token that `idem token create` showed. {NOTHING_HAPPENED}",
     "Correct the token first; the key can stay the same."),
    ("not_found", 404, "Not found",
     "The path, the operation or the intent does not exist, or the intent belongs to another account.",
     "Gets the same answer until it exists."),
    ("method_not_allowed", 405, "Method not allowed",
     "`Allow` lists the allowed methods.",
     "Gets the same answer."),
    ("framing_invalid", 400, "The end of the body is ambiguous",
     "The request has both Content-Length and Transfer-Encoding: a proxy between you and idem could read it as two "
     f"requests. idem closes the connection. {NOTHING_HAPPENED}",
     "Safe, with one of the two headers."),
    ("too_many_requests", 429, "Too many requests",
     "Your account sends more requests per second, or has more open requests at once, than its limits allow. "
     f"{NOTHING_HAPPENED}",
     "Safe after `Retry-After`."),
    ("too_many_keys", 429, "Too many new keys",
     "Your account creates new keys faster than its limit allows, or has reached its limit of unexpired keys. idem "
     f"still answers requests with a known key. {NOTHING_HAPPENED}",
     "Safe after `Retry-After`."),
    ("unsupported_media_type", 415, "The body must be JSON",
     f"Send `Content-Type: application/json`, without a content coding. {NOTHING_HAPPENED}",
     "Correct the request first; the key can stay the same."),
    ("key_missing", 400, "Idempotency-Key is missing",
     "Every request that causes an effect needs an `Idempotency-Key`: 1 to 255 visible ASCII characters, a new key "
     f"for each request and the same key for each retry of it. A UUID is a good key. {NOTHING_HAPPENED}",
     "Send it with a key. An earlier request without a key had no effect either."),
    ("key_invalid", 400, "Idempotency-Key is invalid",
     "A key is one value of 1 to 255 visible ASCII characters, bare or in double quotes (a String of RFC 9651, as "
     "draft-ietf-httpapi-idempotency-key-header-07 says; both spellings are the same key). Lists, parameters, a "
     f"header sent twice and other characters are refused. {NOTHING_HAPPENED}",
     "Correct the key first."),
    ("body_too_large", 413, "The body is too large",
     f"`detail` says how many bytes are allowed. {NOTHING_HAPPENED}",
     "Gets the same answer."),
    ("body_invalid", 400, "The body is not JSON that idem can store exactly",
     "The body has malformed JSON, NaN or Infinity, a duplicate member, a number that a double or PostgreSQL would "
     "change, a NUL, half a surrogate pair, or too many nested levels. `errors` has the JSON pointer (RFC 6901). "
     f"{NOTHING_HAPPENED}",
     "Correct the body first; the key can stay the same."),
    ("params_invalid", 422, "The operation refuses these params",
     "The body is JSON, but it does not match what this operation accepts. `errors` has the JSON pointers. "
     f"{NOTHING_HAPPENED}",
     "Correct the body first; the key can stay the same."),
    ("query_invalid", 400, "A query parameter is invalid",
     "`detail` names the parameter and the values that it accepts.",
     "Gets the same answer."),
    ("key_reused", 422, "Idempotency-Key is already used",
     'This key was used for other content, or, where the operation says `key_owner = "label"`, with a token of '
     "another label. The first request is unchanged, and this one did nothing. (With the profile `stripe` the "
     "status is 400.)",
     "Gets the same answer. Use a new key for a new request; send a retry with exactly the first content."),
    ("in_progress", 409, "A request is outstanding for this Idempotency-Key",
     "idem is still working on the first request with this key. Nothing was started a second time.",
     "Safe after `Retry-After`, with the same key, or with `Prefer: wait=N` to wait for the final answer."),
    ("outcome_unknown", 409, "The outcome of this request is unknown",
     "The call to the provider broke, and the provider may or may not have acted. idem is finding out what "
     "happened and does not send it again until it knows. `Retry-After` is the time of the next look-up.",
     "Safe after `Retry-After`, with the same key. A new key could make it happen twice."),
    ("needs_operator", 409, "This request waits for an operator",
     "No rule can decide what happened to it, or whether it may be sent; an operator sees it as a dead letter.",
     "Gets the same answer until the operator has decided. A new key could make it happen twice."),
    ("not_executed", 503, "It was not executed",
     "Nothing happened at the provider; this is proven. Nothing will happen until you retry. Of an operation of "
     "several steps this is about the open step: what `GET /v1/intents/{intent}` shows as succeeded is done. Where "
     "`detail` says that no worker makes this call now, the operation was removed or moved: a retry runs it once the "
     "operator has restored it.",
     "Runs it: the same key goes back to work."),
    ("key_expired", 410, "This Idempotency-Key has expired",
     "A request with this key was settled long ago, and its answer is no longer kept. This one did nothing.",
     "Gets the same answer while idem remembers the key. Read `GET /v1/intents/{intent}` before you use a new key: "
     "the first request may have done what you want."),
    ("cancelled", 409, "This request was cancelled",
     "The request was cancelled before anything was sent. A delayed duplicate of it does nothing either.",
     "Gets the same answer. Use a new key if you still want it."),
    ("rejected_by_operator", 403, "A person decided against this request",
     "The request waited for the approval of a person, who rejected it before anything was sent. This is the final "
     "answer for this key.",
     "Gets the same answer. A new key asks again."),
    ("not_cancellable", 409, "It cannot be cancelled now",
     "Only a request that was certainly not sent can be cancelled. `detail` shows its state.",
     "May succeed later, if the request returns to the queue."),
    ("provider_refused", 402, "The provider refused",
     "The provider refused the request; `provider_code` is the provider's own code. This is the final answer for "
     "this key.",
     "Gets the same answer. Use a new key to try again."),
    ("store_unavailable", 503, "The database cannot answer now",
     "Your request is either completely stored or not stored at all, and it is sent at most once.",
     "Safe after `Retry-After`, with the same key: it finds what was stored."),
    ("paused", 503, "New requests are paused",
     "The operator of this service has paused new requests for this operation. idem still answers requests with a "
     f"known key. {NOTHING_HAPPENED}",
     "Safe after `Retry-After`, with the same key."),
    ("internal_error", 500, "idem failed",
     "A bug in idem, or an error that it does not handle; see its log. Your request is either completely stored or "
     "not stored at all. idem never stores an answer like this one.",
     "Safe, with the same key."),
    ("webhook_unverified", 401, "The signature is not valid",
     "The webhook's signature or time stamp is wrong, or it is signed with a secret that is not in use.",
     "Gets the same answer."),
    ("webhook_unreadable", 400, "The event cannot be read",
     "The signature is valid, but the body is not an event of this provider.",
     "Gets the same answer."),
    ("webhook_not_configured", 503, "No secret can verify these webhooks",
     "No secret is configured, or the accounts that share this address have more secrets than idem tries for one "
     "event. `detail` says which. idem can verify nothing, so it accepts nothing.",
     "Is accepted once a secret is configured, or the events go to the account's own address."),
    ("too_many_bodies", 503, "Too many webhooks are arriving at once",
     "Bodies whose signature is not yet checked use all the memory that is set aside for them; this one had been "
     "arriving the longest, or others wait for their check. Nothing of it was stored.",
     "Safe after `Retry-After`."),
)  # fmt: skip

PROBLEMS: Final = {row[0]: Problem(*row) for row in _TABLE}
