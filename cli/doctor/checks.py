"""Runs the checks of the doctor: their order, and which checks to skip after which finding."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg

from idem.cli.base.application import VARIABLE
from idem.cli.base.failures import explain, state
from idem.cli.doctor import (
    accounts,
    clocks,
    connections,
    contracts,
    daemons,
    future_times,
    handlers,
    lanes,
    locks,
    objects,
    pooler,
    queue,
    replication,
    rights,
    schema,
    server,
    unsettled,
    vacuum,
    visibility,
    webhooks,
)
from idem.cli.doctor.examination import CHECK_TIMEOUT, CONNECT_TIMEOUT, Check, Examination, make
from idem.cli.doctor.findings import CheckResult, error, warning
from idem.outbox.config.doctor_settings import DoctorSettings
from idem.outbox.values.errors import ConfigError

FIRST = (
    Check("server", server.version, "database"),
    Check("row_security", visibility.hindered, "database"),
    Check("schema", schema.schema, "database"),
)
"""In this order; checks that need the schema run only if server and schema are in order."""

CHECKS = (
    Check("durability", server.durability, "database"),
    Check("timeouts", server.timeouts, "database"),
    Check("standby", replication.standbys, "database", needs_configuration=True),
    Check("connections", connections.connections, "database", needs_configuration=True),
    # It opens its own connections, and must not wait inside our transaction.
    Check("pooler", pooler.pooler, "way"),
    Check("encryption", visibility.encrypted, "database"),
    Check("clock", clocks.clocks, "database"),
    Check("contracts", contracts.contracts, "nothing", needs_configuration=True),
    Check("objects", objects.objects),
    Check("environment", schema.environment),
    Check("recovery", schema.recovery),
    Check("rights", rights.rights),
    Check("clock", clocks.clock_went_back),
    Check("clock", clocks.clock_jumped),
    Check("clock", future_times.times_ahead),
    Check("vacuum", vacuum.vacuum),
    Check("snapshot", vacuum.snapshots, "database"),
    Check("locks", locks.locks),
    Check("daemons", daemons.daemons),
    Check("queue", queue.ages),
    Check("order", queue.held_keys),
    Check("replay_window", queue.replay_windows),
    Check("paused", queue.paused),
    Check("unserved", queue.unserved, needs_configuration=True),
    Check("accounts", accounts.accounts),
    Check("refused", lanes.refused),
    Check("unasked", lanes.unasked),
    Check("proofs", unsettled.proofs),
    Check("dead_letters", unsettled.dead_letters),
    Check("orphans", unsettled.orphans),
    Check("handlers", handlers.handlers),
    Check("webhooks", webhooks.webhooks),
    Check("webhooks", webhooks.waiting),
)


async def round_of(config: Path | None, replicas: int) -> AsyncIterator[CheckResult]:
    """Yield every finding as it is made. Raises nothing: a check that cannot run is a finding too."""
    findings, examination = _begin(config, replicas)
    for finding in findings:
        yield finding
    if examination is None:
        return
    try:
        away = await _reach(examination)
        installed = False
        if away is not None:
            yield away
        else:
            for check in FIRST:
                found = await make(examination, check)
                installed = bool(found) and all(each.level == "ok" for each in found)
                for finding in found:
                    yield finding
                if check.make is visibility.hindered and not installed:
                    break  # if rows are hidden, every answer about them would be wrong
        for check in CHECKS:
            if check.needs_configuration and examination.configuration is None:
                continue
            if (check.needs == "schema" and not installed) or (check.needs != "nothing" and away is not None):
                continue
            for finding in await make(examination, check):
                yield finding
            # Reconnect after a lost connection; if that fails, stop, because each further check would wait as long.
            if away is None and examination.connection is None:
                away = await _reach(examination)
                if away is not None:
                    yield away
    finally:
        if examination.connection is not None:
            await examination.connection.close()


async def _reach(examination: Examination) -> CheckResult | None:
    if examination.silent > 1:
        return error(
            f"the database accepts connections but did not answer twice in {CHECK_TIMEOUT:g} s (its content was not "
            "checked further)",
            "Check what is in between: a pooler that is paused or waits for its server, a load balancer, a firewall. "
            "If it is the server itself, check its log and its disks",
            "database",
        )
    try:
        examination.connection = await examination.connect()
    except (psycopg.Error, OSError, TimeoutError) as failed:
        explained = explain(failed)
        if state(failed) == "3D000":
            return error(
                str(failed).strip(),
                "Correct the database's name in IDEM_DATABASE_URL (or [database] in idem.toml). If there is none yet: "
                "create it, then run `idem db upgrade`",
                "database",
            )
        what = explained[0] if explained and str(failed) else f"the database did not answer in {2 * CONNECT_TIMEOUT} s"
        return error(
            f"{what} (its content was not checked further)",
            "Is it running, and reachable from here? Check host and port in IDEM_DATABASE_URL, the network, and "
            "pg_hba.conf. Until it is back clients get 503 and idem sends nothing; the daemons then continue by "
            "themselves",
            "database",
        )
    return None


def _begin(config: Path | None, replicas: int) -> tuple[list[CheckResult], Examination | None]:
    from idem.cli.base import opening

    found, name = None, "configuration"
    if not opening.is_written(config) and not os.environ.get(VARIABLE):
        what = "there is no idem.toml here: providers, operations, standbys and pools were not checked"
        findings = [warning(what, "Run idem doctor where the daemons run, or give their file with -c", name)]
    else:
        findings = list(contracts.configuration(opening.findings(config)))
        try:
            found = opening.configuration(config)
        except ConfigError:
            what = "the configuration cannot be used, so checks that depend on it were skipped"
            findings.append(warning(what, "Correct the mistakes above, then run idem doctor again", name))
    try:
        address = opening.address(config, must_read=False)
    except ConfigError as wrong:
        problem = "; ".join(wrong.problems)
        findings.append(error(problem, "Correct it: nothing else can be checked without a database", "database"))
        return findings, None
    limits = DoctorSettings() if found is None else found.settings.doctor
    return findings, Examination(address, replicas, found, limits)
