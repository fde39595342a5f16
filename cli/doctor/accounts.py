"""Credentials of the wrong account: what the daemons found at their start, compared with what is stored."""

from idem.cli.base.output import age
from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Findings, error, ok

RECENT = 86400.0
"""In seconds; a running daemon reports it again every minute."""

OTHERS = """
SELECT a.provider, a.account, a.origin, a.identity, a.seen_identity, a.seen_by, d.host, d.pid,
       extract(epoch FROM statement_timestamp() - a.seen_at)::float8 AS seen
  FROM idem.account_identities a LEFT JOIN idem.daemons d ON d.id = a.seen_by
 WHERE a.seen_identity <> a.identity AND a.seen_at > statement_timestamp() - %(recent)s * interval '1 s'
 ORDER BY 1, 2
"""


async def accounts(examination: Examination) -> Findings:
    """Lanes that a process does not serve, because its credentials belong to another account than the stored one."""
    found = examination.configuration
    for each in await examination.all(OTHERS, {"recent": RECENT}):
        provider, account = each["provider"], each["account"]
        if found is not None and (provider not in found.providers or account not in found.providers[provider].accounts):
            continue
        who = each["seen_by"] if each["host"] is None else f"{each['seen_by']} (host {each['host']}, pid {each['pid']})"
        yield error(
            f"lane {provider}/{account} is not served: its credentials belong to account {each['seen_identity']}, "
            f"but {each['identity']} at {each['origin']} is stored (seen {age(each['seen'])} ago by {who})",
            f"Restore the credentials of {each['identity']} (providers.{provider}.accounts.{account}) and restart "
            "that process. If you swapped them on purpose, give the new account its own name (docs/on-call.md)",
        )
    yield ok("every process has the credentials of the stored account")
