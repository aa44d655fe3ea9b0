"""Who leads: one key in etcd, held under a lease.

      +--------- campaign ----------+
      v                             |
  [ waits ] --key absent--> put it if absent, under a lease --won--> [ leads ]
      ^                             | lost                               |
      +--- watch the key, poll -----+                                    |
      ^                                                                  |
      +--- the term is over: resigned, lease lost, deadline, fenced -----+

- The key is put in one transaction on ``create_revision == 0``. Its create revision is the
  term's fencing token: etcd's revisions only grow (a wiped etcd starts anew; whoever takes
  office compares the token with the epoch that Postgres holds).
- While it leads, a keepalive goes out every quarter of the TTL; trust runs from the moment it
  was *sent* (see trust.py). Nothing but the clock is needed to lose trust.
- The leader watches its own key too: if the lease is revoked early, by a person or by etcd,
  the term ends at the event and not at the next keepalive.
- A term that ended for whatever reason has its lease revoked, so that the next leader need
  not wait for the TTL. A process that dies does not: then the lease runs out.

What fails, and then what
-------------------------
- A keepalive of an expired lease is answered, without an error, with TTL 0: the term is over.
- A call fails or times out (a quarter of the TTL): a new channel, to the next endpoint, after
  a pause that grows to a second. A leader tries again until its deadline, then it is none.
- The answer to the campaign is lost: not a leader. The lease is revoked; if that fails too,
  the key nobody holds goes with the lease, one TTL later.
- A watch ends (EOF, error, compaction): read the key afresh, watch from that revision + 1.
- A watch is silent though the key is gone: the key is read once a TTL whatever the watch says.
- A member of etcd is gone: whatever is asked goes on at the next endpoint, also what is asked once.
- etcd restarts: leases survive with a fresh TTL, so a leader goes on if it was back in time.

etcd is spoken to in one thread of the elector's own (the client, see etcd.py, is asyncio).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import threading
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from coordinator.etcd import Etcd, EtcdUnavailable, KeyValue
from coordinator.trust import Term, TrustWindow
from cronstream.clock import Clock, iso

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 1.0
STOP_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """How long a lease lasts and how much of it is trusted."""

    ttl_seconds: int = 5
    margin_seconds: float = 1.0
    """At least the measured skew between the rates of two clocks over one TTL."""
    address: str = ""
    """Where the leader can be reached; written beside its name."""

    def __post_init__(self) -> None:
        if self.ttl_seconds < 2:
            raise ValueError(f"ttl_seconds must be at least 2, not {self.ttl_seconds}")
        if not 0 < self.margin_seconds < self.ttl_seconds / 2:
            raise ValueError(f"margin_seconds must be above 0 and below half of ttl_seconds, not {self.margin_seconds}")

    @property
    def renew_seconds(self) -> float:
        """Between two keepalives."""
        return self.ttl_seconds / 4

    @property
    def rpc_seconds(self) -> float:
        """What one call may take: under a third of the TTL, so that a second try fits."""
        return self.ttl_seconds / 4


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, as the leader key says."""

    node: str
    address: str
    since: str
    token: int


def leader_key(key_prefix: str) -> str:
    """The key of the installation's leader."""
    return f"{key_prefix}/leader"


def read_leader(endpoints: str, key_prefix: str, *, timeout_seconds: float = 2.0) -> Leader | None:
    """Who leads now, or None. Raises EtcdUnavailable. For command lines: it runs its own loop."""

    async def read() -> Leader | None:
        async with Etcd(endpoints, timeout_seconds) as etcd:
            found = await etcd.any_member(lambda: etcd.read(leader_key(key_prefix)))
        if found is None:
            return None
        says = json.loads(found.value)
        return Leader(says["node"], says["address"], says["since"], found.token)

    return asyncio.run(read())


