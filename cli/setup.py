"""``cronstream setup``: schema, topics, capture. Every step may find its work done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

import sql
from cli.environment import settings
from cli.errors import Failure
from cli.output import json_option, print_json, say
from cli.topics import make_topics
from connectors.connect_api import ConnectUnavailable
from connectors.observation import Observer
from connectors.registration import Registration
from connectors.watchdog import NotDelivering, Watchdog
from cronstream.clock import SystemClock
from cronstream.settings import CaptureSettings
from sql.migrate import migrate

_REGISTER_SECONDS = 60.0
_DELIVER_SECONDS = 90.0
_FIRST_WORD_SECONDS = 2.0
_NEXT_WORD_SECONDS = 5.0


@click.command(short_help="Make or update schema, topics and capture.")
@json_option
def setup(as_json: bool) -> None:
    """Make or update the schema, the topics and the capture of an installation.

    Harmless when all is there. Returns when the capture delivers edits.
    """
    chosen = settings(CaptureSettings)
    with _step("schema") as done, sql.connect(chosen, "setup", autocommit=True) as connection:
        applied = [f"{one.version:04}_{one.name}" for one in migrate(connection)]
        sql.claim(connection, chosen.installation)
        done.append(f"{len(applied)} migrations applied" if applied else "up to date")
    with _step("topics") as done:
        made = make_topics(chosen)
        done.append(f"{len(made)} made" if made else "all there")
    with _step("capture") as done:
        name = _capture(chosen)
        done.append(f"{name} delivers to {chosen.topics.changes}")
    if as_json:
        print_json({"migrations": applied, "topics": made, "connector": name})


def _capture(chosen: CaptureSettings) -> str:
    clock = SystemClock()
    registration = Registration(chosen, clock)
    _register(registration, clock)
    with Observer(chosen, registration.api, registration.name, registration.slot) as observer:
        try:
            Watchdog(chosen, registration, observer, clock).until_delivering(threading.Event(), _DELIVER_SECONDS)
        except NotDelivering as error:
            raise Failure(f"the capture does not deliver: {error}") from None
    return registration.name


def _register(registration: Registration, clock: SystemClock) -> None:
    """Connect that is still starting, or between two states, is asked again."""
    deadline = clock.boot_ns() + int(_REGISTER_SECONDS * 1e9)
    while True:
        try:
            registration.register()
            return
        except ConnectUnavailable:
            if clock.boot_ns() >= deadline:
                raise
        clock.sleep(0.5)


@contextmanager
def _step(name: str) -> Iterator[list[str]]:
    """One line when it is done, and words meanwhile when it takes longer than two seconds."""
    clock = SystemClock()
    began, over, said = clock.boot_ns(), threading.Event(), list[str]()

    def seconds() -> float:
        return (clock.boot_ns() - began) / 1e9

    def tell() -> None:
        pause = _FIRST_WORD_SECONDS
        while not over.wait(pause):
            say(f"{name}: ... ({seconds():.0f} s)", err=True)
            pause = _NEXT_WORD_SECONDS

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield said
    finally:
        over.set()
        teller.join()
    say(f"{name}: {said[0]} ({seconds():.1f} s)", err=True)
