"""`make bench` without its peers: the page that it writes, and what a peer that cannot be installed does to it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

PEERS = Path(__file__).parent.parent / "bench_peers"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules stand alone: they are run as a folder."""
    monkeypatch.syspath_prepend(str(PEERS))
    for name in ("page", "peers", "environments"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def found(**more: Any) -> dict[str, Any]:
    about = dict.fromkeys(
        ("idem", "python", "psycopg", "client", "cores", "postgresql", "fsync", "synchronous_commit", "shared_buffers"),
        "x",
    )
    ours = {"drain.rate": 1000.0, "drain.cpu": 100.0, "drain.postgresql": 50.0, "drain.wal": 4000.0}
    return {
        "about": {**about, "repeat": "3", "scale": "1"},
        "load": [0.1, 2.0],
        "versions": {"pgqueuer": "1.6.0"},
        "missing": {"dbos": "no such | package"},
        "medians": {
            "idem": {**ours, "latency.p50": 2.0, "latency.p99": 9.0},
            "floor": {**ours, "drain.rate": 4000.0},
            "pgqueuer": {**ours, "drain.rate": 2000.0},
        },
        **more,
    }


def test_the_page_compares_and_says_what_is_missing() -> None:
    import page

    lines = page.text(found()).splitlines()
    assert "| floor | 4,000 | 100 | 50 | 4,000 | 0.25 |" in lines
    assert "| idem | 1,000 | 100 | 50 | 4,000 |  |" in lines
    assert "| pgqueuer | 2,000 | 100 | 50 | 4,000 | 0.50 |" in lines
    assert "| idem | 2.0 | 9.0 |" in lines
    (missing,) = (line for line in lines if line.startswith("| dbos"))
    assert "not measured here: no such / package" in missing


def test_the_page_tells_of_each_peer_what_it_lacks() -> None:
    import page
    from peers import PEERS as peers

    text = page.text(found())
    assert {peer.name for peer in peers} == {"pgqueuer", "procrastinate", "dbos", "graphile-worker", "pg-boss"}
    for peer in peers:
        assert peer.lacks in text and peer.writes in text
        assert (PEERS / peer.driver).exists()


def test_a_reason_names_no_address_and_no_path() -> None:
    import environments

    said = "WARNING: Location 'file:///opt/x' is ignored\nERROR: No match for x in https://index.test/x (/home/me)\nbye"
    assert environments.reason(said) == "ERROR: No match for x in … (…"
    assert environments.reason("") == "it said nothing"
    assert environments.reason("pgqueuer failed: no such table") == "pgqueuer failed: no such table"


@pytest.mark.process
def test_a_peer_that_cannot_be_installed_has_a_reason_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import environments
    import peers

    monkeypatch.setattr(peers, "HOME", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    none = replace(peers.PEERS[0], packages=("idem-has-no-such-peer",))
    assert "idem-has-no-such-peer" in str(environments.prepare(none))
    assert not (none.folder / ".installed").exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "npm" in str(environments.prepare(replace(peers.PEERS[-1], name="node-peer")))
