"""Finds out whether the connection to the database is encrypted."""

import ipaddress
from typing import Any

from psycopg import AsyncConnection


def readable(connection: AsyncConnection[Any]) -> str | None:
    """The address of a server that this connection reaches without TLS over a network; None where that is not so."""
    if connection.pgconn.ssl_in_use:
        return None
    host = connection.info.hostaddr or connection.info.host
    if not host or host.startswith("/"):
        return None
    try:
        away = not ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        away = host != "localhost"
    return host if away else None


def how(connection: AsyncConnection[Any]) -> str:
    """How this connection is protected, for people."""
    if connection.pgconn.ssl_in_use:
        return "the connection to PostgreSQL is encrypted"
    return "the connection to PostgreSQL does not leave this machine"


WHAT = (
    "the connection to PostgreSQL at {host} is not encrypted: anyone on the network path can read passwords, "
    "params and answers"
)
DO = "Add ?sslmode=verify-full (or require) to the database's URL, and give the server a certificate"
