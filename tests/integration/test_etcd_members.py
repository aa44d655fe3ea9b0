"""An etcd of three members: one may go, two may not, and whoever asks once gets an answer all the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from coordinator.election import ElectionSettings, Elector, etcd_identity, read_leader
from coordinator.trust import Term
from cronstream.clock import SystemClock
from stack import etcd as members
from stack import servers
from stack.home import Home
from tests.support.poll import eventually

PREFIX = "members"
TTL = 3


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Three members, all of them up."""
    home = Home(tmp_path_factory.mktemp("members") / "home", etcd_members=3)
    start(home, home.etcd_members)
    yield home
    for name in home.etcd_members:
        servers.kill(home, name)


@contextmanager
def without(home: Home, *names: str) -> Iterator[None]:
    """While these members are dead."""
    for name in names:
        servers.kill(home, name)
    try:
        yield
    finally:
        start(home, names)


def start(home: Home, names: tuple[str, ...]) -> None:
    # One that begins anew is ready only when others are there too.
    for name in names:
        servers.launch(home, name)
    for name in names:
        servers.wait_ready(home, name)


@contextmanager
def campaigning(home: Home, node: str) -> Iterator[tuple[Elector, Future[Term | None]]]:
    settings = ElectionSettings(ttl_seconds=TTL, margin_seconds=0.3, address=f"{node}:1")
    elector = Elector(endpoints(home), PREFIX, node, settings, SystemClock())
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        try:
            yield elector, pool.submit(elector.campaign, stop)
        finally:
            stop.set()
            elector.close()


def endpoints(home: Home) -> str:
    return home.environment()["CRONSTREAM_ETCD"]


def won(campaign: Future[Term | None]) -> Term:
    term = campaign.result(20)
    assert term is not None
    return term


def test_whichever_member_is_gone_what_is_asked_once_is_answered(home: Home) -> None:
    """With the first one gone no candidate could take office: it asks for etcd's identity once."""
    with campaigning(home, "a") as (_, campaign):
        won(campaign)
        named = etcd_identity(endpoints(home), PREFIX, make=True)
        for name in home.etcd_members:
            with without(home, name):
                eventually(lambda: members.leading(home) is not None, within=20, says="two of three have a leader")
                assert etcd_identity(endpoints(home), PREFIX, make=True) == named, name
                assert etcd_identity(endpoints(home), PREFIX, make=False) == named, name
                read_leader(endpoints(home), PREFIX)


def test_who_resigns_while_the_first_member_is_gone_is_followed_at_once(home: Home) -> None:
    """Or the lease would have to run out: nobody else could give it back."""
    with without(home, "etcd"):
        eventually(lambda: members.leading(home) is not None, within=20, says="two of three have a leader")
        with campaigning(home, "a") as (elector, campaign):
            assert elector.resign(won(campaign))
            assert read_leader(endpoints(home), PREFIX) is None


def test_etcd_loses_the_member_that_leads_it(home: Home) -> None:
    leading = members.leading(home)
    assert leading is not None
    with campaigning(home, "a") as (elector, campaign):
        term = won(campaign)
        with without(home, leading):
            eventually(
                lambda: members.leading(home) not in (None, leading), within=20, says="another member leads etcd"
            )
            if term.over.wait(TTL):  # members may need longer to agree than a lease lasts
                following = won(_again(elector))
                assert following.token > term.token
            leader = read_leader(endpoints(home), PREFIX)
            assert leader is not None
            assert leader.node == "a"


def test_without_a_quorum_nobody_leads_until_it_is_back(home: Home) -> None:
    with campaigning(home, "a") as (elector, campaign):
        term = won(campaign)
        with without(home, *home.etcd_members[1:]):
            # A member that led etcd may renew the lease until it notices that it is alone.
            assert term.over.wait(TTL + 10)
            again = _again(elector)
            with pytest.raises(TimeoutError):
                again.result(2)
        assert won(again).token > term.token


def _again(elector: Elector) -> Future[Term | None]:
    campaign: Future[Term | None] = Future()

    def stand() -> None:
        campaign.set_result(elector.campaign(threading.Event()))

    threading.Thread(target=stand, daemon=True).start()
    return campaign
