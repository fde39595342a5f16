"""The address of the database: one libpq URL, from any of the accepted spellings.

Platforms, SQLAlchemy and asyncpg write the same database in different ways. A URL in a file is read anew for each
connection, because it holds a password that may have been changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, unquote

from idem.outbox.values.errors import ConfigError

VARIABLE: Final = "IDEM_DATABASE_URL"

SCHEMES: Final = ("postgresql", "postgres")

DROPPED: Final = frozenset(
    {
        "async_fallback",
        "command_timeout",
        "executemany_mode",
        "max_cacheable_statement_size",
        "max_cached_statement_lifetime",
        "prepare_threshold",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "statement_cache_size",
    }
)
"""How SQLAlchemy and asyncpg treat statements: nothing that decides which database is meant, or who may read along."""

MODES: Final = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"0", "false", "no", "off"})


class Address:
    """Where the database is. `source` is the setting that says so, for messages: they never hold the URL."""

    def __init__(self, url: str, *, source: str = VARIABLE, read: Callable[[], str] | None = None) -> None:
        self._url = libpq(url)
        self.source = source
        self._read = read

    @classmethod
    def of(cls, address: Address | str) -> Address:
        """The address of a URL."""
        return address if isinstance(address, Address) else cls(address)

    def __repr__(self) -> str:
        return f"Address(source={self.source!r})"

    @property
    def url(self) -> str:
        """The URL as it was last read; it may hold a password."""
        return self._url

    def now(self) -> str:
        """The URL for a connection that is made now. Raises OSError where it cannot be read."""
        if self._read is not None:
            try:
                self._url = libpq(self._read())
            except (ConfigError, ValueError) as error:
                raise OSError(f"{self.source}: {error}") from None
        return self._url


def libpq(url: str) -> str:
    """The URL in libpq's words: `postgresql://`, `sslmode`, hosts with commas. Raises ValueError, without the URL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in SCHEMES:
        raise ValueError("it is not a PostgreSQL URL: write postgresql://user@host:5432/name")
    base, _, query = rest.partition("?")
    hosts: list[str] = []
    kept: dict[str, str] = {}
    for name, value in _pairs(query):
        if name == "host":
            hosts.append(value)
        elif name not in DROPPED:
            kept.update([_translated(name, value)])
    if hosts:
        kept.update(_hosts(hosts, kept.get("port")))
    written = "&".join(f"{quote(name, safe='')}={quote(value, safe='/,')}" for name, value in kept.items())
    return f"postgresql://{base}" + (f"?{written}" if written else "")


def has_password(url: str) -> bool:
    """Whether this URL holds a password, in either of its places."""
    base, _, query = url.partition("://")[2].partition("?")
    user = base.partition("/")[0].rpartition("@")[0]
    return ":" in user or any(name in ("password", "sslpassword") for name, _ in _pairs(query))


def _pairs(query: str) -> Iterator[tuple[str, str]]:
    for pair in query.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            yield unquote(name), unquote(value)


def _translated(name: str, value: str) -> tuple[str, str]:
    if name == "ssl":
        mode = "require" if value.lower() in TRUE else "disable" if value.lower() in FALSE else value
        if mode not in MODES:
            raise ValueError(f"the parameter ssl is not one of {', '.join(sorted(MODES))}: write sslmode=require")
        return "sslmode", mode
    if name == "timeout":
        if not value.replace(".", "", 1).isdigit():
            raise ValueError("the parameter timeout is not a number of seconds: write connect_timeout=10")
        return "connect_timeout", str(max(1, int(float(value))))
    if name == "direct_tls":
        return "sslnegotiation", "direct" if value.lower() in TRUE else "postgres"
    return name, value


def _hosts(hosts: list[str], port: str | None) -> dict[str, str]:
    # SQLAlchemy writes host=one:5432&host=two:5432; libpq host=one,two&port=5432,5432.
    split = [host.rpartition(":") if _has_port(host) else (host, "", port or "") for host in hosts]
    found = {"host": ",".join(name for name, _, _ in split)}
    numbers = [number for _, _, number in split]
    if any(numbers):
        found["port"] = ",".join(number or "5432" for number in numbers) if len(numbers) > 1 else numbers[0]
    return found


def _has_port(host: str) -> bool:
    name, _, number = host.rpartition(":")
    return bool(name) and ":" not in name and "," not in host and number.isdigit()
