"""Election against a real etcd: who leads, until when, and what faults do to it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from coordinator.election import ElectionSettings, Elector, leader_key, read_leader
from coordinator.etcd import Etcd, EtcdUnavailable
from coordinator.trust import Term
from cronstream.clock import SystemClock
from stack import process, servers
from stack.home import Home
from tests.support.poll import eventually

TTL = 2
CLOCK = SystemClock()


class Gateway:
    """etcd's HTTP gateway: a second client, to do to the election what a person could do."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def call(self, path: str, **fields: Any) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._endpoint, timeout=5)
        try:
            connection.request("POST", f"/v3/{path}", json.dumps(fields))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert "error" not in answer, answer
        return answer

    def get(self, key: str) -> dict[str, str] | None:
        answer = self.call("kv/range", key=_b64(key))
        return answer["kvs"][0] if "kvs" in answer else None

    def put(self, key: str, value: str) -> int:
        return int(self.call("kv/put", key=_b64(key), value=_b64(value))["header"]["revision"])

    def delete(self, key: str) -> None:
        self.call("kv/deleterange", key=_b64(key))

    def revoke_lease_of(self, key: str) -> None:
        found = self.get(key)
        assert found is not None
        self.call("kv/lease/revoke", ID=found["lease"])

    def compact(self, revision: int) -> None:
        self.call("kv/compaction", revision=revision)


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Candidate:
    """An elector and the thread that campaigns with it."""

    def __init__(self, endpoint: str, prefix: str, name: str, ttl: int = TTL) -> None:
        settings = ElectionSettings(ttl_seconds=ttl, margin_seconds=0.3, address=f"{name}:1")
        self.elector = Elector(endpoint, prefix, name, settings, CLOCK)
        self.stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    def campaign(self) -> Future[Term | None]:
        return self._pool.submit(self.elector.campaign, self.stop)

    def close(self) -> None:
        self.stop.set()
        self._pool.shutdown()
        self.elector.close()


MakeCandidate = Callable[..., Candidate]


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def candidate(prefix: str) -> Iterator[MakeCandidate]:
    with ExitStack() as made:

        def make(endpoint: str, name: str, ttl: int = TTL) -> Candidate:
            one = Candidate(endpoint, prefix, name, ttl)
            made.callback(one.close)
            return one

        yield make


