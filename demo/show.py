"""The live table: redrawn on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demo.watch import Figures

PLAIN_SECONDS = 10
_PLAIN = "{:>4} {:<14} {:>10} {:>9} {:>8} {:>10} {:>7} {:>9} {:>9} {:>9}"
_HEADER = (
    "s", "leader", "triggers/s", "admitted", "running", "succeeded", "failed", "p50 ms", "p99 ms", "edit ms"
)  # fmt: skip
LEGEND = (
    "p50 and p99: from the scheduled time to the broker's acknowledgement, over this leader's last minute; "
    "edit: from the newest edit's commit to the leader"
)
_FAILURES = ("failed", "timed_out", "lost")


class Show:
    """Use it as a context manager while the figures move."""

    def __init__(self, console: Console, seconds: int) -> None:
        self._console = console
        self._seconds = seconds
        self._events: list[str] = []
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._last = Figures(), 0.0
        self._next_line = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            self._console.print(LEGEND, soft_wrap=True, highlight=False)
            self._console.print(_PLAIN.format(*_HEADER), soft_wrap=True, highlight=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def figures(self, figures: Figures, second: float) -> None:
        """New figures at that second of the minute."""
        self._last = figures, second
        if self._live is not None:
            self._redraw()
        elif second >= self._next_line:
            self._next_line = second - second % PLAIN_SECONDS + PLAIN_SECONDS
            self._console.print(plain_line(figures, second), soft_wrap=True, highlight=False)

    def event(self, second: float, sentence: str) -> None:
        """Something happened that the viewer should not miss."""
        line = f"{second:4.0f} s  {sentence}"
        if self._live is None:
            self._console.print(f">>> {line}", soft_wrap=True, highlight=False, markup=False)
            return
        self._events.append(line)
        self._redraw()

    def _redraw(self) -> None:
        assert self._live is not None
        figures, second = self._last
        lines = [Text(line, style="bold yellow") for line in self._events]
        self._live.update(Group(table(figures, second, self._seconds), *lines), refresh=True)


def plain_line(figures: Figures, second: float) -> str:
    """The figures as one line."""
    return _PLAIN.format(f"{second:.0f}", *cells(figures))


def table(figures: Figures, second: float, seconds: int) -> Table:
    """The figures as a table."""
    title = f"second {min(second, seconds):.0f} of {seconds}"
    drawn = Table(title=title, title_justify="left", caption=LEGEND, caption_justify="left")
    for name in _HEADER[1:]:
        drawn.add_column(name, justify="left" if name == "leader" else "right", min_width=len(name))
    drawn.add_row(*cells(figures), style=None if figures.answers else "red")
    return drawn


def cells(figures: Figures) -> tuple[str, ...]:
    """In the header's order, without the second."""
    counts = figures.streams
    leader = "none" if figures.leader is None else figures.leader if figures.answers else f"{figures.leader} ?"
    return (
        leader,
        _number(figures.triggers_per_second, 1),
        _number(counts.get("admitted")),
        _number(counts.get("running")),
        _number(counts.get("succeeded")),
        _number(sum(counts.get(name, 0) for name in _FAILURES) if counts else None),
        _number(figures.lateness_p50_ms, 1),
        _number(figures.lateness_p99_ms, 1),
        _number(figures.capture_lag_ms, 1),
    )


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
