"""Creates a cluster, all or nothing."""

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from idem.testing.embedded.account import ServerAccount
from idem.testing.embedded.binaries import ENVIRONMENT
from idem.testing.embedded.errors import EmbeddedError
from idem.testing.embedded.orphans import dies_with

SUPERUSER = "postgres"
ROLE = "idem"
DATABASE = "idem"


@dataclass(frozen=True)
class Cluster:
    """A data folder, the programs that may use it and the account that they run as."""

    data: Path
    bindir: Path
    account: ServerAccount
    durable: bool  # False: no fsync anywhere; a crash of the machine may lose the cluster

    def make(self) -> None:
        """Create the cluster with its role and database, unless it exists.

        Raises EmbeddedError if another file has its name or a program fails (it prints why to standard error).
        """
        home = self.data.parent
        for killed in home.glob("initdb-*"):
            shutil.rmtree(killed, ignore_errors=True)
        if (self.data / "PG_VERSION").exists():
            return
        _check_caller_has_a_name()
        # Created under another name and then renamed: initdb refuses a folder in which an earlier initdb was killed.
        aside = Path(tempfile.mkdtemp(dir=home, prefix="initdb-"))
        self.account.own(aside)
        options = ["-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-instructions"]
        self._run("initdb", "-D", str(aside), *options, *([] if self.durable else ["--no-sync"]))
        # In single-user mode a line is a command, and an error does not fail the program without exit_on_error.
        # pg_monitor: `idem doctor` sees every session.
        script = (
            f"CREATE ROLE {ROLE} LOGIN CREATEDB\nGRANT pg_monitor TO {ROLE}\nCREATE DATABASE {DATABASE} OWNER {ROLE}\n"
        )
        options = ["-c", "exit_on_error=on", *([] if self.durable else ["-F"])]
        self._run("postgres", "--single", "-D", str(aside), *options, "postgres", script=script)
        try:
            aside.rename(self.data)
        except OSError as e:
            raise EmbeddedError(
                f"{self.data} is in the way ({e.strerror}) and is not a cluster. Move it away or remove it"
            ) from e

    def _run(self, program: str, *arguments: str, script: str = "") -> None:
        done = subprocess.run(
            [str(self.bindir / program), *arguments],
            input=script,
            text=True,
            env=ENVIRONMENT,
            cwd="/",
            **self.account.switch,
            preexec_fn=dies_with(os.getpid()),
        )
        if done.returncode != 0:
            raise EmbeddedError(f"{program} failed with exit code {done.returncode} (see its output above)")


def _check_caller_has_a_name() -> None:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise EmbeddedError(
            f"user id {os.geteuid()} has no entry in the system's user database, which initdb requires. Run as a user "
            "that has one, or set IDEM_DATABASE_URL"
        ) from None
