"""`account_check` of a provider in idem.toml: the question whose account the credentials are. No I/O."""

from pydantic import field_validator

from idem.outbox.domain.contract import FrozenRequest, Response
from idem.outbox.providers import outcome_rules
from idem.outbox.providers import response as document
from idem.outbox.providers.reading import GET
from idem.outbox.providers.template import check_path
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.json_pointer import Tokens
from idem.outbox.values.settings_base import Pointer, Section


class AccountCheck(Section):
    """Asked at the start of worker and reconciler. Where another account answers than at first, nothing is called."""

    path: str
    """Path and query of a GET whose answer names the account of the credentials, e.g. /v1/account; no default."""
    at: Pointer
    """JSON pointer, inside its answer, to what names the account for good, e.g. "/id"; no default."""

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        try:
            check_path(value)
        except Unrenderable as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("at")
    @classmethod
    def _is_inside(cls, value: Tokens) -> Tokens:
        if not value:
            raise ValueError('the whole answer names no account: say where it stands, e.g. "/id"')
        return value

    def request(self) -> FrozenRequest:
        """The request; the credentials are added when it is sent."""
        return FrozenRequest("GET", self.path, GET, b"")

    def read(self, response: Response) -> str | None:
        """What names the account; None for an answer that does not say it. Never raises."""
        answer = document.read(response)
        return document.reference(answer.find(self.at)) if answer.status in outcome_rules.SUCCESS else None
