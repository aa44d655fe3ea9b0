"""What comes from data steers no terminal, wherever it is printed."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from unicodedata import bidirectional, category

import pytest

import cli
from cli.errors import Failure
from cli.output import print_fields, print_json, print_table, printable, say, text

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
BIDI = [chr(code) for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
OTHERS = ["\u2028", "\u2029", "\u200b", "\ufeff", "\U000e0041", "\ud800"]
ALL = "".join([*CONTROLS, *BIDI, *OTHERS])


def test_every_control_is_escaped_and_can_be_read_back() -> None:
    for one in (*CONTROLS, *BIDI, *OTHERS):
        if one in "\n\t":
            assert printable(f"a{one}b") == f"a{one}b"
            continue
        shown = printable(f"a{one}b")
        assert shown.isascii(), hex(ord(one))
        assert shown.isprintable(), hex(ord(one))
        assert json.loads(f'"{shown}"') == f"a{one}b"


def test_nothing_that_steers_is_left_of_all_characters() -> None:
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        if category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") or bidirectional(one)[:2] in ("LR", "RL", "PD", "FS", "BN"):
            left = printable(one)
            assert left in ("\n", "\t") or left.isascii() or category(one) == "Cn", hex(code)


def test_what_people_write_stays_as_it_is() -> None:
    for written in ("été / 東京 / Größe", "a\u00a0b\u3000c", "a\n\tb", "\\u001b", "🙂"):
        assert printable(written) == written
    assert printable("a\r\nb") == "a\nb"


def test_a_cell_is_one_line_whatever_is_in_it() -> None:
    assert text("a\x1b[2J\nb\x9b1m") == "a\\u001b[2J b\\u009b1m"
    assert printable(text(ALL)) == text(ALL)
    assert "\n" not in text(ALL)


def test_all_ways_of_printing_escape(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "NEXT"), [(ALL, 1), ({"a": ALL}, 2)])
    print_fields({"name": ALL})
    say(ALL)
    say(ALL, err=True)
    print_json({"name": ALL})
    Failure(ALL).show()
    said = capsys.readouterr()
    for stream in (said.out, said.err):
        assert stream.replace("\t", "").replace("\n", "").isascii()
        assert stream.replace("\t", "").replace("\n", "").isprintable()


def test_json_means_what_it_meant(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": ALL, "é": ["\x7f", "\x9b", "\u202e", "\U000e0041"]}
    print_json(value)
    assert json.loads(capsys.readouterr().out) == value


def test_the_command_prints_through_one_function() -> None:
    """Whoever prints past it prints what data says as it is."""
    for file in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and file.name != "output.py":
                assert ast.unparse(node.func) not in ("print", "click.echo", "click.secho"), (file.name, node.lineno)
