"""A link passes, holds back or breaks; what was held back arrives when it is healed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.faults.links import Link, Links
from tests.support.poll import eventually


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1000):
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def link() -> Iterator[Link]:
    echo, links = Echo(), Links()
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port: int = chosen.getsockname()[1]
    yield links.make("test", port, echo.port)
    links.close()
    echo.close()


def connected(link: Link) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", link.port), timeout=5)
    connection.sendall(b"one")
    assert connection.recv(10) == b"one"
    return connection


def test_a_silent_link_holds_back_and_delivers_when_it_is_healed(link: Link) -> None:
    with connected(link) as connection:
        link.cut("silent")
        connection.sendall(b"two")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(10)
        assert link.held
        link.heal()
        connection.settimeout(5)
        assert connection.recv(10) == b"two"


def test_a_new_connection_over_a_silent_link_gets_no_answer_until_it_is_healed(link: Link) -> None:
    link.cut("silent")
    with socket.create_connection(("127.0.0.1", link.port), timeout=5) as connection:
        connection.sendall(b"one")
        eventually(lambda: link.held, within=5)
        link.heal()
        assert connection.recv(10) == b"one"


def sent_until_it_breaks(connection: socket.socket) -> None:
    """Raises ConnectionError when the other side resets or closes."""
    while connection.send(b"x"):
        if connection.recv(10) == b"":
            raise ConnectionResetError


def test_a_broken_link_resets_what_is_open_and_refuses_what_is_new(link: Link) -> None:
    with connected(link) as connection:
        link.cut("broken")
        assert link.held
        with pytest.raises(ConnectionError):
            sent_until_it_breaks(connection)
    with socket.create_connection(("127.0.0.1", link.port), timeout=5) as refused, pytest.raises(ConnectionError):
        sent_until_it_breaks(refused)
    link.heal()
    connected(link).close()
