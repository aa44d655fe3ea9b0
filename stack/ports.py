"""Free ports, chosen once and kept.

They lie below the range from which the kernel takes ports for outgoing
connections, so that a server which restarts finds its own port free.
"""

from __future__ import annotations

import http.client
import random
import socket
from collections.abc import Collection

FIRST, LAST = 20_000, 31_999


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Only a listener counts, not the remains of closed connections.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def choose(taken: Collection[int] = ()) -> int:
    """A free port that is not in ``taken``."""
    for port in random.SystemRandom().sample(range(FIRST, LAST + 1), 500):
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port between {FIRST} and {LAST}")


def serves(port: int, path: str) -> bool:
    """Whether ``path`` answers 200 there; asked once, for a few seconds at most."""
    return read(port, path) is not None


def read(port: int, path: str) -> bytes | None:
    """What ``path`` answers there with 200; None if it does not. Asked once, for a few seconds at most."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3.0)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
