"""Nights in SQLite and in a real PostgreSQL, which this test starts on a socket of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slo.ending import UsageError
from slo.history import Night, opened, shown

INITDB = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
NIGHT = Night(
    "chat",
    datetime(2026, 11, 30, 2, 0, 5, tzinfo=UTC),
    "measured",
    "",
    {"ttft.p50": 0.0412345678901234, "capacity": 12.5},
    {"target.versions.vllm": "0.30.0", "client.cpus": 2},
    "/runs/1",
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A cluster of its own, as a user who is not root: PostgreSQL refuses to run as root."""
    if not INITDB:
        pytest.skip("PostgreSQL is not installed; make postgres")
    programs = INITDB[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="tailgate-pg-"))
    user: dict[str, int] = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        shutil.chown(folder, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
    data, log = folder / "data", folder / "log"
    run = {"check": True, "capture_output": True, "cwd": folder, "timeout": 60, **user}
    try:
        options = ["--auth=trust", "--username=tailgate", "--no-sync", "--encoding=UTF8"]
        subprocess.run([programs / "initdb", "-D", data, *options], **run)  # type: ignore[call-overload]
        server = f"-k {folder} -c listen_addresses='' -c fsync=off"
        start = [programs / "pg_ctl", "-D", data, "-l", log, "-o", server, "-w", "start"]
        subprocess.run([*start], **{**run, "capture_output": False})  # type: ignore[call-overload]
        try:
            yield f"postgresql+psycopg://tailgate@/postgres?host={folder}"
        finally:
            subprocess.run([programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **run)  # type: ignore[call-overload]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "nightly.db")
    found: str = request.getfixturevalue("postgres")
    return found


def test_nights_are_read_back_as_they_were_added(url: str) -> None:
    down = Night(
        "other", datetime(2026, 11, 29, 2, tzinfo=UTC), "target down", "refused; it's 'so'"
    )
    with opened(url) as history:
        history.add(NIGHT)
        history.add(down)
    with opened(url) as history:  # again: the tables are there already
        assert history.nights() == [down, NIGHT]
        assert history.nights("chat") == [NIGHT]
        assert history.targets() == ["chat", "other"]
        history.forget_directories(["/runs/1"])
        assert history.nights("chat")[0].directory == ""
        assert history.nights("chat")[0].values == NIGHT.values


def test_a_history_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "nightly.db"
    with opened(str(path)):
        pass
    connection = sqlite3.connect(path)
    connection.execute("update tailgate_version set version = 9")
    connection.commit()
    connection.close()
    with pytest.raises(UsageError, match="version 9"), opened(str(path)):
        pass


def test_a_database_that_is_not_there_is_one_line_without_the_password() -> None:
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/nights"
    with pytest.raises(UsageError) as said, opened(url):
        pass
    assert "secret" not in str(said.value)
    assert "me@127.0.0.1:1/nights" in shown(url)
    assert len(str(said.value).splitlines()) == 1
