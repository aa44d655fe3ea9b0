"""A tenant's jobs across all partitions: what is owned here is read, the owners of the rest are asked at once.

Either every partition answers, or the whole answer is a ``Moving``: a page that lacks
a partition would be a wrong one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from streams.forwarding import Forwarding
from streams.lookup import Lookup, Moving
from streams.parameters import LARGEST_ID, number, numbers, one_of
from streams.status import STATES

MOST = 1000
USUAL = 100


@dataclass(frozen=True, slots=True)
class Question:
    """Which jobs: of a tenant, in a state (None: all but deleted), above an id, so many."""

    tenant: str
    state: str | None = None
    after: int = -1
    limit: int = USUAL
    partitions: tuple[int, ...] | None = None
    """Only these, asked by another streams process; None: all."""

    @classmethod
    def read(cls, tenant: str, query: Mapping[str, str]) -> Question:
        """From the path and the query. Raises BadQuestion."""
        return cls(
            tenant,
            one_of(query, "state", STATES),
            number(query, "after", -1, 0, LARGEST_ID),
            number(query, "limit", USUAL, 1, MOST),
            numbers(query, "partitions"),
        )

    def path(self, partitions: Iterable[int]) -> str:
        """The same question as a request about some partitions."""
        query: dict[str, object] = {"limit": self.limit, "partitions": ",".join(map(str, partitions))}
        if self.state is not None:
            query["state"] = self.state
        if self.after >= 0:
            query["after"] = self.after
        return f"/tenants/{quote(self.tenant, safe='')}/jobs?{urlencode(query)}"


async def answer(question: Question, partitions: int, lookup: Lookup, forwarding: Forwarding) -> dict[str, Any]:
    """The page: jobs by id, and the ``after`` of the next page. Raises Moving."""
    here: list[int] = []
    elsewhere: dict[str, list[int]] = defaultdict(list)
    for partition in range(partitions) if question.partitions is None else question.partitions:
        if question.partitions is not None or lookup.is_ours(partition):
            here.append(partition)
        else:
            elsewhere[forwarding.owner_of(partition)].append(partition)
    asked = asyncio.gather(*(_ask(forwarding, address, question.path(theirs)) for address, theirs in elsewhere.items()))
    found = [job for jobs in await asked for job in jobs]
    for partition in here:
        found += lookup.jobs(partition, question.tenant, question.state, question.after, question.limit)
    return page(found, question.limit)


def page(found: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """The first ``limit`` jobs by id; ``after`` is None where no more can follow."""
    jobs = sorted(found, key=lambda job: int(job["job_id"]))[:limit]
    return {"jobs": jobs, "after": jobs[-1]["job_id"] if len(jobs) == limit else None}


async def _ask(forwarding: Forwarding, address: str, path: str) -> list[dict[str, Any]]:
    code, body = await forwarding.get(address, path)
    if code != 200:
        raise Moving(f"the owner at {address} answers {code}: {body.decode(errors='replace')}")
    jobs: list[dict[str, Any]] = orjson.loads(body)["jobs"]
    return jobs
