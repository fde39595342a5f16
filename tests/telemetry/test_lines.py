"""A value of a log line does not act on the terminal that shows it, whoever has sent it."""

import json

import pytest
import structlog

from idem.outbox.observe import logs

ACTING = ["\x1b[1A\x1b[2K", "\x1b[8m", "\x1b[?1049h", "\x9b2J", "a\nb", "\u202etxt", "\x1b]0;title\x07"]


@pytest.mark.parametrize("text", ACTING)
@pytest.mark.parametrize("as_json", [False, True], ids=["console", "json"])
def test_no_value_acts(text: str, as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(json=as_json)
    structlog.get_logger("idem").warning("an_event", tenant=text, many=[text], member={text: text})
    written = capsys.readouterr().err
    assert written.endswith("\n") and written.count("\n") == 1
    assert all(each.isprintable() for each in written[:-1].replace("\u202e", "") if not as_json), written.encode()
    if as_json:
        assert json.loads(written)["tenant"] == text
        assert not {"\x1b", "\x9b", "\x07"} & set(written)
