"""The whole path on a PostgreSQL in a container that is killed and started again in the middle (testcontainers).

It runs where Docker runs (`DOCKER_HOST` names another daemon), and is skipped with the reason elsewhere;
IDEM_PROVE_ALL=1 makes that a failure.
"""

import json
from pathlib import Path

import fix_container
import fix_database
import fix_spine

from idem.decisions import Replay, Unknown
from idem.migrations import runner


async def test_an_unknown_call_is_settled_after_its_database_was_killed(tmp_path: Path) -> None:
    with fix_container.container() as server:
        url = fix_container.make_database(server.url, "idem")
        runner.upgrade(url, environment=fix_database.ENVIRONMENT)
        async with fix_database.connected(url) as database, fix_spine.standing(database, url, tmp_path) as spine:
            intent = await spine.sent(faults=["act_then_drop"])
            waiting = spine.accepted("k2")
            assert (await spine.row(intent))["status"] == "unknown"
            server.crash()
            assert isinstance(spine.accept(), Unknown)
            done = await spine.reconcile(after=10)
            assert dict(done.settled) == {"replay:succeeded": 1}
            replay = spine.accept()
            assert isinstance(replay, Replay) and json.loads(replay.answer.body)["intent"] == str(intent)
            # What was accepted before the crash, too.
            assert dict((await spine.work()).fates) == {"settled": 1}
            assert (await spine.key(waiting))["state"] == "completed"
            assert spine.effects() == 2
            assert await spine.letters(intent) == []
