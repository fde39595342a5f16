"""A kind of pass that hangs is seen, however well all the other passes of its process do."""

import asyncio
import json
import signal
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest
from fix_desk import Desk
from fix_processes import started
from fix_waiting import until
from prometheus_client.parser import text_string_to_metric_families


def edit(file: Path) -> None:
    """Two lanes of one provider, whose limit is exact: who claims or takes there locks the lane's own row."""
    text = file.read_text()
    account, operation = text.index("accounts.keyed"), text.index('[operations."pay.keyed"]')
    first = text[account:operation].rstrip()
    second = first.replace("accounts.keyed", "accounts.eu")
    eu = text[operation:].replace("pay.keyed", "pay.eu").replace('account = "keyed"', 'account = "eu"')
    limits = "limits = { concurrency = 4, exact = true }"
    file.write_text(f"{text[:account]}{first}\n{second}\n{limits}\n\n{text[operation:]}\n{eu}")


@pytest.mark.parametrize(("kind", "name"), [("reconciler", "claim"), ("worker", "claim")])
async def test_ib_166_a_lane_that_hangs_is_named_beside_one_that_works(
    desk: Desk, configuration: Path, unused_tcp_port: int, kind: str, name: str
) -> None:  # fmt: skip
    """IB-166: a process that answers, has its database and makes other passes is no proof that each lane is served."""
    edit(configuration)
    # More than a pass takes on a busy machine, less than a test can wait.
    desk.environment["IDEM_DOCTOR_LAST_PASS"] = "3s"

    async def findings() -> list[str]:
        found = json.loads((await desk.cli("doctor", "--json")).out)["findings"]
        return [each["what"] for each in found if each["level"] == "error" and f"pass `{name}`" in each["what"]]

    async def named() -> bool:
        return any(f"the {kind} on " in each and "for lane keyed/keyed for " in each for each in await findings())

    async def healthy() -> bool:
        return not await findings()

    async def last(account: str) -> float:
        text = await asyncio.to_thread(lambda: urlopen(f"http://127.0.0.1:{unused_tcp_port}/metrics").read().decode())
        labels = {"daemon": kind, "pass": name, "provider": "keyed", "account": account}
        (found,) = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "idem_last_pass_timestamp_seconds" and sample.labels == labels
        ]
        return found

    # A reconciler claims in a lane only where something is due.
    await desk.unknown("k")
    with psycopg.connect(desk.spine.url) as other:
        other.execute("INSERT INTO idem.lanes (provider, account) VALUES ('keyed', 'keyed')")
        other.commit()
        other.execute("SELECT FROM idem.lanes WHERE (provider, account) = ('keyed', 'keyed') FOR UPDATE")
        async with started(kind, "run", "--metrics-port", str(unused_tcp_port), env=desk.environment) as daemon:
            await until(
                lambda: desk.spine.all(
                    "SELECT FROM idem.daemons WHERE kind = %(k)s AND last_pass_at IS NOT NULL", k=kind
                )
            )
            await until(named)
            stood, went = await last("keyed"), await last("eu")

            async def goes_on() -> bool:
                return await last("eu") > went

            await until(goes_on)
            assert await last("keyed") == stood
            other.rollback()
            await until(healthy)
            daemon.send_signal(signal.SIGTERM)
            await asyncio.wait_for(daemon.communicate(), 30)
    assert daemon.returncode == 0
