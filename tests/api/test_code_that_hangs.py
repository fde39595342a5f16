"""Code of an operation in Python that hangs, or ends its process, while it looks at a request."""

import asyncio
import threading
from typing import Any

import pytest
from fix_api import client
from fix_spine import Spine

from idem.outbox.api import request

PATH = "/v1/intents/pay.own"


async def test_code_that_hangs_keeps_no_other_request_waiting(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "TIME_LIMIT", 1.0)
    forever = threading.Event()

    def approve(params: Any) -> bool:
        forever.wait()
        return False

    spine.know("pay.own", approve=approve)
    try:
        async with client(spine) as api:
            hanging = [asyncio.create_task(api.ask(f"h{n}", path=PATH)) for n in range(6)]
            await asyncio.sleep(0.1)
            assert (await api.http.get("/healthz")).status_code == 200
            assert (await api.ask("other")).status_code == 202
            answers = await asyncio.gather(*hanging)
    finally:
        forever.set()
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(500, "internal_error")}
    assert "Nothing was accepted" in answers[0].json()["detail"]
    assert await spine.value("SELECT count(*) FROM idem.intents") == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
async def test_code_that_ends_its_process_is_a_problem_of_that_request(spine: Spine, error: BaseException) -> None:
    def approve(params: Any) -> bool:
        raise error

    spine.know("pay.own", approve=approve)
    async with client(spine) as api:
        answer = await api.ask("k1", path=PATH)
        assert answer.status_code in (422, 500) and answer.json()["code"] in ("params_invalid", "internal_error")
        assert (await api.ask("other")).status_code == 202