def etcd_identity(endpoints: str, key_prefix: str, *, make: bool, timeout_seconds: float = 2.0) -> str | None:
    """Which etcd this is, by a key that the first leader leaves there; None: it has none.

    ``make`` leaves one if there is none. Raises EtcdUnavailable. It runs its own loop.
    """
    key = f"{key_prefix}/identity"

    async def ask() -> str | None:
        async with Etcd(endpoints, timeout_seconds) as etcd:
            if make:
                return await etcd.any_member(lambda: etcd.keep_first(key, uuid.uuid4().hex))
            found = await etcd.any_member(lambda: etcd.read(key))
        return None if found is None else found.value.decode()

    return asyncio.run(ask())


class Elector:
    """Campaigns for one installation. Used by one thread; its etcd calls run in their own."""

    def __init__(
        self, endpoints: str, key_prefix: str, node_name: str, settings: ElectionSettings, clock: Clock
    ) -> None:
        self._endpoints = endpoints
        self._key = leader_key(key_prefix)
        self._node = node_name
        self._settings = settings
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._term: Term | None = None
        self._holding: asyncio.Task[None] | None = None
        self._released = threading.Event()  # nothing of ours is left in etcd, as far as we know
        self._released.set()

    def campaign(self, stop: threading.Event) -> Term | None:
        """Wait until elected, or until ``stop`` is set: then None. Outlasts etcd's absences."""
        if self._term is not None and not self._term.over.is_set():
            raise RuntimeError(f"term {self._term.token} has not ended")
        self._released.wait()
        if stop.is_set():  # or it would stand once more, and win what it has just given up
            return None
        loop, stopping = self._start(), asyncio.Event()
        running = asyncio.run_coroutine_threadsafe(self._campaign(stopping), loop)
        while not concurrent.futures.wait([running], STOP_POLL_SECONDS).done:
            if stop.is_set():
                loop.call_soon_threadsafe(stopping.set)
        term = running.result()
        if term is not None and stop.is_set():
            self.resign(term)
            return None
        return term

    def resign(self, term: Term, reason: str = "resigned") -> bool:
        """End the term and give the key back; whether that was seen to happen in time."""
        term.end(reason)
        return term is not self._term or self._released.wait(2 * self._settings.rpc_seconds)

    def close(self) -> None:
        """Resign if leading and stop the thread. May be called twice."""
        if self._term is not None:
            self.resign(self._term, "the process is stopping")
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="election", daemon=True)
            self._thread.start()
        return self._loop

    async def _wind_up(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # grpc still hands over the ends of cancelled calls; at a closed loop it would stumble.
        await self._clock.asleep(FIRST_PAUSE_SECONDS / 2)

    # ---- in the elector's thread: waiting and winning -----------------------------------------

    async def _campaign(self, stopping: asyncio.Event) -> Term | None:
        standing = asyncio.create_task(self._stand_until_elected())
        stop = asyncio.create_task(stopping.wait())
        await asyncio.wait({standing, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        standing.cancel()  # does nothing if it has won just now
        try:
            return await standing
        except asyncio.CancelledError:
            return None

    async def _stand_until_elected(self) -> Term:
        patience = Patience(self._clock, "campaign")
        async with Etcd(self._endpoints, self._settings.rpc_seconds) as etcd:
            while True:
                try:
                    holder = await etcd.read(self._key)
                    if holder is not None:
                        await self._watch(etcd, holder)
                    elif (term := await self._stand(etcd)) is not None:
                        return term
                    patience.over()
                except EtcdUnavailable as error:
                    await patience.pause(error)

    async def _stand(self, etcd: Etcd) -> Term | None:
        """One try for an absent key. Whatever goes wrong, we do not lead."""
        ttl = self._settings.ttl_seconds
        window = TrustWindow(self._settings.margin_seconds)
        sent_at = self._clock.boot_ns()
        lease = await etcd.grant(ttl)
        won = False
        try:
            says = {
                "node": self._node,
                "address": self._settings.address,
                "since": iso(self._clock.wall_us()),
            }
            token = await etcd.put_if_absent(self._key, json.dumps(says), lease)
            if token is None:
                return None
            window.renewed(sent_at, ttl)
            term = Term(token, window, self._clock)
            won = term.trusted()
        finally:
            if not won:
                await etcd.revoke_quietly(lease)
        if not won:
            return None
        self._term = term
        self._released.clear()
        self._holding = asyncio.create_task(self._hold(term, lease))
        log.info("elected leader", extra={"action": "elected", "token": token, "node": self._node})
        return term

    async def _watch(self, etcd: Etcd, holder: KeyValue) -> None:
        """Return when that key was deleted, or after a TTL to be sure."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.ttl_seconds):
                await etcd.watch_until_deleted(self._key, holder.revision + 1)

    # ---- in the elector's thread: leading -----------------------------------------------------

    async def _hold(self, term: Term, lease: int) -> None:
        """Keep the lease until the term is over, then give it back."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        term.on_over(lambda: loop.call_soon_threadsafe(over.set))
        tasks = [
            asyncio.create_task(self._or_end(term, self._keep_alive(term, lease))),
            asyncio.create_task(self._or_end(term, self._guard(term))),
        ]
        try:
            while term.trusted():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), term.remaining_seconds)
            log.info(
                "the term is over",
                extra={"action": "term_over", "token": term.token, "reason": term.reason},
            )
        finally:
            term.end("the elector was stopped")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            async with Etcd(self._endpoints, self._settings.rpc_seconds) as etcd:
                await etcd.revoke_quietly(lease)
            self._released.set()

    async def _or_end(self, term: Term, watching: Coroutine[Any, Any, None]) -> None:
        """A watcher of the term that fails ends it: unwatched it must not go on."""
        try:
            await watching
        except Exception as error:
            log.exception("the term's watcher failed", extra={"action": "term_over", "token": term.token})
            term.end(f"the term's watcher failed: {error!r}")

    async def _keep_alive(self, term: Term, lease: int) -> None:
        patience = Patience(self._clock, "keepalive")
        async with Etcd(self._endpoints, self._settings.rpc_seconds) as etcd:
            while term.trusted():
                try:
                    sent_at = self._clock.boot_ns()
                    left = await etcd.keep_alive(lease)
                    if left <= 0:
                        term.end("the lease has expired")
                        return
                    term.renewed(sent_at, min(left, self._settings.ttl_seconds))
                    patience.over()
                except EtcdUnavailable as error:
                    await patience.pause(error)
                else:
                    await self._clock.asleep(self._settings.renew_seconds)

    async def _guard(self, term: Term) -> None:
        """End the term when the key it stands on is gone, though the lease may live."""
        patience = Patience(self._clock, "watch of the leader key", level=logging.DEBUG)
        async with Etcd(self._endpoints, self._settings.rpc_seconds) as etcd:
            while term.trusted():
                try:
                    holder = await etcd.read(self._key)
                    if holder is None or holder.token != term.token:
                        term.end("the leader key is gone")
                        return
                    await self._watch(etcd, holder)
                    patience.over()
                except EtcdUnavailable as error:
                    await patience.pause(error)


class Patience:
    """Pauses that grow while etcd fails, and two log lines for an outage however long."""

    def __init__(self, clock: Clock, what: str, level: int = logging.WARNING) -> None:
        self._clock = clock
        self._what = what
        self._level = level
        self._failures = 0

    async def pause(self, error: EtcdUnavailable) -> None:
        """After a failure."""
        if self._failures == 0:
            log.log(self._level, "etcd fails us, trying on: %s", error, extra={"action": self._what})
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10), LONGEST_PAUSE_SECONDS)
        self._failures += 1
        await self._clock.asleep(pause)

    def over(self) -> None:
        """After a success."""
        if self._failures:
            log.log(
                self._level,
                "etcd answers again",
                extra={"action": self._what, "failures": self._failures},
            )
        self._failures = 0
