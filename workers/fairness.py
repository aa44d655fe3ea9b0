"""Who runs next: slots shared fairly between tenants, and between a tenant's jobs.

Waiting runs stand in one line a job. Tenants take turns; within a tenant, jobs
take turns; within a job, first come first served. No job holds more than a
quarter of the slots and no tenant more than three quarters, so that what hangs
leaves room for the rest. Every operation but ``remove`` is O(1).

Pure: knows nothing of time, tasks or Kafka. Called from one thread.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

JOB_SHARE = 0.25
TENANT_SHARE = 0.75


class Waiting(Protocol):
    """What can stand in line."""

    @property
    def tenant(self) -> str: ...

    @property
    def job_id(self) -> int: ...


T = TypeVar("T", bound=Waiting)


@dataclass(slots=True)
class _Line(Generic[T]):
    waiting: deque[T] = field(default_factory=deque)
    running: int = 0


@dataclass(slots=True)
class _Tenant(Generic[T]):
    lines: dict[int, _Line[T]] = field(default_factory=dict)
    ready: OrderedDict[int, None] = field(default_factory=OrderedDict)
    """Jobs with something waiting and room under their cap, in the order of their turns.

    Taken from the front: there a plain dict steps over all that was taken before.
    """
    running: int = 0


class FairQueue(Generic[T]):
    """``put`` what waits, ``take`` what may run now, say ``done`` when it ended."""

    def __init__(self, slots: int, job_share: float = JOB_SHARE, tenant_share: float = TENANT_SHARE) -> None:
        self.slots = slots
        self.job_cap = max(1, int(slots * job_share))
        self.tenant_cap = max(1, int(slots * tenant_share))
        self.running = 0
        self.waiting = 0
        self._tenants: dict[str, _Tenant[T]] = {}
        self._ready: OrderedDict[str, None] = OrderedDict()

    def put(self, entry: T) -> None:
        """Stand in line."""
        tenant = self._tenants.setdefault(entry.tenant, _Tenant())
        line = tenant.lines.setdefault(entry.job_id, _Line())
        line.waiting.append(entry)
        self.waiting += 1
        if line.running < self.job_cap:
            self._job_is_ready(entry.tenant, tenant, entry.job_id)

    def take(self) -> T | None:
        """The next that may run now: it holds a slot until ``done``. None: nothing may."""
        if self.running >= self.slots or not self._ready:
            return None
        name, _ = self._ready.popitem(last=False)
        tenant = self._tenants[name]
        job_id, _ = tenant.ready.popitem(last=False)
        line = tenant.lines[job_id]
        entry = line.waiting.popleft()
        line.running += 1
        tenant.running += 1
        self.running += 1
        self.waiting -= 1
        if line.waiting and line.running < self.job_cap:
            tenant.ready[job_id] = None
        if tenant.ready and tenant.running < self.tenant_cap:
            self._ready[name] = None
        return entry

    def done(self, entry: T) -> None:
        """Give the slot back."""
        tenant = self._tenants[entry.tenant]
        line = tenant.lines[entry.job_id]
        line.running -= 1
        tenant.running -= 1
        self.running -= 1
        if line.waiting:
            self._job_is_ready(entry.tenant, tenant, entry.job_id)
        elif not line.running:
            del tenant.lines[entry.job_id]
        if not tenant.lines:
            del self._tenants[entry.tenant]
        elif tenant.ready and tenant.running < self.tenant_cap:
            self._ready.setdefault(entry.tenant, None)

    def remove(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out of line, without running, everything that is ``unwanted``."""
        removed: list[T] = []
        for name, tenant in list(self._tenants.items()):
            for job_id, line in list(tenant.lines.items()):
                removed += [entry for entry in line.waiting if unwanted(entry)]
                line.waiting = deque(entry for entry in line.waiting if not unwanted(entry))
                if not line.waiting:
                    tenant.ready.pop(job_id, None)
                    if not line.running:
                        del tenant.lines[job_id]
            if not tenant.ready:
                self._ready.pop(name, None)
            if not tenant.lines:
                del self._tenants[name]
        self.waiting -= len(removed)
        return removed

    def _job_is_ready(self, name: str, tenant: _Tenant[T], job_id: int) -> None:
        tenant.ready.setdefault(job_id, None)
        if tenant.running < self.tenant_cap:
            self._ready.setdefault(name, None)
