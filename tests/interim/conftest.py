"""A running API and a running endpoint over one bank that asks some customers to act."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fix_api import client
from fix_desk import Desk
from fix_spine import Spine
from fix_webhooks import Hooks, serving
from interim.shop import Shop, acting, use


@pytest.fixture
async def shop(spine: Spine, desk: Desk) -> AsyncIterator[Shop]:
    use(spine, acting(spine.catalogue))
    async with (
        client(spine) as api,
        serving(spine.url, spine.catalogue) as url,
        httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http,
    ):
        yield Shop(spine, api, Hooks(desk, url, http))
