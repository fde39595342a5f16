"""An operation defined in Python: its params are a type that pydantic knows, its request and answers are functions."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from idem.application import approving, flow, functions, recursive_types
from idem.outbox.config import Configuration, declared
from idem.outbox.config.consistency import check_call, check_memory, check_operation, check_together
from idem.outbox.config.findings import Findings
from idem.outbox.config.operation_settings import OperationSettings
from idem.outbox.config.source import SettingPath
from idem.outbox.domain.contract import LOCAL, ProviderRequest
from idem.outbox.domain.operation import Answer, FinalOutcome, OperationSpec
from idem.outbox.domain.outcomes import Pending
from idem.outbox.domain.provider import Provider
from idem.outbox.providers import local
from idem.outbox.providers.send import METHOD, SendProvider
from idem.outbox.values import durations, json_pointer, storable
from idem.outbox.values.errors import ConfigError, ParamsInvalid, Unrenderable

Answering: TypeAlias = Callable[[FinalOutcome], Answer] | Callable[[FinalOutcome, str], Answer]
MASKED = "*" * 10
"""What pydantic writes for a secret."""

LEASES = frozenset({"lease", "renew_for"})
"""Settings of inline operations, which are defined in Python alone."""
OF_THE_FILE = frozenset({"method", "path", "body", "headers", "params", "label", "answer"})
"""Settings of an operation in idem.toml for which Python has functions and types."""

ORDER = frozenset({"ordering_key", "ordering_group", "on_head_refused"})
"""Settings of operations whose calls a worker makes."""

TYPES: Mapping[str, type] = {
    "inline": bool,
    "short_ttl": bool,
    "two_persons": bool,
    "max_redrives": int,
    "answer_version": int,
}
"""Of which pydantic would take other values for the same."""


@dataclasses.dataclass(eq=False, repr=False)
class Definition:
    """What the code says about an operation; built anew where a provider moves."""

    name: str
    model: Any
    provider: str | None
    inline: bool
    request: Callable[[Any], Any] | None
    answer: Answering | None
    interim: Callable[[Pending], Any] | None
    label: Callable[[Any], str | None] | None
    approve: Callable[[Any], bool] | None
    rejected: Callable[[str], Answer] | Answer | None
    settings: Mapping[str, Any]
    steps: Sequence[flow.Step] = ()

    def __post_init__(self) -> None:
        try:
            self.adapter: TypeAdapter[Any] = TypeAdapter(Any if self.model is None else self.model)
        except PydanticUserError:
            raise ConfigError(
                f'operations."{self.name}": {self.model!r} is not a type that pydantic knows: give the type of the '
                "params, e.g. a BaseModel, or leave it out for JSON"
            ) from None
        self._check()

    def build(self, found: Configuration) -> OperationSpec:
        """The operation over the providers of a configuration. Raises ConfigError with every mistake."""
        settings, account = self._examine(found)
        known = found.providers[self.provider] if self.provider else local.LocalProvider()
        contract = known.contract
        template = declared.build(self.name, settings, account, contract)
        provider = self.provider or LOCAL
        changes: dict[str, Any] = {
            "provider": provider,
            "account": account if self.provider else LOCAL,
            "validate": self.validate,
            "request": self._requesting(known),
            "schema": self._schema(),
            "label": self._build_label,
            "interim": self.interim if self.interim is not None else template.interim,
            "approve": approving.approving(self) or template.approve,
            "rejected": approving.rejecting(self),
            "kind": "inline" if self.inline else "provider" if self.provider else "local",
        }
        if self.answer is not None:
            changes["answer"] = _answering(self.answer)
            changes["answer_statuses"] = ()
        if self.inline:
            # Only its caller can send it again.
            changes |= {"redrive": "none", "retry": "client"}
        changes |= {name: durations.parse(self.settings[name]) for name in LEASES & self.settings.keys()}
        built = dataclasses.replace(template, **changes)
        return flow.build(self, found, built) if self.steps else built

    def validate(self, params: Any) -> None:
        """Raises ParamsInvalid, with JSON pointers."""
        self.read(params)

    def read(self, params: Any) -> Any:
        """JSON params as the model. Raises ParamsInvalid."""
        try:
            return self.adapter.validate_json(json.dumps(params, ensure_ascii=False))
        except ValidationError as error:
            raise ParamsInvalid(
                [(json_pointer.render(each["loc"]), each["msg"]) for each in error.errors(include_url=False)]
            ) from None

    def written(self, params: Any) -> Any:
        """The model's value as JSON params, by the names that it is read by; what is JSON already stays.

        Raises Unrenderable for what cannot be written, and for a secret, of which only asterisks would be.
        """
        try:
            said = self.adapter.dump_python(params, mode="json", by_alias=True, round_trip=True, warnings=False)
        except ValueError as error:  # of pydantic, and of bytes that are no text
            raise Unrenderable(f"the params of {self.name} cannot be written as JSON: {error}") from error
        if f'"{MASKED}"' in json.dumps(said, default=str):
            raise Unrenderable(
                f"the params of {self.name} have a SecretStr or SecretBytes, of which {MASKED} would be kept and sent: "
                "params are stored, so give what may be (the provider's token for it, as text)"
            )
        return said

    def _requesting(self, provider: Provider) -> Callable[[Any], ProviderRequest]:
        request = self.request
        if isinstance(provider, SendProvider):
            # Its function gets the params, or the JSON that `request` makes of them.
            return lambda params: ProviderRequest(
                METHOD, f"/{self.name}", json=params if request is None else request(self.read(params))
            )
        if request is not None:
            return lambda params: self.checked(request(self.read(params)))
        if self.provider and not self.inline:
            raise ConfigError(
                f'operations."{self.name}": say how its request is made: '
                "request=lambda p: Request('POST', '/…', json=…)"
            )
        return self.no_request

    def checked(self, made: Any) -> ProviderRequest:
        """The request that the code has made. Raises ConfigError for anything else."""
        if not (isinstance(made, ProviderRequest) and isinstance(made.method, str) and isinstance(made.path, str)):
            raise ConfigError(
                f'operations."{self.name}": request= returned {type(made).__name__}, not a Request with a method and a '
                "path as text: return Request('POST', '/…', json=…)"
            )
        return made

    @staticmethod
    def no_request(params: Any) -> ProviderRequest:
        """In place of the request of an operation that makes no call of its own."""
        raise AssertionError("nothing is sent for this operation")

    def _build_label(self, params: Any) -> str | None:
        if self.label is None:
            return None
        try:
            made = self.label(self.read(params))
            return None if made is None else storable.text(made)
        except Exception:  # a label is for people; the effect does not depend on it
            return None

    def _schema(self) -> Mapping[str, Any]:
        try:
            return self.adapter.json_schema()
        except Exception:  # a type without a schema is still a type
            return {}

    def _check(self) -> None:
        where = f'operations."{self.name}"'
        if wrong := sorted(OF_THE_FILE & self.settings.keys()):
            raise ConfigError(
                f"{where}.{wrong[0]}: in Python, say request=, answer=, label= and the type of the params"
            )
        if self.steps:
            flow.check(self)
        functions.check(f"{where}: request=", self.request, "takes the params, and returns a Request", 1)
        functions.check(f"{where}: label=", self.label, "takes the params, and returns text or None", 1)
        functions.check(f"{where}: interim=", self.interim, "takes what is known of a pending call", 1)
        functions.check(f"{where}: answer=", self.answer, "takes the outcome, and the intent's id if it wants it", 1, 2)
        approving.check(self, where)
        for name, kind in TYPES.items():
            value = self.inline if name == "inline" else self.settings.get(name)
            if value is not None and type(value) is not kind:
                raise ConfigError(f"{where}.{name}: it is {value!r}, but must be of type {kind.__name__}")
        if self.provider == LOCAL:
            raise ConfigError(f"{where}.provider: {LOCAL!r} is a reserved name: leave provider out")
        if self.inline and self.request is not None:
            raise ConfigError(f"{where}: an inline operation is called by your own code: leave request= out")
        if not self.provider and self.request is not None:
            raise ConfigError(f"{where}: there is a request, but no provider to send it to: say provider=")
        if (self.inline or not (self.provider or self.steps)) and self.settings.get("key_owner", "tenant") != "tenant":
            raise ConfigError(
                f"{where}.key_owner: only keys that come over HTTP with a token have a label, and only operations with "
                "a provider are asked for there: leave key_owner out, and name the caller in the tenant or in the key"
            )
        if (self.inline or not (self.provider or self.steps)) and (named := sorted(ORDER & self.settings.keys())):
            raise ConfigError(
                f"{where}.{named[0]}: only calls that a worker makes have an order. "
                f"{'Your own code makes this call' if self.inline else 'No provider is called here'}: leave it out, "
                "and lock a row of your own while you make it"
            )

        if twice := recursive_types.forks(self._schema()):
            raise ConfigError(
                f"{where}: the type of the params has itself inside in a union of types that take the same values "
                f"({' and '.join(twice)}), so that a client's params are checked twice as long with each level. Tell "
                "the types apart with Field(discriminator=…)"
            )

    def _examine(self, found: Configuration) -> tuple[OperationSettings, str]:
        findings = Findings({}, {})
        at, known = ("operations", self.name), found.provider_settings
        said = {name: value for name, value in self.settings.items() if name not in LEASES}
        if self.approve is not None:
            said["approve"] = "always"  # the function takes its place
        if self.steps:
            # What completes the key is the flow's to say; a step says it of its own call.
            said.pop("completes_when", None)
        settings = self._settings(findings, at, {**said, "provider": self.provider or LOCAL, "path": "/"})
        account: str | None = LOCAL
        if self.provider:
            accounts = check_operation(findings, self.name, settings, known, known)
            account = None if accounts is None else accounts[0]
            check_together(findings, found.settings, known, {self.name: settings}, {self.name: settings})
        called = {step.provider for step, _ in flow.each_of(self.steps)}
        for provider in known.keys() & called:
            check_memory(findings, at, settings, known[provider].contract(provider), found.settings)
        if findings.errors:
            raise ConfigError(*map(str, findings.errors))
        return settings, account or ""

    def account_of(self, found: Configuration, step: flow.Step) -> str:
        """The account of a step's call. Raises ConfigError with what is wrong with its provider."""
        findings, at = Findings({}, {}), ("operations", self.name, "steps", step.name)
        said = {"provider": step.provider, "account": step.account, "completes_when": step.completes_when, "path": "/"}
        settings = self._settings(findings, at, said)
        account = check_call(findings, at, settings, found.provider_settings, found.provider_settings)
        if findings.errors:
            raise ConfigError(*map(str, findings.errors))
        return account or ""

    def _settings(self, findings: Findings, at: SettingPath, said: Mapping[str, Any]) -> OperationSettings:
        try:
            return OperationSettings.model_validate(said)
        except ValidationError as error:
            findings.invalid(OperationSettings, error, at)
            raise ConfigError(*map(str, findings.found)) from None


def _answering(answer: Answering) -> Callable[[FinalOutcome, str], Answer]:
    given: Callable[..., Answer] = answer
    takes_intent = len(inspect.signature(answer).parameters) > 1

    def answering(outcome: FinalOutcome, intent: str) -> Answer:
        return given(outcome, intent) if takes_intent else given(outcome)

    return answering


class Declared:
    """What stands in place of a `Definition` for an operation of idem.toml: its params are JSON."""

    def __init__(self, name: str, found: Configuration) -> None:
        self.name = name
        self._spec = found.operations[name]

    @property
    def steps(self) -> Sequence[OperationSpec]:
        """Of a flow: its steps."""
        return self._spec.steps

    def read(self, params: Any) -> Any:
        """The params, if the operation's JSON Schema takes them. Raises ParamsInvalid."""
        self._spec.validate(params)
        return params

    def written(self, params: Any) -> Any:
        """The params as they are."""
        return params
