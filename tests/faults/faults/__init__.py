"""Every fault by its name. Each disturbs, puts right again, and says what it saw."""

from __future__ import annotations

from tests.faults.faults import clocks, disks, etcd, network, points, processes, servers, users
from tests.faults.faults.scene import Disturb, Hit, Missed, Scene

FAULTS: dict[str, Disturb] = {
    **processes.FAULTS,
    **network.FAULTS,
    **servers.FAULTS,
    **etcd.FAULTS,
    **disks.FAULTS,
    **users.FAULTS,
    **clocks.FAULTS,
    **points.faults(),
}

__all__ = ["FAULTS", "Disturb", "Hit", "Missed", "Scene"]
