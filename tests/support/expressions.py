"""Cron expressions by the thousand: valid, nearly valid and noise. Deterministic by the given generator."""

from __future__ import annotations

from random import Random

MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()  # noqa: SIM905
WEEKDAYS = "SUN MON TUE WED THU FRI SAT".split()  # noqa: SIM905
LOWS = (0, 0, 0, 1, 1, 0)
HIGHS = (59, 59, 23, 31, 12, 7)
STEPS = (60, 60, 24, 31, 12, 7)
MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
LONG = ("1," * 500, "*" * 1001, "(" * 400, "1-" * 300, " " * 999, "A" * 2000, "*/" + "9" * 900)
SIGNS = "0123456789*,-/#?LWH() \t@ANJUFEBMROTSPVDCXabcdefghijklmnopqrstuvwxyz"
ODD = (
    "\n\r\v\f\x01\x1b\x7f\u00a0\u00df\u0130\u0131\u017f\u0660\u0661\u2003\u200b\u2028\u202e\u2212\u212a\u3000\ufeff"
    "\uff0a\uff0c\uff11\U0001d7d9;%~&$'\"\\.+=_[]{}|^<>!`"
)


def _case(chance: Random, name: str) -> str:
    return chance.choice((name, name.lower(), name.title()))


def _value(chance: Random, field: int, *, wide: bool = False) -> str:
    """A number, with or without a leading zero, or a name; `wide` steps out of bounds now and then."""
    if field >= 4 and chance.random() < 0.3:
        names = MONTHS if (field == 4) != (wide and chance.random() < 0.1) else WEEKDAYS
        return _case(chance, chance.choice(names))
    low, high = (LOWS[field] - 1, HIGHS[field] + 2) if wide else (LOWS[field], HIGHS[field])
    number = chance.randint(max(low, 0), high)
    return f"{number:02}" if chance.random() < 0.1 else str(number)


def _item(chance: Random, field: int, wide: bool) -> str:
    step = f"/{chance.randint(0 if wide else 1, STEPS[field] + wide)}" if chance.random() < 0.4 else ""
    shape = chance.randrange(10)
    if shape == 0:
        return "*" + step
    if shape == 1:
        low, high = LOWS[field], HIGHS[field] - (field == 5) + wide
        a, b = chance.randint(low, high), chance.randint(low, high)
        if not wide:
            a, b = min(a, b), max(a, b)
        return _case(chance, "H") + chance.choice(("", f"({a}-{b})")) + step
    if shape <= 3 and field in (3, 5):
        if field == 3:
            near = (f"{_value(chance, 3, wide=wide)}W", f"{chance.randint(26, 31)}w")
            return chance.choice(("L", "LW", "l", "lw", *near))
        value = _value(chance, 5, wide=wide)
        return chance.choice((value + "L", value + "l", f"{value}#{chance.randint(1 - wide, 5 + wide)}"))
    if shape <= 5:
        a, b = _value(chance, field, wide=wide), _value(chance, field, wide=wide)
        if a.isdigit() and b.isdigit() and int(a) > int(b) and not wide and field != 5:
            a, b = b, a
        return f"{a}-{b}{step}"
    return _value(chance, field, wide=wide) + step


def _field(chance: Random, field: int, wide: bool) -> str:
    if chance.random() < 0.25:
        return "?" if field in (3, 5) and chance.random() < 0.4 else "*"
    return ",".join(_item(chance, field, wide) for _ in range(chance.choice((1, 1, 1, 2, 3))))


def sentence(chance: Random, wide: bool = False) -> str:
    """Five or six fields over the whole language; `wide` strays a little out of it."""
    first = chance.choice((0, 1, 1))
    blank = chance.choice((" ", " ", " ", "\t", "  ", " \t "))
    return blank.join(_field(chance, field, wide) for field in range(first, 6))


def rare_dates(chance: Random) -> str:
    """Day fields that seldom or never meet: what decides whether an expression can fire."""
    step = f"*/{chance.randint(15, 31)}"
    star = ("*", "?", step, f"*/{chance.randint(1, 31)}", f"{step},{_item(chance, 3, False)}")
    late = (
        f"{chance.randint(29, 31)}",
        f"{chance.randint(28, 31)}W",
        "L",
        "LW",
        "30,31",
        f"H({chance.randint(28, 30)}-31)",
    )
    day = chance.choice(star + late)
    month = chance.choice(("*", "2", "feb", "4", "2,4", "H", "H(2-4)", str(chance.randint(1, 12)), "4-6/2"))
    mark = chance.choice((f"#{chance.randint(1, 5)}", f"#{chance.choice((1, 4, 5))}", "L", ""))
    some = (f"*/{chance.randint(1, 7)}", f"*/7,{_item(chance, 5, False)}", f"{chance.randint(0, 7)}{mark}")
    weekday = chance.choice(("*", "?", "H", "H(1-3)", *some))
    return f"0 0 {day} {month} {weekday}"


def mutated(chance: Random, text: str) -> str:
    """One to three edits: a character more, less, other, or two swapped."""
    chars = list(text)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        sign = chance.choice(SIGNS if chance.random() < 0.8 else ODD)
        at = chance.randrange(len(chars) + 1)
        edit = chance.randrange(4)
        if edit == 0 or not chars:
            chars.insert(at, sign)
        elif edit == 1:
            del chars[at - 1]
        elif edit == 2:
            chars[at - 1] = sign
        else:
            chars[at - 1], chars[0] = chars[0], chars[at - 1]
    return "".join(chars)


def noise(chance: Random) -> str:
    """Anything, short as a rule; no zero byte and no lone surrogate, which PostgreSQL's text cannot hold."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.choice(LONG) + " * * * *"
    if kind == 1:
        ranges = ((0x01, 0x7F), (0x80, 0xD7FF))
        return "".join(chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.randint(0, 20)))
    if kind == 2:
        macro = _case(chance, chance.choice(MACROS))
        return chance.choice(("", " ", "\t")) + macro + chance.choice(("", " ", "\n", "x", " *"))
    return "".join(chance.choice(SIGNS) for _ in range(chance.randint(0, 30)))


def anything(chance: Random) -> str:
    """The mixture: about half of it valid."""
    kind = chance.randrange(12)
    if kind < 3:
        return sentence(chance)
    if kind < 5:
        return sentence(chance, wide=True)
    if kind < 7:
        return rare_dates(chance)
    if kind < 10:
        return mutated(chance, sentence(chance) if chance.random() < 0.7 else rare_dates(chance))
    return noise(chance)
