"""Every command explains itself, with an example; and does so quickly."""

import os
import subprocess
import sys

import pytest
from fix_commands import ALL
from fix_desk import run

from idem.cli.base.help import GROUPS, LINES
from idem.cli.base.options import Config
from idem.testing.bank.faults import FaultName


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_has_an_example_that_begins_with_the_command(path: tuple[str, ...]) -> None:
    result = run([*path, "--help"], {})
    assert result.code == 0
    assert "Examples:" in result.out
    examples = result.out.split("Examples:")[1]
    assert " ".join(("idem", *path)) in examples
    assert "Traceback" not in result.err


@pytest.mark.parametrize("path", [path for path, command in ALL.items() if not hasattr(command, "commands")])
def test_every_option_says_what_it_does(path: tuple[str, ...]) -> None:
    silent = [option.name for option in ALL[path].params if not getattr(option, "help", "x")]
    assert silent == []


def test_the_help_of_the_bank_names_every_fault() -> None:
    words = run(["bank", "run", "--help"], {}).out.replace(",", " ").replace(".", " ").split()
    assert [fault for fault in FaultName if fault not in words] == []


def test_exit_codes_are_in_the_help() -> None:
    text = run(["--help"], {}).out
    assert all(f"  {code}  " in text for code in (0, 1, 2, 3))


@pytest.mark.quick
@pytest.mark.process
def test_help_loads_nothing_heavy() -> None:
    heavy = ("psycopg", "sqlalchemy", "alembic", "pydantic", "httpx", "rich", "prometheus_client", "structlog")
    code = (
        "import sys; from idem.cli.main import main; main(['--help']);"
        f"sys.stderr.write(repr([m for m in {heavy!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]"


def test_version_and_a_name_that_is_none() -> None:
    assert run(["--version"], {}).out.strip()
    wrong = run(["dlq", "lst"], {})
    assert wrong.code == 2
    assert "list" in wrong.err


def test_the_configuration_option_is_the_same_everywhere() -> None:
    assert Config.__args__[0] is not None  # type: ignore[attr-defined]
    without = {path for path, command in ALL.items() if not hasattr(command, "commands")} - {
        path for path, command in ALL.items() if any(option.name == "config" for option in command.params)
    }
    assert {" ".join(path) for path in without} <= {"bank run", "demo"}


def test_every_command_is_in_a_group_and_no_line_of_help_is_cut() -> None:
    """At 80 columns, on every page that lists commands."""
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert {path[0] for path in ALL if path} <= set(grouped)
    assert {" ".join(path) for path in ALL} >= LINES.keys(), "a line for a command that is not there"
    for path, command in ALL.items():
        if below := getattr(command, "commands", {}):
            width = 80 - 2 - 6 - max(len(name) for name in below)
            cut = [name for name, each in below.items() if each.get_short_help_str(width).endswith("...")]
            assert cut == [], f"{' '.join(path)}: shorten the first sentence, or give it a line in cli/base/help.py"
    first = run(["--help"], {}).out
    for title, names in GROUPS.items():
        section = first.partition(f"{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == [name for name in names if (name,) in ALL]


def complete(shell: str, **words: str) -> str:
    """What the shell is told when a person asks for more of what was typed."""
    program = "from idem.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "_IDEM_COMPLETE": f"complete_{shell}", **words},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    def asked(line: str) -> str:
        typed = line.split(" ")
        return complete(
            shell, COMP_WORDS=line, COMP_CWORD=str(len(typed) - 1), _TYPER_COMPLETE_ARGS=line,
            _TYPER_COMPLETE_FISH_ACTION="get-args", _TYPER_COMPLETE_WORD_TO_COMPLETE=typed[-1],
        )  # fmt: skip

    assert all(name in asked("idem d") for name in ("db", "dlq", "doctor"))
    assert all(name in asked("idem dlq r") for name in ("resolve", "redrive"))
    assert "--dry-run" in asked("idem reconcile --")
    shown = run(["--show-completion", shell], {})
    assert shown.code == 0
    assert "_IDEM_COMPLETE" in shown.out
