"""`idem db sync`: what SQL knows of the operations."""

import threading
from dataclasses import replace

import pytest
from fix_spine import Spine, catalogue, operation
from producers.application import Application, synced

VERSIONS = "SELECT name, version FROM idem.operations ORDER BY name"


def test_it_writes_what_is_new_says_what_changed_and_leaves_the_rest_alone(spine: Spine) -> None:
    application = Application(spine.url)
    assert [(s.name, s.version, s.what) for s in synced(spine.url, spine.catalogue)] == [
        ("pay.keyed", 1, "new"), ("pay.keyless", 1, "new"),
    ]  # fmt: skip
    before = application.rows("SELECT name, updated_at FROM idem.operations ORDER BY name")
    assert {s.what for s in synced(spine.url, spine.catalogue)} == {"unchanged"}
    assert application.rows("SELECT name, updated_at FROM idem.operations ORDER BY name") == before
    shorter = replace(spine.catalogue.operations["pay.keyed"], key_ttl=3600.0, start_within=60.0)
    [done] = synced(spine.url, replace(spine.catalogue, operations={"pay.keyed": shorter}))
    assert (done.version, done.what) == (2, "changed")
    assert done.changes == ("key_ttl: 259200.0 -> 3600.0", "patience: 86400.0 -> 60.0")
    assert application.rows(VERSIONS) == [("pay.keyed", 2), ("pay.keyless", 1)]


def test_what_it_wrote_is_what_accept_does(spine: Spine) -> None:
    application = Application(spine.url)
    synced(spine.url, spine.know(key_ttl=3600.0, start_within=60.0, after_expiry="refuse"))
    application.accepted()
    assert application.rows("SELECT expires_at - created_at < interval '1h 1s', refuse_after_expiry"
                            "  FROM idem.idempotency_keys") == [(True, True)]  # fmt: skip
    assert application.rows("SELECT start_before - available_at = interval '60 s' FROM idem.outbox") == [(True,)]


def test_another_address_moves_only_what_is_accepted_from_now_on(spine: Spine) -> None:
    application = Application(spine.url)
    synced(spine.url, spine.catalogue)
    application.accepted("a")
    changed = synced(spine.url, catalogue("https://elsewhere.test"))
    assert {change for s in changed for change in s.changes} == {
        f'origin: "{spine.bank.url}" -> "https://elsewhere.test"'
    }
    application.accepted("b")
    assert application.rows("SELECT origin FROM idem.outbox ORDER BY id") == [
        (spine.bank.url,), ("https://elsewhere.test",),
    ]  # fmt: skip


def test_of_an_operation_without_a_call_only_its_kind_is_known(spine: Spine) -> None:
    known = {"pay.local": operation("pay.local", "local", kind="local")}
    synced(spine.url, replace(spine.catalogue, operations=known))
    assert Application(spine.url).rows("SELECT settings FROM idem.operations") == [({"kind": "local"},)]


def test_starters_at_once_write_one_version(spine: Spine) -> None:
    barrier = threading.Barrier(4)
    said: list[str] = []

    def start() -> None:
        barrier.wait()
        said.extend(f"{s.name} {s.what}" for s in synced(spine.url, spine.catalogue))

    threads = [threading.Thread(target=start) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join(30) for thread in threads]
    assert sorted(said) == sorted(
        f"pay.{name} {what}" for name in ("keyed", "keyless") for what in ("new", *["unchanged"] * 3)
    )
    assert Application(spine.url).rows(VERSIONS) == [("pay.keyed", 1), ("pay.keyless", 1)]


def test_a_size_beyond_the_canonical_form_s_is_refused(spine: Spine) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        synced(spine.url, spine.catalogue, max_bytes=2**21)
