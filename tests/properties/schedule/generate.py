"""Hypothesis strategies for valid cron expressions over the whole language (without H and macros)."""

from __future__ import annotations

from hypothesis import strategies as st

MONTH_NAMES = ["JAN", "feb", "Mar", "APR", "may", "Jun", "JUL", "aug", "Sep", "OCT", "nov", "Dec"]
DAY_NAMES = ["SUN", "mon", "Tue", "WED", "thu", "Fri", "SAT"]


def _values(low: int, high: int, names: list[str]) -> st.SearchStrategy[str]:
    numbers = st.integers(low, high).map(str)
    return st.one_of(numbers, st.sampled_from(names)) if names else numbers


@st.composite
def _item(draw: st.DrawFn, low: int, high: int, names: list[str], wraps: bool = False) -> str:
    size = 7 if wraps else high - low + 1
    step = f"/{draw(st.integers(1, size))}"
    shape = draw(st.sampled_from(["value", "value", "value", "range", "range", "start", "star", "range-step"]))
    if shape == "star":
        return "*" + draw(st.sampled_from(["", step]))
    if shape == "value":
        return draw(_values(low, high, names))
    if shape == "start":
        return draw(_values(low, high, names)) + step
    if wraps:
        body = f"{draw(_values(low, high, names))}-{draw(_values(low, high, names))}"
    else:
        a, b = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
        body = f"{a}-{b}"
    return body + (step if shape == "range-step" else "")


def _field(item: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(item, min_size=1, max_size=3).map(",".join)


_NIGHT = st.sampled_from(["1", "2", "3", "0", "23", "0,1", "1-3", "2/4", "*", "*/2", "0-23", "0,23", "22-23"])
minute = _field(_item(0, 59, []))
hour = st.one_of(_NIGHT, _field(_item(0, 23, [])))
day = st.one_of(
    st.just("*"),
    st.just("?"),
    _field(st.one_of(_item(1, 31, []), st.sampled_from(["L", "LW", "l"]), st.integers(1, 31).map(lambda n: f"{n}W"))),
)
month = st.one_of(st.just("*"), _field(_item(1, 12, MONTH_NAMES)))
_weekday_value = _values(0, 7, DAY_NAMES)
weekday = st.one_of(
    st.just("*"),
    st.just("?"),
    _field(
        st.one_of(
            _item(0, 7, DAY_NAMES, wraps=True),
            _weekday_value.map(lambda text: text + "L"),
            st.tuples(_weekday_value, st.integers(1, 5)).map(lambda pair: f"{pair[0]}#{pair[1]}"),
        )
    ),
)
five_fields = st.tuples(minute, hour, day, month, weekday).map(" ".join)
six_fields = st.tuples(_field(_item(0, 59, [])), minute, hour, day, month, weekday).map(" ".join)
daily = st.tuples(minute, hour).map(lambda pair: f"{pair[0]} {pair[1]} * * *")
