"""The contract of a provider that is a function: what it may say, and what a process without the function does."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from sending.box import OPERATION, Box, idem_of
from sending.conftest import Office

from idem import ConfigError, Idem
from idem.outbox.config import explain
from idem.outbox.worker.worker import Worker


def test_a_table_cannot_name_a_function(tmp_path: Path) -> None:
    path = tmp_path / "idem.toml"
    path.write_text('environment = "test"\n[providers.mail]\nkind = "send"\non_unsettleable = "operator"\n')
    (finding,) = [str(each) for each in explain(path, {}) if each.level == "error"]
    assert "providers.mail" in finding and "idem.provider(" in finding and "--app" in finding


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"encoding": "form"}, "encoding belongs to HTTP"),
        ({"outcome": []}, "outcome belongs to HTTP"),
        ({"webhook": {}}, "webhook belongs to HTTP"),
        ({"accounts": {"main": {"origin": "https://mail.example"}}}, "an account is a name alone"),
        ({"accounts": []}, "accounts are names"),
        ({"key": {"carrier": "header"}}, "key.carrier belongs to HTTP"),
        ({"lookup": {"horizon": "1m"}}, "lookup.by_key is the function"),
        ({"lookup": {"by_key": print, "by_id": "x"}}, "lookup.by_id belongs to HTTP"),
        ({"key": {"replay": "stored"}}, "how long the provider remembers a key"),
        ({"on_unsettleable": "assume_done"}, "value is at risk"),
        ({"deadline": "1h"}, "its lease ends"),
        ({"deadlin": "1s"}, "Did you mean deadline"),
        ({"send": "shop:send"}, "must be a function"),
    ],
    ids=str,
)
def test_mistakes_are_told(tmp_path: Path, settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word.replace(".", r"\.")):
        idem_of(tmp_path / "idem.toml", settings.pop("send", print), **settings)


def test_how_it_settles_must_be_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="on_unsettleable"):
        Idem(env={}).provider("mail", send=print)


def test_what_follows_from_the_words(tmp_path: Path) -> None:
    plain = idem_of(tmp_path / "a.toml", print).providers["mail"].contract
    keyed = idem_of(tmp_path / "b.toml", print, key={"replay": "stored", "retention": "24h"}, lookup=print)
    assert (plain.start_mark, plain.replays, plain.lookup.possible) == (True, False, False)
    contract = keyed.providers["mail"].contract
    assert (contract.start_mark, contract.replays, contract.lookup.possible) == (False, True, True)
    assert contract.key.carrier == "argument"


async def test_a_worker_without_the_code_leaves_the_row_alone(office: Office, box: Box) -> None:
    post = office(box.post)
    intent = post.accepted(operation=OPERATION)
    strange = Worker(post.database, dataclasses.replace(post.catalogue, operations={}, providers={}), post.settings)
    assert (await strange.run_once()).claimed == 0
    await strange.close()
    await post.expect(intent, status="pending", attempt=0)
    await post.work()
    assert len(box.mails) == 1


def test_a_function_is_not_pointed_at_another_address(tmp_path: Path) -> None:
    idem = idem_of(tmp_path / "idem.toml", print)
    with pytest.raises(ConfigError, match="replace it in the test"), idem.pointed_at("mail", "http://127.0.0.1:9"):
        pass
