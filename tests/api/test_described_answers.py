"""What the next owner found: settings that were not read, and a description that was not true."""

import json
import re
from pathlib import Path

import pytest
from fix_desk import Desk
from fix_processes import listening
from fix_spine import Spine
from fix_webhooks import FIRST

from idem.outbox.api import openapi
from idem.outbox.config.declared import _refused
from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.domain.problem_catalogue import MEDIA_TYPE
from idem.outcomes import Refused

WEBHOOK = """
[webhooks]
max_body = 1024

[providers.keyed.webhook]
key = "/data/idempotency_key"
secrets = [{ env = "HOOK" }]
"""


@pytest.fixture
def configured(desk: Desk, configuration: Path) -> Desk:
    """The desk's own file, with webhooks in it."""
    configuration.write_text(configuration.read_text() + WEBHOOK)
    desk.environment["HOOK"] = FIRST
    return desk


@pytest.mark.process
async def test_the_settings_of_webhooks_hold_in_api_run_too(configured: Desk) -> None:
    async with listening(configured.environment, "api") as (_, http, _):
        answer = await http.post("/webhooks/keyed", json={"long": "x" * 2000})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_a_stored_refusal_is_described_as_the_problem_that_it_is(spine: Spine) -> None:
    document = openapi.document(spine.catalogue, ApiSettings())
    assert MEDIA_TYPE in document["paths"]["/v1/intents/pay.keyed"]["post"]["responses"]["402"]["content"]


def test_a_refusal_without_words_has_a_detail_all_the_same() -> None:
    assert json.loads(_refused(Refused("p1", "declined", {}), "i1").body)["detail"]


@pytest.mark.parametrize("version", [None, 2])
def test_every_header_that_is_described_is_one_of_an_answer(spine: Spine, version: int | None) -> None:
    document = openapi.document(spine.know(answer_version=version), ApiSettings())
    named = set(re.findall(r'"#/components/headers/([^"]+)"', json.dumps(document["paths"])))
    assert named == set(document["components"]["headers"])
    assert ("Idempotent-Answer-Version" in named) == (version is not None)
    for status in ("409", "429", "503"):
        assert "Retry-After" in document["paths"]["/v1/intents/pay.keyed"]["post"]["responses"][status]["headers"]
