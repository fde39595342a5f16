"""Credentials that are another account's: what the daemons found at their start, against what is stored."""

from __future__ import annotations

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import CheckResult, error, ok
from idem.cli.output import age

RECENT = 86400.0
"""Seconds: a daemon that still lives sees it again every minute."""

OTHERS = """
SELECT a.provider, a.account, a.origin, a.identity, a.seen_identity, a.seen_by, d.host, d.pid,
       extract(epoch FROM statement_timestamp() - a.seen_at)::float8 AS seen
  FROM idem.account_identities a LEFT JOIN idem.daemons d ON d.id = a.seen_by
 WHERE a.seen_identity <> a.identity AND a.seen_at > statement_timestamp() - %(recent)s * interval '1 s'
 ORDER BY 1, 2
"""


async def accounts(examination: Examination) -> list[CheckResult]:
    """Lanes that a process does not serve, because another account than at first has answered it."""
    found = examination.configuration
    findings = []
    for each in await examination.all(OTHERS, {"recent": RECENT}):
        provider, account = each["provider"], each["account"]
        if found is not None and (provider not in found.providers or account not in found.providers[provider].accounts):
            continue
        who = each["seen_by"] if each["host"] is None else f"{each['seen_by']} (host {each['host']}, pid {each['pid']})"
        findings.append(
            error(
                "accounts",
                f"lane {provider}/{account} is not served: its credentials are of account {each['seen_identity']}, and "
                f"{each['identity']} at {each['origin']} is stored (seen {age(each['seen'])} ago by {who})",
                f"Put the credentials of {each['identity']} back (providers.{provider}.accounts.{account}) and restart "
                "that process; swapped on purpose: give the new account a name of its own (docs/on-call.md)",
            )
        )
    return findings or [ok("accounts", "no process has met another account than the stored one")]
