"""Retry-After, and what of a request must not come back in its answer."""

from __future__ import annotations

import pytest

from workers.handlers.retry_after import not_before_us
from workers.handlers.secrets import Secrets

NOW_US = 1_772_953_200_000_000  # 2026-03-08T07:00:00Z
DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("header", "later_us"),
    [
        ("0", 0),
        ("120", 120_000_000),
        (" 7 ", 7_000_000),
        ("99999999999999999999", DAY_US),
        ("Sun, 08 Mar 2026 07:02:00 GMT", 120_000_000),
        ("Sunday, 08-Mar-26 07:02:00 GMT", 120_000_000),
        ("Sun Mar  8 07:02:00 2026", 120_000_000),
        ("Sun, 08 Mar 2030 07:02:00 GMT", DAY_US),
    ],
)
def test_seconds_and_dates_name_an_instant(header: str, later_us: int) -> None:
    assert not_before_us(header, NOW_US) == NOW_US + later_us


@pytest.mark.parametrize("header", [None, "", "soon", "-5", "1.5", "²", "Sun, 08 Mar 2026 06:59:00 GMT", "Fri, 99 Foo"])
def test_anything_else_names_none(header: str | None) -> None:
    assert not_before_us(header, NOW_US) is None


def test_secret_headers_and_passwords_are_hidden() -> None:
    secrets = Secrets.of(
        "https://me:p%40ssword@example.org/",
        {"Authorization": "Bearer abc.def", "X-Api-Key": "k-12345", "X-Team": "billing", "Cookie": "id"},
    )
    said = "Bearer abc.def abc.def k-12345 billing p%40ssword p@ssword bWU6cEBzc3dvcmQ= id"
    assert secrets.hide(said) == "*** *** *** billing *** *** *** id"
    assert secrets.hide("said p%40ssw") == "said ***"


def test_nothing_secret_hides_nothing() -> None:
    secrets = Secrets.of("http://[bad/", {"Accept": "text/plain"})
    assert secrets.hide("text/plain") == "text/plain"
