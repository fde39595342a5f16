"""`operations.<name>` in idem.toml: a named effect, declared."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field, field_validator, model_validator

from idem.outbox.config.call_settings import CallSettings, Templated
from idem.outbox.config.schema_checks import check_schema
from idem.outbox.config.source import SettingPath
from idem.outbox.providers import template
from idem.outbox.providers.request_parts import check_settable
from idem.outbox.providers.template import Template
from idem.outbox.values import canonical, json_pointer
from idem.outbox.values.settings_base import Duration, Section

DAY = 86400.0


def _settable(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        check_settable(name, text)
    return value


AnswerHeaders: TypeAlias = Annotated[dict[str, str], AfterValidator(_settable)]
"""Headers of an answer of idem's own."""


class AnswerTemplate(Templated):
    """The answer to the client: rendered from the outcome, and never changed once it is stored."""

    OURS: ClassVar[frozenset[str]] = frozenset({"intent", "reference", "status", "state"})
    """The names under `idem.` that it may use; every other name is one of the outcome's fields."""

    status: int = Field(ge=200, le=499)
    """HTTP status of the answer; 5xx are never stored."""
    body: Any = None
    """JSON body with places {idem.intent}, {idem.reference}, {idem.status}, {idem.state} and the fields of the outcome,
    e.g. {amount?}; default null."""
    headers: AnswerHeaders = Field(default_factory=dict)
    """Headers of the answer, plain text; default content-type: application/json."""


class InterimTemplate(Templated):
    """The answer to the client while the provider has the object and has not finished it."""

    OURS: ClassVar[frozenset[str]] = frozenset({"reference", "status"})
    """The names under `idem.` that it may use: it stands in a message that names intent and state."""

    body: Any
    """JSON with places {idem.reference}, {idem.status} and the fields of the outcome, e.g. {redirect?}; it becomes the
    member interim of the 202."""


class RejectedTemplate(Templated):
    """The answer to the client of a request that a person has rejected, for ever."""

    OURS: ClassVar[frozenset[str]] = frozenset({"intent"})
    """The names under `idem.` that it may use: there is no outcome."""

    status: int = Field(ge=400, le=499)
    """HTTP status of the answer, 400 to 499."""
    body: Any = None
    """JSON body; {idem.intent} is the one place that it may have; default null."""
    headers: AnswerHeaders = Field(default_factory=dict)
    """Headers of the answer, plain text; default content-type: application/json."""

    @field_validator("body")
    @classmethod
    def _says_no_param(cls, value: Any) -> Any:
        for hole in Template.compile(canonical.plain_json(value), cls.OURS).holes():
            if hole.path[0] != template.OURS:
                raise ValueError(
                    f"{{{hole.name}}}: there is no outcome whose field it could be; only {{idem.intent}} is"
                )
        return value


