"""Reads jsonb. PostgreSQL writes it in one form, without spaces around it, so nothing has to be looked for first."""

import json
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format

VERSION: Final = 1
_scan: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class JsonbLoader(Loader):
    """A value in binary form: the version of the form, then the text."""

    format = Format.BINARY

    def load(self, data: Buffer) -> Any:
        if data[0] != VERSION:
            raise psycopg.DataError(f"unknown version of jsonb: {data[0]}")
        return _scan(str(data[1:], "utf-8"), 0)[0]
