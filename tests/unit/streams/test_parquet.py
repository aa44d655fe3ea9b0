"""Rows as CSV into a Parquet file and back: the same text, byte for byte."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sql.migrate import MIGRATIONS
from streams import parquet
from streams.parquet import COLUMNS, TEXTS, Content

texts = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
instants = st.none() | st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
Row = tuple[Any, ...]
rows = st.tuples(
    *(
        texts if name in TEXTS else instants if name in parquet.INSTANTS else numbers
        for name in COLUMNS
        if name != "attempt"
    ),
    st.none() | st.integers(-(2**31), 2**31 - 1),
).map(lambda row: (*row[:3], row[-1], *row[3:-1]))


def as_postgres(many: list[Row]) -> bytes:
    """As COPY writes it: every text in quotes, NULL as nothing."""
    out = io.StringIO()
    for row in many:
        cells = []
        for name, value in zip(COLUMNS, row, strict=True):
            quoted = name in TEXTS and value is not None
            cells.append('"' + value.replace('"', '""') + '"' if quoted else "" if value is None else str(value))
        out.write(",".join(cells) + "\n")
    return out.getvalue().encode()


def some(count: int) -> list[Row]:
    return [(number, *(None,) * 16, number) for number in range(count)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(many=st.lists(rows, max_size=5), block=st.integers(1, 50))
def test_a_file_holds_what_the_text_held(tmp_path: Path, many: list[Row], block: int) -> None:
    text = as_postgres(many)
    file = tmp_path / "a.parquet"
    blocks = [text[begin : begin + block] for begin in range(0, len(text), block)]
    assert parquet.write(blocks, file) == Content(len(many), hashlib.sha256(text).hexdigest())
    assert parquet.content(file) == Content(len(many), hashlib.sha256(text).hexdigest())


def test_text_is_cut_where_rows_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_TEXT_BYTES", 40)
    tricky = [(1, 0, 0, 1, "a\n", '"\n', "x", *(None,) * 11), (2, 0, 0, 1, ",\n\n", '""', "", *(None,) * 11)] * 5
    text = as_postgres(tricky)
    file = tmp_path / "a.parquet"
    lines = text.splitlines(keepends=True)
    assert parquet.write(lines, file) == Content(10, hashlib.sha256(text).hexdigest())
    assert parquet.content(file).checksum == hashlib.sha256(text).hexdigest()


def test_a_change_of_one_value_is_seen(tmp_path: Path) -> None:
    one = parquet.write([as_postgres(some(3))], tmp_path / "a.parquet")
    other = parquet.write([as_postgres([*some(2), (2, *(None,) * 16, 3)])], tmp_path / "b.parquet")
    assert one.rows == other.rows
    assert one.checksum != other.checksum


def test_lines_are_what_copy_takes(tmp_path: Path) -> None:
    parquet.write([as_postgres([(1, 1_772_953_200_000_001, 0, 1, "a", "", *(None,) * 12)])], tmp_path / "a.parquet")
    (row,) = csv.reader(io.StringIO(b"".join(parquet.lines(tmp_path / "a.parquet")).decode()))
    assert row[:6] == ["1", "2026-03-08 07:00:00.000001Z", "0", "1", "a", ""]


def test_the_columns_are_those_of_the_table() -> None:
    (file,) = MIGRATIONS.glob("*_history.sql")
    body = file.read_text().partition("CREATE TABLE cronstream.job_runs (")[2].partition("PRIMARY KEY")[0]
    names = [line.split()[0] for line in body.splitlines() if line.strip()]
    assert list(COLUMNS) == names


def test_other_programs_read_the_file(tmp_path: Path) -> None:
    parquet.write([as_postgres(some(3))], tmp_path / "a.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    assert table.column("job_id").to_pylist() == [0, 1, 2]
    assert str(table.schema.field("scheduled_time").type) == "timestamp[us, tz=UTC]"
