"""A real PostgreSQL for tests, in a folder of its own, on 127.0.0.1, with a password."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import pytest
from check_size import SIZE
from deployment import free_port, wait_for

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - each cluster makes a folder of its own in it
PASSWORD = "not for the log"  # noqa: S105 - of a database that lives for seconds
USER = "gate"
FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
"""Debian keeps the programs of each version apart, and out of the search path."""
PATH = os.pathsep.join([os.environ["PATH"], *map(str, FOLDERS)])
needs_postgres = pytest.mark.skipif(
    shutil.which("initdb", path=PATH) is None and SIZE != "full",
    reason="there is no PostgreSQL here: apt-get install postgresql",
)
"""Skips where it is missing; at full size such a test fails."""


class Postgres:
    """A cluster, to be killed and started again; it refuses root, and then runs as postgres."""

    def __init__(self, *settings: str) -> None:
        # Not in pytest's folders or TMPDIR, which may be for their owner alone.
        place = IN_MEMORY if IN_MEMORY.is_dir() else None
        self.folder = folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-", dir=place))
        self.port = free_port()
        self._settings = settings
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user is not None:
            shutil.chown(folder, self._user)
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            "initdb", "-D", str(folder / "data"), "-U", USER, "--auth=scram-sha-256",
            "--pwfile", str(password), "-E", "UTF8", "--locale=C",
        )  # fmt: skip
        password.unlink()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.go_on()
            self._process.send_signal(signal.SIGQUIT)  # at once, and it removes its shared memory
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        finally:
            shutil.rmtree(self.folder)

    @property
    def environment(self) -> dict[str, str]:
        """By which a program finds it."""
        return {
            "PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": USER,
            "PGDATABASE": "postgres", "PGPASSWORD": PASSWORD, "PGSSLMODE": "disable",
        }  # fmt: skip

    def start(self) -> None:
        """Start it, also again, and wait until it answers."""
        settings = [
            "-p", str(self.port), "-k", str(self.folder), "-c", "listen_addresses=127.0.0.1",
            "-c", "dynamic_shared_memory_type=mmap",  # in its folder, where none is left by a kill
            *(part for one in self._settings for part in ("-c", one)),
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(shutil.which("postgres", path=PATH)), "-D", str(self.folder / "data"),
                 *settings],
                stdout=log, stderr=log, user=self._user, start_new_session=True, cwd="/",
            )  # fmt: skip
        wait_for(self._answers, "an answer of the database", 60, every=0.02)

    def kill(self) -> None:
        """End it and all that it started as a power cut would."""
        workers = self._workers()
        self._process.kill()
        self._process.wait()
        for worker in workers:
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_for(lambda: not any(map(_lives, workers)) or None, "the end of its workers", 60)

    def stop(self) -> None:
        """Let it hang: connections stay, and nobody answers."""
        for process in (self._process.pid, *self._workers()):
            os.kill(process, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        for process in (self._process.pid, *self._workers()):
            with contextlib.suppress(ProcessLookupError):  # a worker has ended meanwhile
                os.kill(process, signal.SIGCONT)

    def _workers(self) -> list[int]:
        listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        return [int(one) for one in listed.split()]

    def _answers(self) -> bool | None:
        assert self._process.poll() is None, (self.folder / "log").read_text()
        done = subprocess.run(
            [str(shutil.which("pg_isready", path=PATH)), "-q", "-h", "127.0.0.1", "-p",
             str(self.port)],
            check=False,
        )  # fmt: skip
        return done.returncode == 0 or None

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(shutil.which(program, path=PATH)), *arguments],
            capture_output=True, text=True, user=self._user, cwd="/", check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def _lives(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
