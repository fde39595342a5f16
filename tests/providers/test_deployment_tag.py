"""The deployment tag in every request, and in the objects that a provider shows (hazard 40)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from providers.fix_bank import bank

from idem.errors import Unrenderable
from idem.outbox.domain.contract import KeyRule, ProviderRequest
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.template import KEY_TEXT

KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
TAG = DeploymentTag(at="/metadata/idem_deployment", key_at="/metadata/idem_key")
TAGGED = bank(tag=TAG)
OURS = {"idem_deployment": "production", "idem_key": KEY}


def body(content: Any, tag: DeploymentTag = TAG, method: str = "POST") -> Any:
    frozen = bank(tag=tag).freeze(ProviderRequest(method, "/payments", content), KEY)
    return json.loads(frozen.body) if frozen.body else None


def test_hazard_40_every_body_carries_it_and_objects_on_the_way_are_made() -> None:
    assert body({"amount": 1}) == {"amount": 1, "metadata": OURS}
    assert body({"metadata": {"order": "7"}}) == {"metadata": {"order": "7", **OURS}}
    assert body(None) == {"metadata": OURS}
    assert body({}, DeploymentTag(at="/a/b/c")) == {"a": {"b": {"c": "production"}}}


def test_the_bytes_are_the_same_in_every_process_and_the_operations_own_are_not_touched() -> None:
    content = {"metadata": {"order": "7"}}
    request = ProviderRequest("POST", "/payments", content)
    again = bank(tag=DeploymentTag(at="/metadata/idem_deployment", key_at="/metadata/idem_key"))
    assert TAGGED.freeze(request, KEY) == again.freeze(request, KEY)
    assert content == {"metadata": {"order": "7"}}


def test_a_request_that_had_no_body_gets_one_but_no_delete_does() -> None:
    frozen = TAGGED.freeze(ProviderRequest("POST", "/payments/1/capture"), KEY)
    assert frozen.headers["content-type"] == "application/json"
    assert body(None, method="DELETE") is None
    assert body({"reason": "x"}, method="DELETE") == {"reason": "x", "metadata": OURS}


def test_it_stands_in_an_item_of_a_list_that_is_there() -> None:
    paypal = DeploymentTag(at="/purchase_units/0/custom_id")
    order = {"purchase_units": [{"amount": 1}, {"amount": 2}]}
    assert body(order, paypal) == {"purchase_units": [{"amount": 1, "custom_id": "production"}, {"amount": 2}]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"metadata": {"idem_deployment": "staging"}}, "writes another value there"),
        ({"metadata": {"idem_deployment": None}}, "writes another value there"),
        ({"metadata": {"idem_key": "mine"}}, "/metadata/idem_key"),
        ({"metadata": "text"}, "is not an object"),
        ({"metadata": None}, "is not an object"),
        ({"metadata": []}, "a list without such an item"),
        ([1], "a list without such an item"),
        ("text", "is not an object"),
    ],
)
def test_a_clash_with_the_operations_own_body_is_unrenderable(content: Any, why: str) -> None:
    with pytest.raises(Unrenderable, match=why) as refused:
        body(content)
    assert "change the body of the operation, or deployment_tag of its provider" in str(refused.value)


def test_what_the_operation_writes_there_may_be_the_same() -> None:
    assert body({"metadata": {"idem_key": KEY_TEXT, "idem_deployment": "production"}})["metadata"] == OURS


def test_the_key_as_a_member_and_the_tag_stand_side_by_side() -> None:
    contract = replace(TAGGED.contract, key=KeyRule("body", "idempotency_key"))
    frozen = bank(tag=TAG, contract=contract).freeze(ProviderRequest("POST", "/payments", {}), KEY)
    assert json.loads(frozen.body) == {"metadata": OURS, "idempotency_key": KEY}


def test_hazard_40_an_object_is_ours_only_by_our_tag() -> None:
    assert TAG.ours({"metadata": OURS}, "production") and TAG.key({"metadata": OURS}) == KEY
    for other in ({}, {"metadata": {}}, {"metadata": {"idem_deployment": "staging"}}, {"metadata": None}, [], None):
        assert not TAG.ours(other, "production")
        assert TAG.key(other) is None
    assert DeploymentTag(at="/a").key({"a": "production"}) is None
