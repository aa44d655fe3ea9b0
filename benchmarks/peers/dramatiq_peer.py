"""dramatiq on Redis: the actor, and ``python dramatiq_peer.py send SIZE AT``, which queues from that instant on.

PEER_REDIS names the Redis, PEER_FILE where workers write.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["PEER_REDIS"]))
_files = threading.local()


@dramatiq.actor
def job(pad: str) -> None:
    """Says when it ran, in a file of its thread."""
    if not hasattr(_files, "out"):
        name = f"{os.environ['PEER_FILE']}.{os.getpid()}-{threading.get_ident()}.part"
        _files.out = open(name, "w", buffering=1)  # noqa: SIM115
    _files.out.write(f"{time.time_ns() // 1000}\n")


def send(size: int, at: float) -> None:
    """As fast as one process can."""
    time.sleep(max(0.0, at - time.time()))
    for number in range(size):
        job.send(f"{number:0256d}")


if __name__ == "__main__":
    # Through the module's own name, as the workers know the actor.
    import dramatiq_peer

    dramatiq_peer.send(int(sys.argv[2]), float(sys.argv[3]))
