"""Look-ups: by id, key and reference, their lag, and the walk over the whole list."""

import time
from datetime import UTC, datetime

import pytest


def test_by_id_at_once_otherwise_after_the_lag(open_bank, pay, look, http):
    bank = open_bank(lookup_lag=0.4)
    made = pay(bank, "k", reference="r").json()
    assert http.get(f"{bank.url}/payments/{made['id']}").json() == made
    assert look(bank, reference="r") == look(bank, key="k") == look(bank) == []
    time.sleep(0.45)
    assert look(bank, reference="r") == look(bank, key="k") == look(bank) == [made]


def test_the_lag_passes_with_the_clock(open_bank, pay, look):
    bank = open_bank(lookup_lag=3600)
    pay(bank, "k")
    bank.shift_clock(3599)
    assert look(bank, key="k") == []
    bank.shift_clock(1)
    assert len(look(bank, key="k")) == 1


def test_what_is_not_there(bank, pay, look, http):
    pay(bank, "k", reference="r")
    assert look(bank, key="other") == look(bank, reference="other") == look(bank, key="k", reference="other") == []
    missing = http.get(f"{bank.url}/payments/pay_none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert http.get(f"{bank.url}/nowhere").status_code == 404
    assert http.delete(f"{bank.url}/payments").status_code == 405


def test_the_walk_sees_everything_once(bank, pay, http):
    ids = [pay(bank, f"k{n}", reference=f"r{n}").json()["id"] for n in range(7)]
    query: dict[str, object] = {"limit": 3, "since": 0}
    seen, pages = [], 0
    while True:
        page = http.get(f"{bank.url}/payments", params=query).json()
        seen += [payment["id"] for payment in page["data"]]
        pages += 1
        if not page["has_more"]:
            break
        query["after"] = seen[-1]
    assert (seen, pages) == (ids, 3)


def test_the_walk_is_bounded_by_time(bank, pay, look):
    first = pay(bank, "a").json()
    bank.shift_clock(100)
    second = pay(bank, "b").json()
    middle = first["created"] + 50
    assert look(bank, until=middle) == [first]
    assert look(bank, since=middle) == [second]
    assert look(bank, since=datetime.fromtimestamp(middle, UTC).isoformat()) == [second]
    assert look(bank, since=first["created"], until=second["created"]) == [first]


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "since=yesterday", "after=pay_none", "colour=red"])
def test_a_wrong_query_is_an_error_and_never_an_empty_list(open_bank, query, http):
    response = http.get(f"{open_bank().url}/payments?{query}")
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")


def test_the_log_tells_what_was_looked_up(bank, look):
    look(bank, key="k", reference="r")
    [request] = bank.log.requests
    assert (request.method, request.key, request.reference, request.status) == ("GET", "k", "r", 200)
    assert bank.log.sends() == []