class ApproveRule(Section):
    """Which calls need an approval, by one number of their params."""

    at: str
    """JSON pointer to the number, e.g. /amount. A call whose params have no number there needs an approval too."""
    above: int | float
    """What is greater needs an approval."""

    @field_validator("at")
    @classmethod
    def _is_pointer(cls, value: str) -> str:
        json_pointer.parse(value)
        return value

    @field_validator("above", mode="before")
    @classmethod
    def _is_number(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError("it must be a number, e.g. 100000")
        return value


class AnswerSettings(Section):
    """The answers of an operation; each default says intent, state, reference and the outcome's fields."""

    succeeded: AnswerTemplate | None = None
    """Answer where the effect exists; default 201 with intent, state, reference, result."""
    refused: AnswerTemplate | None = None
    """Answer where the provider refused; default 402 problem+json with its code."""
    rejected: RejectedTemplate | None = None
    """Answer where a person rejected the request (approve); default 403 problem+json."""
    interim: InterimTemplate | None = None
    """Interim answer while the end is to come (completes_when is final); default the provider's reference and
    status."""


class OperationTable(Section):
    """What an operation says beside its calls."""

    params: dict[str, Any] = Field(default_factory=dict)
    """JSON Schema (Draft 2020-12) of the params; default anything, which is asking for dead letters. Patterns have no
    look-around and no references back, and count to 1000 at most."""
    label: str | None = None
    """Text for people, from the params, e.g. "order {order}"; default none. No card data."""
    key_ttl: Duration = 3 * DAY
    """Seconds for which idem keeps a key after accept; default 72h, so that a client may retry over a weekend. At least
    24h."""
    short_ttl: bool = False
    """Whether key_ttl may be below 24h; default false: a late retry would be executed again."""
    answer_ttl: Duration = Field(default=DAY, gt=0)
    """Seconds for which idem keeps an answer after settling; default 24h."""
    answer_version: int | None = Field(default=None, ge=1, le=999_999_999)
    """Version of this operation's answers; raise it when clients must tell a new form from the old. It is stored with
    each answer and sent as Idempotent-Answer-Version; a replay keeps the one that it was stored with. Default none: no
    header."""
    start_within: Duration | None = Field(default=None, gt=0)
    """Seconds after the request within which the call may still begin; default give_up_after."""
    give_up_after: Duration = Field(default=DAY, gt=0)
    """Seconds after which a call that never began is given up and rests; default 24h."""
    redrive: Literal["auto", "none"] = "auto"
    """What follows a verdict "not executed": "auto" (default) sends it again, "none" not."""
    max_redrives: int = Field(default=5, ge=0)
    """Automatic redrives of one intent in its whole life; default 5."""
    retry: Literal["operator", "client"] = "operator"
    """Who takes up a call at rest: "operator" (default, a dead letter) or "client", which comes again."""
    while_running: Literal["conflict", "accepted"] = "conflict"
    """What the same request gets while the first one runs: "conflict" (default) 409, as the draft says, or "accepted"
    202."""
    after_expiry: Literal["new", "refuse"] = "new"
    """What an expired key is once its tombstone is gone: "new" (default), or "refuse": its tombstone stays for ever."""
    fingerprint_without: list[str] = Field(default_factory=list)
    """JSON pointers to members of the params that a retry may change, e.g. /client_time; they are left out of the
    fingerprint. Default none."""
    key_owner: Literal["tenant", "label"] = "tenant"
    """Whose a key is that came over HTTP: "tenant" (default): of all tokens of the tenant; "label": of the tokens with
    the same label as the one that sent it, and any other gets 422 key_reused."""
    ordering_key: str | None = None
    """JSON pointer to the member of the params that is the ordering key, e.g. /customer: a text of 1 to 255 characters,
    or a whole number. Intents with one tenant, ordering_group and ordering key run one at a time, in the order in which
    their accepts committed. An accept waits for open transactions that have accepted something of the same key. Default
    none: calls run side by side, unless Python or SQL gives a key with the request."""
    ordering_group: str | None = Field(default=None, min_length=1, max_length=255)
    """Name of the order; operations with the same one share it. Default the operation's own name."""
    on_head_refused: Literal["hold", "continue"] = "hold"
    """What a refusal of this operation does to those that wait behind it: "hold" (default), until an operator runs idem
    intents unblock, or "continue". It counts as it was when the request was accepted."""
    card_data: Literal["refuse", "allow"] = "refuse"
    """Whether params that look like a card number or its security code are refused: "refuse" (default), because they
    would be stored, or "allow". Send tokens of the provider instead."""
    approve: Literal["always"] | ApproveRule | None = None
    """Which calls a person must approve before they are sent (`idem intents approve`): "always", or a table, e.g.
    { at = "/amount", above = 100000 }; in Python also a function of the params. Default none."""
    two_persons: bool = False
    """Whether the one who asked may not approve it; default false. Who asked: the label of the token, `asked_by` in
    Python, the role in SQL."""
    answer: AnswerSettings = AnswerSettings()
    """What the client is told at the end."""

    @field_validator("approve", mode="before")
    @classmethod
    def _is_a_rule(cls, value: Any) -> Any:
        if value is not None and value != "always" and not (isinstance(value, dict) and set(value) == {"at", "above"}):
            wrong = (
                ", ".join(str(name) for name in value if name not in ("at", "above")) if isinstance(value, dict) else ""
            )
            not_ours = f"; {wrong} is none of it" if wrong else ""
            raise ValueError(f'it must be "always", or a table like {{ at = "/amount", above = 100000 }}{not_ours}')
        return value

    @property
    def calls(self) -> list[tuple[SettingPath, CallSettings]]:
        """Its calls, each with the path of its settings below the operation's; of a flow in the order of a plan."""
        raise NotImplementedError

    @field_validator("label")
    @classmethod
    def _is_text(cls, value: str | None) -> str | None:
        if value is not None:
            template.compile_text(value)
        return value

    @field_validator("fingerprint_without")
    @classmethod
    def _are_pointers(cls, value: list[str]) -> list[str]:
        for each in value:
            if not json_pointer.parse(each):
                raise ValueError("the whole body cannot be left out: every request would be the same")
        return value

    @field_validator("ordering_key")
    @classmethod
    def _is_member(cls, value: str | None) -> str | None:
        if value is not None and not json_pointer.parse(value):
            raise ValueError("the whole body is no ordering key: name one member of it, e.g. /customer")
        return value

    @field_validator("params")
    @classmethod
    def _is_schema(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_schema(canonical.plain_json(value))
        return value

    @model_validator(mode="after")
    def _approves_something(self) -> OperationTable:
        for name, said in (("answer.rejected", self.answer.rejected is not None), ("two_persons", self.two_persons)):
            if said and self.approve is None:
                raise ValueError(f"{name} is for an operation with approve: without it, no call waits for a person")
        return self

    @model_validator(mode="after")
    def _is_long_enough(self) -> OperationTable:
        if self.key_ttl < DAY and not self.short_ttl:
            raise ValueError(
                "key_ttl is shorter than 24h: a client's late retry would be executed anew. Say short_ttl = true if "
                "no client of this operation retries that late"
            )
        return self


class OperationSettings(OperationTable, CallSettings):
    """One named effect: the scope of a key is (tenant, operation)."""

    @property
    def calls(self) -> list[tuple[SettingPath, CallSettings]]:
        return [((), self)]
