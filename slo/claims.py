"""Tables of claims about serving speed, as JSON: read, each row under its column's names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from slo.rundir import RunDirError, read_json, validated

FORMAT = "seed_tables/1"
Cell = float | str | None


class Column(BaseModel):
    """A column's name and, where all its cells have one, their unit."""

    name: str
    unit: str | None = None


class Table(BaseModel):
    """One table of an article."""

    model_config = ConfigDict(extra="allow")
    id: str
    title: str = ""
    kind: str
    environment: dict[str, Any] = Field(default_factory=dict)
    columns: list[Column]
    rows: list[list[Cell]]

    @model_validator(mode="after")
    def _as_wide_as_its_head(self) -> "Table":
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.id}: row {number} has {len(row)} cells, "
                    f"there are {len(self.columns)} columns"
                )
        return self


class Document(BaseModel):
    """A file of tables."""

    format: str
    model: str | None = None
    tables: list[Table]


@dataclass(frozen=True, slots=True)
class Claims:
    """Tables about one model."""

    model: str | None
    tables: tuple[Table, ...]


def read_claims(path: Path) -> Claims:
    """Read a file of claims.

    Raises:
        RunDirError: no JSON, another format, or a table that is none; names the file and the key.
    """
    found = read_json(path)
    told = found.get("format") if isinstance(found, dict) else None
    if not isinstance(told, str) or told.split("/")[0] != FORMAT.split("/")[0]:
        raise RunDirError(f"{path}: format {told!r} is unknown here; this Tailgate reads {FORMAT}")
    document = validated(TypeAdapter(Document), found, str(path))
    return Claims(document.model, tuple(document.tables))


def by_name(table: Table) -> list[dict[str, Cell]]:
    """Rows as cells by column name."""
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def units(table: Table) -> dict[str, str]:
    """Units by column name."""
    return {column.name: column.unit or "" for column in table.columns}
