"""Migrations and named queries as files: no server needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql.migrate import MIGRATIONS, Migration, SchemaError, load_migrations, pending
from sql.queries import FOLDER, load, parse

ONE = Migration(1, "one", "SELECT 1")
TWO = Migration(2, "two", "SELECT 2")


def applied(*migrations: Migration) -> dict[int, tuple[str, str]]:
    return {m.version: (m.name, m.checksum) for m in migrations}


def test_the_repository_s_migrations_are_numbered_without_holes() -> None:
    assert len(load_migrations()) == len(list(MIGRATIONS.iterdir()))


@pytest.mark.parametrize("name", ["1_short.sql", "0001-dash.sql", "0001_Upper.sql", "notes.sql"])
def test_a_misnamed_migration_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("SELECT 1")
    with pytest.raises(SchemaError, match="is named NNNN"):
        load_migrations(tmp_path)


def test_a_hole_in_the_numbers_is_refused(tmp_path: Path) -> None:
    for name in ("0001_one.sql", "0003_three.sql"):
        (tmp_path / name).write_text("SELECT 1")
    with pytest.raises(SchemaError, match=r"without holes: \[1, 3\]"):
        load_migrations(tmp_path)


def test_an_empty_database_gets_everything_and_a_full_one_nothing() -> None:
    assert pending({}, [ONE, TWO]) == [ONE, TWO]
    assert pending(applied(ONE), [ONE, TWO]) == [TWO]
    assert pending(applied(ONE, TWO), [ONE, TWO]) == []


def test_a_version_from_newer_code_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"version 2 \(two\), this code knows 1: it was migrated by newer code"):
        pending(applied(ONE, TWO), [ONE])


def test_a_file_changed_after_it_was_applied_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"0001_one\.sql was changed after it was applied"):
        pending(applied(ONE), [Migration(1, "one", "SELECT 1 "), TWO])


def test_a_migration_missing_below_the_newest_is_refused() -> None:
    with pytest.raises(SchemaError, match="0001 is missing below version 2"):
        pending(applied(TWO), [ONE, TWO])


def test_every_query_file_of_the_repository_reads() -> None:
    for file in FOLDER.glob("*.sql"):
        assert len(load(file.stem)) > 0


def test_queries_are_found_by_name_with_their_purpose() -> None:
    queries = parse(
        "-- A file's own comment.\n\n-- name: one\n-- Counts.\nSELECT 1;\n\n-- name: two\n-- More.\nSELECT\n  2\n"
    )
    assert list(queries) == ["one", "two"]
    assert queries["one"] == "-- Counts.\nSELECT 1"
    assert queries["two"] == "-- More.\nSELECT\n  2"


def test_what_statements_share_stands_where_they_name_it() -> None:
    queries = parse(
        "-- part: one\n-- Shared.\none AS (\n    SELECT 1)\n\n"
        "-- name: a\n-- A.\nWITH {one} SELECT {other}\n-- name: b\n-- B.\nWITH x AS (), {one} SELECT\n"
    )
    assert list(queries) == ["a", "b"]
    assert queries["a"] == "-- A.\nWITH one AS (\n    SELECT 1) SELECT {other}"
    assert queries["b"] == "-- B.\nWITH x AS (), one AS (\n    SELECT 1) SELECT"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-- part: p\n-- x\np AS ()\n-- name: a\n-- x\nSELECT 1", "no query of the file has"),
        ("-- name: a\n-- x\nSELECT 1\n-- name: a\n-- x\nSELECT 1", "twice"),
        ("-- name: a b\n-- x\nSELECT 1", "no identifier"),
        ("-- name: a\nSELECT 1", "line of purpose"),
        ("-- name: a\n-- only words", "line of purpose"),
    ],
)
def test_a_query_without_name_or_purpose_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)