class OwnEtcd:
    """An etcd of the test's own, to be killed, frozen and brought back."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.home.create()
        servers.start(self.home, "etcd")
        self.endpoint = f"127.0.0.1:{self.home.port('etcd')}"

    def kill(self) -> None:
        servers.kill(self.home, "etcd")

    def start(self) -> None:
        servers.start(self.home, "etcd")

    def signal(self, number: signal.Signals) -> None:
        identity = process.running(self.home.pid_file("etcd"))
        assert identity is not None
        os.kill(identity.pid, number)


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[OwnEtcd]:
    own = OwnEtcd(tmp_path / "home")
    yield own
    own.kill()


def won(campaign: Future[Term | None], within: float) -> Term:
    term = campaign.result(within)
    assert term is not None
    return term


def seconds_since(boot_ns: int) -> float:
    return (CLOCK.boot_ns() - boot_ns) / 1e9


# ---- leading, waiting, handing over ------------------------------------------------------------


def test_one_leads_and_one_waits(etcd: str, prefix: str, candidate: MakeCandidate) -> None:
    term = won(candidate(etcd, "a").campaign(), 2)
    waiting = candidate(etcd, "b").campaign()
    with pytest.raises(TimeoutError):
        waiting.result(1.5 * TTL)  # keepalives carry the leader past its first lease
    assert term.trusted()
    leader = read_leader(etcd, prefix)
    assert leader is not None
    assert (leader.node, leader.address, leader.token) == ("a", "a:1", term.token)
    assert leader.since.endswith("Z")


def test_nobody_leads_before_the_first_campaign(etcd: str, prefix: str) -> None:
    assert read_leader(etcd, prefix) is None


def test_resigning_hands_over_within_a_second(etcd: str, candidate: MakeCandidate) -> None:
    a, b = candidate(etcd, "a"), candidate(etcd, "b")
    first = won(a.campaign(), 2)
    waiting = b.campaign()
    with pytest.raises(TimeoutError):
        waiting.result(0.5)
    started = CLOCK.boot_ns()
    assert a.elector.resign(first)
    second = won(waiting, 1)
    assert seconds_since(started) < 1
    assert second.token > first.token
    assert not first.trusted()
    assert first.reason == "resigned"


def test_the_token_grows_with_each_term_of_one_node(etcd: str, candidate: MakeCandidate) -> None:
    a = candidate(etcd, "a")
    tokens = []
    for _ in range(5):
        term = won(a.campaign(), 2)
        tokens.append(term.token)
        term.end("fenced by a store")  # the lease is given back for any reason
    assert tokens == sorted(set(tokens))


def test_a_second_campaign_while_leading_is_refused(etcd: str, candidate: MakeCandidate) -> None:
    a = candidate(etcd, "a")
    won(a.campaign(), 2)
    with pytest.raises(RuntimeError, match="has not ended"):
        a.campaign().result(1)


def test_a_standby_stops_when_told(etcd: str, candidate: MakeCandidate) -> None:
    won(candidate(etcd, "a").campaign(), 2)
    b = candidate(etcd, "b")
    waiting = b.campaign()
    with pytest.raises(TimeoutError):
        waiting.result(0.3)
    b.stop.set()
    assert waiting.result(0.5) is None


def test_who_was_told_to_stop_does_not_stand_once_more(etcd: str, prefix: str, candidate: MakeCandidate) -> None:
    told = threading.Event()
    told.set()
    before = Gateway(etcd).put(f"{prefix}/else", "1")
    assert candidate(etcd, "a").elector.campaign(told) is None
    assert Gateway(etcd).put(f"{prefix}/else", "2") == before + 1


def test_start_and_stop_under_stress(etcd: str, prefix: str, candidate: MakeCandidate) -> None:
    threads = threading.active_count()
    for turn in range(15):
        one = candidate(etcd, f"n{turn}")
        campaign = one.campaign()
        if turn % 3:
            won(campaign, 2)
        one.close()
    assert read_leader(etcd, prefix) is None
    eventually(lambda: threading.active_count() <= threads + 1, within=2, says="the threads are gone")


def test_two_are_never_trusted_at_once(etcd: str, candidate: MakeCandidate) -> None:
    pair = [candidate(etcd, "a"), candidate(etcd, "b")]
    terms: list[Term] = []
    done = threading.Event()
    overlaps: list[tuple[int, int]] = []

    def judge() -> None:
        # Trust never comes back to a term: old, new, old all trusted means both at one time.
        while not done.is_set():
            for old, new in zip(terms[-3:], terms[-2:], strict=False):
                if old.trusted() and new.trusted() and old.trusted():
                    overlaps.append((old.token, new.token))

    judging = threading.Thread(target=judge)
    judging.start()
    try:
        campaigns = [one.campaign() for one in pair]
        for turn in range(40):
            leads = next(i for i in _forever(range(2)) if campaigns[i].done() or _wait(campaigns[i]))
            term = won(campaigns[leads], 0)
            terms.append(term)
            if turn % 2:
                pair[leads].elector.resign(term)
            else:
                term.end("fenced by a store")
            campaigns[leads] = pair[leads].campaign()
    finally:
        done.set()
        judging.join()
    assert overlaps == []
    assert [term.token for term in terms] == sorted({term.token for term in terms})


def _forever(these: range) -> Iterator[int]:
    for _ in range(500):
        yield from these
    raise AssertionError("nobody was elected")


def _wait(campaign: Future[Term | None]) -> bool:
    try:
        campaign.result(0.02)
    except TimeoutError:
        return False
    return True


# ---- the key or the lease is taken away ----------------------------------------------------------


def test_a_revoked_lease_ends_the_term_and_elects_anew(etcd: str, prefix: str, candidate: MakeCandidate) -> None:
    a = candidate(etcd, "a")
    first = won(a.campaign(), 2)
    Gateway(etcd).revoke_lease_of(leader_key(prefix))
    assert first.over.wait(TTL / 4 + 0.5)
    assert first.reason in ("the lease has expired", "the leader key is gone")
    second = won(a.campaign(), 2 * TTL)
    assert second.token > first.token


def test_a_deleted_key_ends_the_term_though_the_lease_lives(etcd: str, prefix: str, candidate: MakeCandidate) -> None:
    first = won(candidate(etcd, "a").campaign(), 2)
    Gateway(etcd).delete(leader_key(prefix))
    assert first.over.wait(0.5)
    assert first.reason == "the leader key is gone"


def test_compaction_does_not_deafen_a_standby(etcd: str, prefix: str, candidate: MakeCandidate) -> None:
    a, b = candidate(etcd, "a"), candidate(etcd, "b")
    first = won(a.campaign(), 2)
    waiting = b.campaign()
    with pytest.raises(TimeoutError):
        waiting.result(0.3)
    gateway = Gateway(etcd)
    for turn in range(20):
        last = gateway.put(f"{prefix}/noise", str(turn))
    gateway.compact(last)
    a.elector.resign(first)
    won(waiting, 1)


def test_a_watch_from_a_compacted_revision_says_so(etcd: str, prefix: str) -> None:
    gateway = Gateway(etcd)
    first = gateway.put(f"{prefix}/leader", "x")
    gateway.compact(gateway.put(f"{prefix}/noise", "y"))

    async def watch() -> None:
        async with Etcd(etcd, 1) as client:
            await client.watch_until_deleted(f"{prefix}/leader", first)

    with pytest.raises(EtcdUnavailable, match=r"cancelled the watch: .*compacted"):
        asyncio.run(asyncio.wait_for(watch(), 3))


# ---- etcd goes away --------------------------------------------------------------------------------


def test_a_leader_outlasts_a_quick_restart_of_etcd(own_etcd: OwnEtcd, candidate: MakeCandidate) -> None:
    term = won(candidate(own_etcd.endpoint, "a", ttl=10).campaign(), 2)
    own_etcd.kill()
    own_etcd.start()
    deadline = term.remaining_seconds
    eventually(lambda: term.remaining_seconds > deadline, within=6, says="a keepalive got through")
    assert term.trusted()


def test_after_a_crash_of_etcd_there_is_a_leader_again(
    own_etcd: OwnEtcd, candidate: MakeCandidate, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = candidate(own_etcd.endpoint, "a"), candidate(own_etcd.endpoint, "b")
    first = won(a.campaign(), 2)
    waiting = b.campaign()
    with pytest.raises(TimeoutError):
        waiting.result(0.3)
    with caplog.at_level(logging.INFO, logger="coordinator"):
        own_etcd.kill()
        assert first.over.wait(TTL)
        assert first.reason == "the trust window closed before the lease was renewed"
        again = a.campaign()
        with pytest.raises(TimeoutError):
            again.result(2)
        own_etcd.start()
        eventually(lambda: again.done() or waiting.done(), within=3 * TTL + 2, says="somebody leads")
    winner = won(again if again.done() else waiting, 1)
    assert winner.token > first.token
    assert len([r for r in caplog.records if r.name.startswith("coordinator")]) <= 12


def test_a_frozen_etcd_ends_the_term_at_the_trust_deadline(own_etcd: OwnEtcd, candidate: MakeCandidate) -> None:
    term = won(candidate(own_etcd.endpoint, "a").campaign(), 2)
    own_etcd.signal(signal.SIGSTOP)
    try:
        started, left = CLOCK.boot_ns(), term.remaining_seconds
        assert term.over.wait(TTL + 1)  # by itself: nobody asks
        # A keepalive on its way may still have been answered: then the deadline is a renewal later.
        assert left - 0.01 <= seconds_since(started) <= TTL
        assert term.reason == "the trust window closed before the lease was renewed"
    finally:
        own_etcd.signal(signal.SIGCONT)


def test_campaigning_without_etcd_is_quiet_and_ends_when_told(
    own_etcd: OwnEtcd, candidate: MakeCandidate, caplog: pytest.LogCaptureFixture
) -> None:
    own_etcd.kill()
    a = candidate(own_etcd.endpoint, "a")
    with caplog.at_level(logging.INFO, logger="coordinator"):
        campaign = a.campaign()
        with pytest.raises(TimeoutError):
            campaign.result(4)
        a.stop.set()
        assert campaign.result(1) is None
    assert len([r for r in caplog.records if r.name.startswith("coordinator")]) == 1
    with pytest.raises(EtcdUnavailable):
        read_leader(own_etcd.endpoint, "x", timeout_seconds=0.5)


def test_the_next_endpoint_is_tried(own_etcd: OwnEtcd, candidate: MakeCandidate) -> None:
    nobody = f"127.0.0.1:{own_etcd.home.port('nobody')}"
    assert won(candidate(f"{nobody},{own_etcd.endpoint}", "a").campaign(), 3).trusted()
