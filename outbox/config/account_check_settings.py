"""`account_check` of a provider in idem.toml: how the daemons ask whose account their credentials are."""

from __future__ import annotations

from pydantic import Field, field_validator

from idem.outbox.config.outcome_settings import Pointer
from idem.outbox.config.section import Section
from idem.outbox.providers.account_question import AccountQuestion
from idem.outbox.providers.template import check_path
from idem.outbox.values import json_pointer
from idem.outbox.values.errors import Unrenderable


class AccountCheckSettings(Section):
    """Asked at the start of worker and reconciler. Where another account answers than at first, nothing is called."""

    path: str = Field(
        description="Path and query of a GET whose answer names the account of the credentials, as /v1/account; no "
        "default."
    )
    at: Pointer = Field(
        description='JSON pointer, inside its answer, to what names the account for good, as "/id"; no default.'
    )

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
    def _is_inside(cls, value: str) -> str:
        if not value:
            raise ValueError('the whole answer names no account: say where it stands, as "/id"')
        return value

    def build(self) -> AccountQuestion:
        return AccountQuestion(self.path, json_pointer.parse(self.at))
