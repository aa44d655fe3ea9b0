"""What a name or an id may hold: what can be seen, and spaces. ``cronstream.unseen()`` is the same in SQL."""

from __future__ import annotations

UNSEEN: tuple[tuple[int, int], ...] = (
    # controls, line and paragraph separators
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0x2028, 0x2029),
    # what Unicode says may be ignored when text is shown: joiners, directions, tags, variation selectors
    (0xAD, 0xAD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
    # a blank that is no space, annotations, and what is no character at all
    (0x2800, 0x2800),
    (0xFDD0, 0xFDEF),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF),
    *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(1, 17)),
)
"""Code points that a name must not hold, as first and last: two names that look the same are the same."""
BLANKS = (*((one, one) for one in (0x20, 0xA0, 0x1680, 0x202F, 0x205F, 0x3000)), (0x2000, 0x200A))
"""Code points of which a name must not consist."""


def is_unseen(character: str) -> bool:
    """Whether a name must not hold it."""
    return any(first <= ord(character) <= last for first, last in UNSEEN)


def _set(ranges: tuple[tuple[int, int], ...]) -> str:
    """The inside of a bracket expression, as both Rust's expressions and JavaScript's with the flag u read it."""
    return "".join(_point(first) if first == last else f"{_point(first)}-{_point(last)}" for first, last in ranges)


def _point(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\u{{{code:x}}}"


SEEN = f"^[{_set(BLANKS)}]*[^{_set(BLANKS)}{_set(UNSEEN)}][^{_set(UNSEEN)}]*$"
"""The regular expression of a name."""
