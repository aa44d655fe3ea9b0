"""A day of history as a Parquet file, and how it is proved to hold what Postgres held.

Postgres writes the rows as CSV in the order of their key; the checksum is the sha256 of that
text. pyarrow writes the same text from a file that it reads back, byte for byte, so the
file, the table and the table restored from it are compared by one number, at the speed
of C: instants as microseconds, every text quoted, NULL as nothing.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

_INT = pa.int64()
_TEXT = pa.string()
_INSTANT = pa.timestamp("us", tz="UTC")
COLUMNS: dict[str, pa.DataType] = {
    "job_id": _INT,
    "scheduled_time": _INSTANT,
    "request_id": _INT,
    "attempt": pa.int32(),
    "tenant": _TEXT,
    "name": _TEXT,
    "outcome": _TEXT,
    "reason": _TEXT,
    "first_time": _INSTANT,
    "run_count": _INT,
    "published_at": _INSTANT,
    "started_at": _INSTANT,
    "finished_at": _INSTANT,
    "worker": _TEXT,
    "fencing_token": _INT,
    "error": _TEXT,
    "output": _TEXT,
    "recorded_at": _INSTANT,
}
"""The columns of ``job_runs``, in its order."""
KEY = ("job_id", "scheduled_time", "request_id", "attempt")
TEXTS = tuple(name for name, kind in COLUMNS.items() if kind == _TEXT)
INSTANTS = tuple(name for name, kind in COLUMNS.items() if kind == _INSTANT)

_SCHEMA = pa.schema(list(COLUMNS.items()))
_AS_CSV: dict[str, pa.DataType] = {name: _INT if name in INSTANTS else kind for name, kind in COLUMNS.items()}
_CSV_SCHEMA = pa.schema(list(_AS_CSV.items()))
Buffer = bytes | bytearray | memoryview
_TEXT_BYTES = 16 * 1024 * 1024
_GROUP_ROWS = 100_000


class Content(NamedTuple):
    """What a table or file holds."""

    rows: int
    checksum: str


def write(csv: Iterable[Buffer], file: Path) -> Content:
    """Postgres' CSV into a new file, on the disk when this returns; what the CSV held."""
    digest = hashlib.sha256()
    rows = 0
    with pa.parquet.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        for text in _in_whole_rows(csv):
            digest.update(text)
            table = _parsed(text)
            writer.write_table(table.cast(_SCHEMA))
            rows += table.num_rows
    with file.open("rb") as written:
        os.fsync(written.fileno())
    return Content(rows, digest.hexdigest())


def content(file: Path) -> Content:
    """What the file holds, by reading all of it. Raises OSError or pyarrow.ArrowException."""
    digest = hashlib.sha256()
    rows = 0
    for batch in _read(file):
        digest.update(_csv(batch.cast(_CSV_SCHEMA)))
        rows += batch.num_rows
    return Content(rows, digest.hexdigest())


def lines(file: Path) -> Iterator[bytes]:
    """The file's rows as CSV that COPY takes, instants as text."""
    for batch in _read(file):
        yield _csv(batch)


def _read(file: Path) -> Iterator[Any]:
    with pa.parquet.ParquetFile(file) as parquet:
        yield from parquet.iter_batches(_GROUP_ROWS)


def _csv(batch: Any) -> bytes:
    out = io.BytesIO()
    pa.csv.write_csv(batch, out, pa.csv.WriteOptions(include_header=False, quoting_style="needed"))
    return out.getvalue()


def _parsed(text: bytes) -> Any:
    return pa.csv.read_csv(
        pa.BufferReader(text),
        pa.csv.ReadOptions(column_names=list(COLUMNS), block_size=len(text) + 1, use_threads=False),
        pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pa.csv.ConvertOptions(
            column_types=_AS_CSV, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _in_whole_rows(blocks: Iterable[Buffer]) -> Iterator[bytes]:
    """Text of some megabytes, cut where a row ends: at a line's end outside of quotes."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        held.append(bytes(block))
        size += len(block)
        if size >= _TEXT_BYTES and held[-1].endswith(b"\n"):
            text = b"".join(held)
            held, size = [text], 0
            if text.count(b'"') % 2 == 0:
                yield text
                held = []
    if held:
        yield b"".join(held)
