"""Whatever comes as a command is read, refused under its id, or poison; nothing else is raised."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streams.command_models import NAMES
from streams.command_records import PoisonCommand, RefusedCommand, decode

TEXT = st.text(alphabet="ab/\x00\u2028 ü", max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("id", "tenant", "name", "definition", "changes", "begins", "ends", "run_at", "handler", "x")


@given(value=st.binary(max_size=100) | st.text(alphabet='{}[]":,id0 \\u', max_size=40).map(str.encode))
def test_bytes(value: bytes) -> None:
    with contextlib.suppress(PoisonCommand, RefusedCommand):
        decode(None, value)


@given(name=st.sampled_from(NAMES), fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6))
def test_an_object_with_an_id_can_be_answered_under_it(name: str, fields: dict[str, Any]) -> None:
    body = {"id": "mine", **fields, "command": name}
    try:
        answered_to = decode(None, json.dumps(body).encode()).id
    except RefusedCommand as refused:
        answered_to = refused.sender.id
    except PoisonCommand:
        answered_to = None
    assert answered_to == body["id"] if body["id"] == "mine" else answered_to in (body["id"], None)
