"""An accepted request carries the deployment tag of the installation that accepts it (hazard 40)."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from accept.shop import WRITTEN, Shop, empty
from fix_accept import Acceptor
from fix_database import ENVIRONMENT
from fix_spine import catalogue
from fix_sql import query

from idem.decisions import Accepted
from idem.errors import StoreUnavailable
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.provider import Provider
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.http import HttpProvider


def tagged(known: Catalogue, deployment: str) -> Mapping[str, Provider]:
    """The spine's providers, with the tag that a process of this environment would write."""
    found: dict[str, Provider] = {}
    for name, provider in known.providers.items():
        assert isinstance(provider, HttpProvider)
        tag = DeploymentTag(at="/metadata/deployment", key_at="/metadata/key")
        found[name] = replace(provider, tag=tag, contract=replace(provider.contract, deployment=deployment))
    return found


def shop_of(url: str, deployment: str) -> Shop:
    empty(url)
    known = catalogue("http://127.0.0.1:9")
    return Shop(url, Acceptor(known.operations, tagged(known, deployment)))


def test_hazard_40_what_is_frozen_carries_deployment_and_key(shop_url: str) -> None:
    assert isinstance(shop_of(shop_url, ENVIRONMENT).once(), Accepted)
    found = query(shop_url, "SELECT r.body, o.provider_key::text FROM idem.requests r, idem.outbox o")[0]
    assert found is not None
    assert json.loads(found[0])["metadata"] == {"deployment": ENVIRONMENT, "key": found[1]}


def test_hazard_40_an_application_of_another_environment_accepts_nothing(shop_url: str) -> None:
    """Its daemons do not start on this database; its accepts would write a tag that no daemon here looks for."""
    shop = shop_of(shop_url, "staging")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=f"'{ENVIRONMENT}'.*tagged 'staging': set IDEM_ENVIRONMENT"):
            shop.once()
    assert all(shop.counts()[f"idem.{table}"] == 0 for table in WRITTEN)
