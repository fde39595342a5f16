"""A database behind a pooler."""

from urllib.parse import urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict


def through(url: str, port: int) -> str:
    user = conninfo_to_dict(url).get("user", "")
    return urlunsplit(urlsplit(url)._replace(netloc=f"{user}@127.0.0.1:{port}", query="sslmode=disable"))
