"""No caller writes a time that makes a list unreadable: nothing outside the years 1 to 9999 is stored."""

from typing import Any

import psycopg
import pytest
from schema import shapes
from schema.databases import Installed

Connection = psycopg.Connection[Any]

RESERVE = "SELECT d.intent_id FROM idem.reserve('t', 'pay', 'k', 'v1:1', %(key_ttl)s, %(patience)s, false) AS d"
ACCEPT = """
SELECT d.decision FROM idem.accept('t', 'pay', 'k', 'v1:1', '{"amount": 1}', NULL, 'p', 'a', 'https://p.test',
    %(own)s, 'POST', '/', '{}', 'body', %(key_ttl)s, %(patience)s, 0, false, NULL) AS d
"""
SUBMIT = """
SELECT idem.submit(%(intent)s, 't', 'pay', 'k', '{"amount": 1}', NULL, 'p', 'a', 'https://p.test', %(own)s, 'POST',
    '/', '{}', 'body', %(patience)s, 0, false, NULL)
"""
COMPLETE = """
SELECT idem.complete(%(intent)s, 't', 'pay', 'k', '{"amount": 1}', NULL, 'local', 201::smallint, '{}', 'done',
                     %(answer_ttl)s)
"""
BEGIN_INLINE = """
SELECT (b.decided).decision FROM idem.begin_inline('t', 'pay', 'k', 'v1:1', '{"amount": 1}', NULL, 'p', 'a',
    'https://p.test', %(own)s, 'body', %(key_ttl)s, %(patience)s, false, NULL, gen_random_uuid(), 'w', %(lease)s) AS b
"""
USUAL = {"key_ttl": "72 h", "patience": "15 min", "answer_ttl": "24 h", "lease": "1 min"}
WAYS = [
    ("producer", "accept", "key_ttl"), ("producer", "accept", "patience"), ("producer", "reserve", "key_ttl"),
    ("producer", "reserve", "patience"), ("producer", "submit", "patience"), ("producer", "complete", "answer_ttl"),
    ("daemon", "begin_inline", "key_ttl"), ("daemon", "begin_inline", "patience"), ("daemon", "begin_inline", "lease"),
]  # fmt: skip


def call(connection: Connection, way: str, given: dict[str, Any]) -> None:
    given = given | {"own": shapes.derived(connection, "t", "pay", "k")}
    if way in ("accept", "begin_inline", "reserve"):
        connection.execute({"accept": ACCEPT, "begin_inline": BEGIN_INLINE, "reserve": RESERVE}[way], given)
        return
    (intent,) = connection.execute(RESERVE, given | {"key_ttl": "72 h", "patience": "1 h"}).fetchone() or (None,)
    connection.execute({"submit": SUBMIT, "complete": COMPLETE}[way], given | {"intent": intent})


@pytest.mark.parametrize("after", ["8000 years", "200000 years", "-3000 years", "infinity", "-infinity"])
@pytest.mark.parametrize(("role", "way", "which"), WAYS)
def test_a_time_outside_the_years_is_refused_with_its_name(
    rolled_back: Connection, pristine: Installed, role: str, way: str, which: str, after: str
) -> None:
    if "infinity" in after and rolled_back.info.server_version < 170000:
        pytest.skip("PostgreSQL before 17 has no infinite interval")
    rolled_back.execute(f"SET LOCAL ROLE {getattr(pristine, role)}")
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow, match=f"p_{which} is"):
        call(rolled_back, way, USUAL | {which: after})


@pytest.mark.parametrize(("role", "way"), sorted({(role, way) for role, way, _ in WAYS}))
def test_the_longest_time_of_a_setting_is_taken(
    rolled_back: Connection, pristine: Installed, role: str, way: str
) -> None:
    rolled_back.execute(f"SET LOCAL ROLE {getattr(pristine, role)}")
    call(rolled_back, way, dict.fromkeys(USUAL, "365000 days"))
