"""The systemd units: valid, locked down as far as `systemd-analyze security` measures it, and all in the same way."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deploying.images import ROOT, not_here

UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
ROLES = {"idem", "idem-api", "idem-webhooks", "idem-worker@", "idem-sweeper", "idem-reconciler", "idem-migrate"}
MOST = 20
"""Tenths of the exposure, of 100, that a unit may have at most."""


@pytest.fixture
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit as it is when installed: the program exists, and a template has an instance."""
    if shutil.which("systemd-analyze") is None:
        not_here("systemd-analyze is not installed")
    program = Path(sys.executable).with_name("idem")
    path: Path = request.param
    copy = tmp_path / path.name.replace("@.", "@1.")
    copy.write_text(path.read_text().replace("/opt/idem/bin/idem", str(program)))
    return copy


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *map(str, words)], capture_output=True, text=True, timeout=60)


each = pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name, indirect=True)


@pytest.mark.process
@pytest.mark.quick
@each
def test_systemd_understands_every_line(unit: Path) -> None:
    done = analyze("verify", "--man=no", unit)
    # It only warns of settings that it does not know: exit code 0.
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
@pytest.mark.quick
@each
def test_a_unit_is_exposed_by_two_tenths_at_most(unit: Path) -> None:
    done = analyze("security", "--offline=yes", f"--threshold={MOST}", unit)
    assert done.returncode == 0, done.stdout
    [exposed] = re.findall(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(exposed) <= MOST / 10


@pytest.mark.process
@pytest.mark.quick
@pytest.mark.parametrize("unit", [ROOT / "deploy/systemd/idem.service"], indirect=True)
def test_both_checks_can_fail(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("ProtectHome=yes", "ProtectHomes=yes"))
    assert "ProtectHomes" in analyze("verify", "--man=no", unit).stderr
    unit.write_text(re.sub(r"(?m)^(Protect|Private|Restrict|SystemCall).*\n", "", unit.read_text()))
    assert analyze("security", "--offline=yes", f"--threshold={MOST}", unit).returncode == 1


def test_there_is_a_unit_for_each_role() -> None:
    assert {path.stem for path in UNITS} == ROLES


def test_all_units_are_locked_down_in_the_same_way() -> None:
    parts = {
        re.split(r"(?m)^# Nothing of this machine.*\n", path.read_text())[1].partition("\n\n")[0] for path in UNITS
    }
    assert len({part.strip() for part in parts}) == 1


def test_only_the_migration_has_the_owner() -> None:
    files = {path.stem: re.findall(r"^EnvironmentFile=(.*)$", path.read_text(), re.MULTILINE) for path in UNITS}
    assert files.pop("idem-migrate") == ["/etc/idem/owner.env"]
    assert set(map(tuple, files.values())) == {("/etc/idem/idem.env",)}


def test_metrics_ports_differ() -> None:
    texts = [path.read_text() for path in UNITS]
    ports = [port for text in texts for port in re.findall(r"--metrics-port (\S+)", text)]
    assert len(ports) == len(set(ports)) == 5
