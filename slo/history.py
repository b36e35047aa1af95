"""Nights on record, in any database that SQLAlchemy speaks to: SQLite by default, PostgreSQL.

A night that could not be measured is a row too, with why: a gap must be told from a good night.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from slo.ending import UsageError

Status = Literal["measured", "target down", "no space", "invalid", "stopped", "fault"]
VERSION = 1
_MISSING = "the history is not installed; pip install 'tailgate[history]'"


@dataclass(frozen=True, slots=True)
class Night:
    """One target in one night. `values` are what trends are drawn of: above 0, by metric."""

    target: str
    at: datetime
    status: Status
    why: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    directory: str = ""

    @property
    def day(self) -> str:
        """E.g. 2026-11-30, in UTC."""
        return f"{self.at.astimezone(UTC):%Y-%m-%d}"


class History:
    """A connection to the nights on record."""

    def __init__(self, engine: Any, nights: Any, values: Any) -> None:
        self._engine, self._nights, self._values = engine, nights, values

    def add(self, night: Night) -> None:
        """Put a night on record, whole or not at all."""
        with self._engine.begin() as connection:
            told = connection.execute(
                self._nights.insert().values(
                    target=night.target,
                    at=night.at.astimezone(UTC).replace(tzinfo=None),
                    status=night.status,
                    why=night.why,
                    fingerprint=json.dumps(dict(night.fingerprint), sort_keys=True),
                    directory=night.directory,
                )
            )
            key = told.inserted_primary_key[0]
            rows = [{"night": key, "metric": m, "value": v} for m, v in night.values.items()]
            if rows:
                connection.execute(self._values.insert(), rows)

    def nights(self, target: str | None = None) -> list[Night]:
        """All nights of a target, or of all, oldest first."""
        import sqlalchemy as sa

        wanted = sa.select(self._nights).order_by(self._nights.c.at, self._nights.c.id)
        if target is not None:
            wanted = wanted.where(self._nights.c.target == target)
        with self._engine.connect() as connection:
            rows = connection.execute(wanted).mappings().all()
            found: dict[int, dict[str, float]] = {row["id"]: {} for row in rows}
            for night, metric, value in connection.execute(sa.select(self._values)):
                if night in found:
                    found[night][metric] = value
        return [
            Night(
                row["target"],
                row["at"].replace(tzinfo=UTC),
                row["status"],
                row["why"],
                found[row["id"]],
                json.loads(row["fingerprint"]),
                row["directory"],
            )
            for row in rows
        ]

    def targets(self) -> list[str]:
        """The names on record."""
        return sorted({night.target for night in self.nights()})

    def forget_directories(self, gone: Sequence[str]) -> None:
        """Note that runs were pruned; their numbers stay."""
        with self._engine.begin() as connection:
            for directory in gone:
                where = self._nights.c.directory == directory
                connection.execute(self._nights.update().where(where).values(directory=""))


@contextmanager
def opened(url: str) -> Iterator[History]:
    """The history behind a database URL, or a file name; its tables are made where they are not.

    Raises:
        UsageError: SQLAlchemy or the driver is missing, the database cannot be reached, or its
            tables are of another version.
    """
    try:
        import sqlalchemy as sa
    except ModuleNotFoundError:
        raise UsageError(_MISSING) from None
    url = url if "://" in url else f"sqlite:///{Path(url)}"
    try:
        engine = sa.create_engine(url, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise UsageError(f"{shown(url)}: no driver: {error.name}; {_MISSING}") from None
    except sa.exc.ArgumentError as error:
        raise UsageError(f"{shown(url)}: is no database URL: {error}") from None
    try:
        nights, values = _tables(engine, url)
        yield History(engine, nights, values)
    except sa.exc.DatabaseError as error:
        raise UsageError(f"{shown(url)}: {str(error.orig).strip().splitlines()[0]}") from None
    finally:
        engine.dispose()


def shown(url: str) -> str:
    """A URL without its password."""
    scheme, mark, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{place}" if mark else url


def _tables(engine: Any, url: str) -> tuple[Any, Any]:
    import sqlalchemy as sa

    schema = sa.MetaData()
    version = sa.Table("tailgate_version", schema, sa.Column("version", sa.Integer))
    nights = sa.Table(
        "tailgate_nights",
        schema,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("target", sa.String(200), nullable=False, index=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("directory", sa.Text, nullable=False),
    )
    values = sa.Table(
        "tailgate_values",
        schema,
        sa.Column("night", sa.ForeignKey("tailgate_nights.id"), primary_key=True),
        sa.Column("metric", sa.String(100), primary_key=True),
        sa.Column("value", sa.Float(53), nullable=False),
    )
    schema.create_all(engine)
    with engine.begin() as connection:
        found = connection.execute(sa.select(version.c.version)).scalar()
        if found is None:
            connection.execute(version.insert().values(version=VERSION))
        elif found != VERSION:
            what = f"its tables are version {found}, this Tailgate knows {VERSION}"
            raise UsageError(f"{shown(url)}: {what}")
    return nights, values
