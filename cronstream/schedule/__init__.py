"""When jobs run: cron, intervals, zones, misfires. Pure: no clock, no server, no I/O but tzdata's files.

Instants are integers everywhere: microseconds since 1970-01-01 00:00 UTC.

| file | says |
| --- | --- |
| grammar, fields | the language of cron expressions, and what is wrong with a text outside it |
| cron | a parsed expression resolved to masks; the stable hashes behind H and spread |
| months | day fields as masks for the 28 kinds of month |
| tzif, zones | offsets of a zone over all time, from the pinned tzdata alone |
| compiled | the shared compiled form: next instant, count, the rules for clock changes |
| interval | every and once |
| schedule | one job's schedule with bounds and spread |
| misfire | what is owed for time that passed unpublished |
| notices | legal but surprising: what to tell the user who wrote it |
| preview | upcoming instants for people and as JSON lines |
"""

from cronstream.schedule.compiled import CompiledCron, compile_cron
from cronstream.schedule.errors import ScheduleError
from cronstream.schedule.interval import Every, Once, parse_every
from cronstream.schedule.misfire import POLICIES, Owed, Policy, Skip, abandon, owed, settle
from cronstream.schedule.schedule import Schedule, next_for_all, schedule_of
from cronstream.schedule.zones import TZDATA_VERSION, zone_names

__all__ = [
    "POLICIES",
    "TZDATA_VERSION",
    "CompiledCron",
    "Every",
    "Once",
    "Owed",
    "Policy",
    "Schedule",
    "ScheduleError",
    "Skip",
    "abandon",
    "compile_cron",
    "next_for_all",
    "owed",
    "parse_every",
    "schedule_of",
    "settle",
    "zone_names",
]
