"""A job's schedule as one small value: what the coordinator asks and the preview shows.

    source (cron | every | once)  ──+ spread──►  scheduled times  ──within──►  [starts_at, ends_at]

The spread offset is part of the scheduled time, so the bounds are held against what really
runs; both ends are inclusive. With millions of jobs memory counts: schedules of kind cron with
the same meaning are one object, and an interval is a few integers.

`schedule_of` builds it from plain column values and refuses what cannot mean anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

from cronstream.schedule.compiled import DST_GAP, DST_OVERLAP, SECOND_US, CompiledCron, choice, compile_cron
from cronstream.schedule.cron import SPREAD_WORD, hash_key, hash_word
from cronstream.schedule.errors import ScheduleError
from cronstream.schedule.instants import utc_text
from cronstream.schedule.interval import LAST_US, Every, Once, check_every
from cronstream.schedule.zones import zone_of

Source = CompiledCron | Every | Once

MAX_SPREAD_SECONDS: Final = 86_400


class Schedule:
    """When one job runs. Immutable; equal by value; made by `schedule_of` or `Schedule.of`."""

    __slots__ = ("__weakref__", "ends_at_us", "offset_us", "source", "starts_at_us")

    source: Source
    offset_us: int
    starts_at_us: int | None
    ends_at_us: int | None

    def __init__(self, source: Source, offset_us: int, starts_at_us: int | None, ends_at_us: int | None) -> None:
        self.source = source
        self.offset_us = offset_us
        self.starts_at_us = starts_at_us
        self.ends_at_us = ends_at_us

    @classmethod
    def of(
        cls,
        source: Source,
        *,
        offset_us: int = 0,
        starts_at_us: int | None = None,
        ends_at_us: int | None = None,
    ) -> Schedule:
        """The shared schedule of these values for cron; a new one for the other kinds."""
        if not isinstance(source, CompiledCron):
            return cls(source, offset_us, starts_at_us, ends_at_us)
        made = cls(source, offset_us, starts_at_us, ends_at_us)
        known = _interned.setdefault(hash(made), made)
        return known if known == made else made

    @property
    def kind(self) -> str:
        """cron, every or once."""
        if isinstance(self.source, CompiledCron):
            return "cron"
        return "every" if isinstance(self.source, Every) else "once"

    def next_after(self, t_us: int) -> int | None:
        """The first scheduled time strictly after `t_us`; None when there is none."""
        if self.starts_at_us is not None and t_us < self.starts_at_us:
            t_us = self.starts_at_us - 1
        following = self.source.next_after(t_us - self.offset_us)
        if following is None:
            return None
        following += self.offset_us
        if self.ends_at_us is not None and following > self.ends_at_us:
            return None
        return following

    def count(self, first_us: int, last_us: int) -> int:
        """How many scheduled times lie in [first_us, last_us], without visiting them."""
        if self.starts_at_us is not None:
            first_us = max(first_us, self.starts_at_us)
        if self.ends_at_us is not None:
            last_us = min(last_us, self.ends_at_us)
        if last_us < first_us:
            return 0
        return self.source.count(first_us - self.offset_us, last_us - self.offset_us)

    def _values(self) -> tuple[Source, int, int | None, int | None]:
        return self.source, self.offset_us, self.starts_at_us, self.ends_at_us

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Schedule) and self._values() == other._values())

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Schedule({self.source!r}, offset_us={self.offset_us}, {self.starts_at_us}..{self.ends_at_us})"


_interned: WeakValueDictionary[int, Schedule] = WeakValueDictionary()


def next_for_all(schedules: Iterable[Schedule], t_us: int) -> list[int | None]:
    """`next_after(t_us)` of each, computed once per distinct object: a burst of many jobs."""
    asked = list(schedules)
    ids = list(map(id, asked))
    distinct = dict(zip(ids, asked, strict=True))
    following = {key: schedule.next_after(t_us) for key, schedule in distinct.items()}
    return [following[key] for key in ids]


def _spread_offset(spread_seconds: object, tenant: str, name: str) -> int:
    """Whole seconds in [0, spread_seconds), always the same for the job."""
    if not isinstance(spread_seconds, int) or not 0 <= spread_seconds <= MAX_SPREAD_SECONDS:
        raise ScheduleError("spread_seconds", str(spread_seconds), f"0 to {MAX_SPREAD_SECONDS}")
    if not spread_seconds:
        return 0
    return hash_word(hash_key(tenant, name), SPREAD_WORD) % spread_seconds * SECOND_US


def schedule_of(
    *,
    cron: object = None,
    every_us: int | None = None,
    run_at_us: int | None = None,
    timezone: object = "UTC",
    anchor_us: int | None = None,
    starts_at_us: int | None = None,
    ends_at_us: int | None = None,
    spread_seconds: int = 0,
    dst_gap: object = "auto",
    dst_overlap: object = "auto",
    tenant: str = "",
    name: str = "",
) -> Schedule:
    """The schedule of a definition's columns; ScheduleError names the column that means nothing.

    `anchor_us` is the creating commit's time; it matters for `every` alone, which fires at
    anchor + n · period, and falls back to `starts_at_us`.
    """
    given = [
        column for column, value in (("cron", cron), ("every", every_us), ("run_at", run_at_us)) if value is not None
    ]
    if len(given) != 1:
        raise ScheduleError("schedule", " and ".join(given) or "nothing", "exactly one of cron, every and run_at")
    if starts_at_us is not None and ends_at_us is not None and ends_at_us < starts_at_us:
        raise ScheduleError("ends_at", "a time before starts_at", "a time at or after starts_at")
    offset_us = _spread_offset(spread_seconds, tenant, name)
    source: Source
    if cron is not None:
        key = hash_key(tenant, name) if tenant or name else ""
        source = compile_cron(cron, timezone, dst_gap=dst_gap, dst_overlap=dst_overlap, hash_key=key)
    else:
        zone_of(timezone)
        choice("dst_gap", dst_gap, DST_GAP)
        choice("dst_overlap", dst_overlap, DST_OVERLAP)
        if every_us is not None:
            anchor_us = starts_at_us if anchor_us is None else anchor_us
            if anchor_us is None:
                raise ScheduleError("every", "no anchor", "an anchor: the creating commit or starts_at")
            source = Every(check_every(every_us), anchor_us)
        else:
            assert run_at_us is not None
            source = Once(run_at_us)
    schedule = Schedule.of(source, offset_us=offset_us, starts_at_us=starts_at_us, ends_at_us=ends_at_us)
    if (starts_at_us is not None or ends_at_us is not None) and schedule.next_after(_LONG_AGO_US) is None:
        raise _never_fires(schedule)
    return schedule


def _never_fires(schedule: Schedule) -> ScheduleError:
    """Of bounds that hold no scheduled time: what to move, and where to."""
    hint = "as it is, the job would never fire"
    starts_at_us, ends_at_us = schedule.starts_at_us, schedule.ends_at_us
    from_text = "" if starts_at_us is None else utc_text(starts_at_us)
    to_text = "" if ends_at_us is None else utc_text(ends_at_us)
    if isinstance(schedule.source, Once):
        bounds = " and ".join(filter(None, (from_text and f"from {from_text} on", to_text and f"up to {to_text}")))
        spread = f", with its spread of {schedule.offset_us // SECOND_US} s" if schedule.offset_us else ""
        return ScheduleError("run_at", utc_text(schedule.source.run_at_us), f"an instant {bounds}{spread}", hint)
    first_us = Schedule(schedule.source, schedule.offset_us, starts_at_us, None).next_after(_LONG_AGO_US)
    if not to_text or first_us is None or first_us >= LAST_US:
        return ScheduleError("starts_at", from_text or "nothing", "an earlier instant", hint)
    since = f" from starts_at {from_text} on" if from_text else ""
    return ScheduleError("ends_at", to_text, f"{utc_text(first_us)} or later, the first scheduled time{since}", hint)


_LONG_AGO_US = -(2**62)
