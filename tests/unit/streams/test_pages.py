"""The status pages over real HTTP, on tables that are dicts: several processes, tokens, the document."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from cronstream.clock import SECOND, iso
from cronstream.records import Kind
from cronstream.settings import SettingsError, StreamsSettings, read_settings
from cronstream.topics import partition_of
from streams.access import is_let_in
from streams.app import JOBS
from streams.forwarding import FORWARDED
from streams.index import JobIndex, entry_of
from streams.listing import Question
from streams.openapi import DOCUMENT, SCHEMAS
from streams.serving import JsonRunner
from streams.settlement import Tables
from streams.status import JobStatus, key_of
from streams.web import StatusPages
from tests.support.schemas import violations
from tests.unit.streams.making import NOON, cancel, outcome, outcomes, settle, skipped

PARTITIONS = 4
ENV = {"CRONSTREAM_POSTGRES": "host=x", "CRONSTREAM_KAFKA": "k:1", "CRONSTREAM_ETCD": "e:1"}
JOBS_KNOWN = range(1, 41)


def statuses() -> dict[int, JobStatus]:
    """Jobs 1 to 40: every fourth failed, 8 runs, 9 was skipped, 12 is deleted."""
    items = [outcome(Kind.FAILED if job % 4 == 0 else Kind.SUCCEEDED, job) for job in JOBS_KNOWN]
    items += [outcome(Kind.STARTED, 8, NOON + 60 * SECOND), skipped(9, NOON + 60 * SECOND), cancel(12)]
    return settle(Tables(lambda _: None, lambda _: None, 100), outcomes(items), 7).statuses


class FakeApp:
    """What the pages ask of the Faust app: partitions, their tables and indexes."""

    def __init__(self, settings: StreamsSettings, owned: set[int]) -> None:
        self.settings = settings
        self.owned = owned
        self.membership = SimpleNamespace(trusted=lambda: bool(self.owned))
        self.lanes: dict[Any, Any] = {}
        self.counts: Counter[str] = Counter(admitted=3)
        rows: list[dict[bytes, bytes]] = [{} for _ in range(PARTITIONS)]
        self.indexes = [JobIndex() for _ in range(PARTITIONS)]
        for job_id, status in statuses().items():
            rows[partition_of(job_id, PARTITIONS)][key_of(job_id)] = status.encode()
            self.indexes[partition_of(job_id, PARTITIONS)].put([entry_of(job_id, status)])
        topic = SimpleNamespace(get_topic_name=lambda: "changelog")
        data = SimpleNamespace(_db_for_partition=rows.__getitem__)
        self.tables = {JOBS: SimpleNamespace(data=data, changelog_topic=topic)}

    def lane_of(self, topic: str, partition: int) -> object | None:
        return "lane" if partition in self.owned else None

    def index_of(self, partition: int) -> JobIndex | None:
        return self.indexes[partition]

    def running(self) -> int | None:
        return None


class Fleet:
    """Processes on loopback that know of one another."""

    def __init__(self, session: aiohttp.ClientSession, token: str | None) -> None:
        self.session = session
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.apps: list[FakeApp] = []
        self.addresses: list[str] = []

    def address_of(self, partition: int) -> str | None:
        owners = (address for app, address in zip(self.apps, self.addresses, strict=True) if partition in app.owned)
        return next(owners, None)

    async def get(self, path: str, process: int = 0, **options: Any) -> tuple[int, Any]:
        url = f"http://{self.addresses[process]}{path}"
        async with self.session.get(url, **{"headers": self.headers, **options}) as answer:
            if answer.status == 503:
                assert answer.headers["Retry-After"] == "1"
            return answer.status, await answer.json()

    async def listed(self, path: str, process: int = 0) -> list[int]:
        code, body = await self.get(path, process)
        assert code == 200, body
        return [job["job_id"] for job in body["jobs"]]


@asynccontextmanager
async def running(*owned: set[int], token_file: str | None = None, token: str | None = None) -> AsyncIterator[Fleet]:
    variables = ENV | ({"CRONSTREAM_STATUS_TOKEN_FILE": token_file} if token_file else {})
    runners = []
    async with aiohttp.ClientSession() as session:
        fleet = Fleet(session, token)
        for number, partitions in enumerate(owned):
            settings = read_settings(StreamsSettings, {**variables, "CRONSTREAM_NODE": f"s{number}"})
            app: Any = FakeApp(settings, partitions)
            owners: Any = fleet
            runner = JsonRunner(StatusPages(app, owners).routes())
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            fleet.apps.append(app)
            fleet.addresses.append("{}:{}".format(*runner.addresses[0][:2]))
            runners.append(runner)
        try:
            yield fleet
        finally:
            for runner in runners:
                await runner.cleanup()


def tell(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 30))  # type: ignore[arg-type]


def test_any_process_lists_a_tenant_s_jobs_of_all_partitions() -> None:
    async def story() -> None:
        async with running({0}, {1, 2}, {3}, set()) as fleet:
            for process in range(4):
                assert await fleet.listed("/tenants/acme/jobs", process) == [j for j in JOBS_KNOWN if j != 12]
                failed = await fleet.listed("/tenants/acme/jobs?state=failed", process)
                assert failed == [j for j in JOBS_KNOWN if j % 4 == 0 and j not in (8, 12)]
            assert await fleet.listed("/tenants/acme/jobs?state=running") == [8]
            assert await fleet.listed("/tenants/acme/jobs?state=skipped") == [9]
            assert await fleet.listed("/tenants/acme/jobs?state=deleted") == [12]
            assert await fleet.listed("/tenants/nobody%2Fat%20all/jobs") == []

    tell(story)


def test_pages_follow_one_another_by_after() -> None:
    async def story() -> None:
        async with running({0, 1}, {2, 3}) as fleet:
            found: list[int] = []
            after: int | None = 0
            while after is not None:
                _, page = await fleet.get(f"/tenants/acme/jobs?limit=7&after={after}")
                found += [job["job_id"] for job in page["jobs"]]
                after = page["after"]
            assert found == [j for j in JOBS_KNOWN if j != 12]

    tell(story)


def test_while_a_partition_moves_there_is_no_page_at_all() -> None:
    async def story() -> None:
        async with running({0, 1}, {2, 3}) as fleet:
            fleet.apps[1].owned = {2}
            assert (await fleet.get("/tenants/acme/jobs"))[0] == 503
            assert (await fleet.get("/tenants/acme/jobs", 1))[0] == 503
            fleet.apps[0].owned = {0, 1, 3}
            assert len(await fleet.listed("/tenants/acme/jobs", 1)) == 39

    tell(story)


def test_an_owner_that_is_not_sure_makes_the_whole_answer_unsure() -> None:
    async def story() -> None:
        async with running({0, 1}, {2, 3}) as fleet:
            fleet.apps[1].index_of = lambda _: None  # type: ignore[method-assign]
            code, body = await fleet.get("/tenants/acme/jobs")
            assert code == 503
            assert "not sure" in body["error"]
            one = next(job for job in JOBS_KNOWN if partition_of(job, PARTITIONS) == 3)
            assert (await fleet.get(f"/jobs/{one}"))[0] == 200

    tell(story)


WHEN = iso(NOON)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/tenants/acme/jobs?state=bad", "state is one of running, "),
        ("/tenants/acme/jobs?limit=0", 'limit is a whole number from 1 to 1000, not "0"'),
        ("/tenants/acme/jobs?limit=1001", "limit is"),
        ("/tenants/acme/jobs?after=-3", "after is a whole number from 0"),
        ("/tenants/acme/jobs?after=x", "after is"),
        (
            "/tenants/acme/jobs?stat=failed",
            'no parameter "stat"; did you mean state?: this page takes after, limit, state',
        ),
        ("/tenants/acme/jobs?partitions=1", 'no parameter "partitions": '),
        ("/jobs/abc", 'job_id is a whole number from 0 to 9223372036854775807, not "abc"'),
        ("/jobs/9223372036854775808", "job_id is"),
        ("/jobs/00000000000000000017", "job_id is"),
        ("/jobs/17?verbose=1", 'no parameter "verbose": this page takes none'),
        ("/jobs/abc/runs/2026-11-29T19:30:00Z", "job_id is"),
        (
            "/jobs/1/runs/noon",
            'scheduled_time is an instant with its offset, such as "2026-03-08T07:00:00Z", not "noon"',
        ),
        ("/jobs/1/runs/2026-11-29T19:30:00", "scheduled_time is an instant with its offset"),
        (f"/jobs/1/runs/{WHEN}?request_id=x", 'request_id is a whole number from 0 to 9223372036854775807, not "x"'),
        (f"/jobs/1/runs/{WHEN}?request=4", 'no parameter "request"; did you mean request_id?'),
        ("/stats?a=1", 'no parameter "a": this page takes none'),
        ("/health?a=1", 'no parameter "a"'),
        ("/openapi.json?a=1", 'no parameter "a"'),
        ("/tenants/acme/jobs?limit=1&limit=2", "limit is given twice: say it once"),
        ("/tenants/acme/jobs?state=failed&state=failed", "state is given twice"),
        (f"/jobs/1/runs/{WHEN}?request_id=1&request_id=2", "request_id is given twice"),
    ],
)
def test_a_parameter_that_is_unknown_or_means_nothing_is_named(path: str, says: str) -> None:
    async def story() -> None:
        async with running({0, 1, 2, 3}) as fleet:
            code, body = await fleet.get(path)
            assert (code, list(body)) == (400, ["error"])
            assert says in body["error"]

    tell(story)


def test_a_peer_s_own_parameter_is_read_as_strictly() -> None:
    async def story() -> None:
        async with running({0, 1, 2, 3}) as fleet:
            headers = {FORWARDED: "s9"}
            assert (await fleet.get("/tenants/acme/jobs?partitions=0,1", headers=headers))[0] == 200
            code, body = await fleet.get("/tenants/acme/jobs?partitions=0,x", headers=headers)
            assert (code, "partitions is a whole number" in body["error"]) == (400, True)

    tell(story)


@pytest.mark.parametrize(
    ("method", "path", "code", "says"),
    [
        ("GET", "/", 404, "no such page; /openapi.json"),
        ("GET", "/jobs", 404, "no such page"),
        ("GET", "/jobs/1/", 404, "no such page"),
        ("POST", "/jobs/1", 405, "this page answers GET, HEAD"),
        ("DELETE", "/nothing", 404, "no such page"),
    ],
)
def test_what_is_no_page_is_answered_as_json_too(method: str, path: str, code: int, says: str) -> None:
    async def story() -> None:
        async with (
            running({0, 1, 2, 3}) as fleet,
            fleet.session.request(method, f"http://{fleet.addresses[0]}{path}") as answer,
        ):
            assert (answer.status, answer.content_type) == (code, "application/json")
            assert says in (await answer.json())["error"]

    tell(story)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /stats HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        (b"GET /stats HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /stats HTTP/1.1\r\nHost: x\r\nExpect: the best\r\n\r\n", 417),
    ],
)
def test_what_is_no_http_is_answered_as_json_without_a_traceback(
    sent: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running({0, 1, 2, 3}) as fleet:
            reader, writer = await asyncio.open_connection(*fleet.addresses[0].split(":"))
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            assert length is not None
            body = orjson.loads(await reader.readexactly(int(length[1])))
            writer.close()
            assert head.split()[1] == str(code).encode()
            assert b"Content-Type: application/json" in head
            assert list(body) == ["error"]

    tell(story)
    assert [record for record in caplog.records if record.exc_info] == []
    assert len(caplog.records) == (1 if code == 400 else 0)


def test_a_page_that_fails_says_so_as_json() -> None:
    async def story() -> None:
        async with running({0, 1, 2, 3}) as fleet:
            fleet.apps[0].counts = None  # type: ignore[assignment]
            code, body = await fleet.get("/stats")
            assert (code, body) == (500, {"error": "this process failed; its log says why"})

    tell(story)


def test_with_a_token_only_health_answers_strangers(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")

    async def story() -> None:
        async with running({0, 1}, {2, 3}, token_file=str(file), token="s3cret") as fleet:
            for path in ("/jobs/1", "/tenants/acme/jobs", "/stats", "/openapi.json", "/nothing"):
                for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cre"}):
                    code, body = await fleet.get(path, headers=headers)
                    assert (code, list(body)) == (401, ["error"])
            assert (await fleet.get("/health", headers={}))[0] == 200
            assert len(await fleet.listed("/tenants/acme/jobs")) == 39  # what is forwarded carries it too
            for job in JOBS_KNOWN:
                assert (await fleet.get(f"/jobs/{job}"))[0] == 200

    tell(story)


def test_strangers_are_let_in_by_the_token_alone() -> None:
    assert is_let_in(None, None)
    assert not is_let_in("", "t")
    assert not is_let_in("Bearer ", "t")
    assert is_let_in("Bearer t", "t")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "status.example"])
def test_no_process_binds_to_where_strangers_are_without_a_token(host: str) -> None:
    with pytest.raises(SettingsError, match="set CRONSTREAM_STATUS_TOKEN_FILE, or bind to 127"):
        read_settings(StreamsSettings, {**ENV, "CRONSTREAM_STATUS_HOST": host})


def test_an_empty_token_is_none() -> None:
    settings = read_settings(StreamsSettings, {**ENV, "CRONSTREAM_STATUS_TOKEN_FILE": "/dev/null"})
    with pytest.raises(SettingsError, match="CRONSTREAM_STATUS_TOKEN_FILE: /dev/null is empty"):
        settings.status_token()


def test_the_document_describes_every_route_and_no_other() -> None:
    settings = read_settings(StreamsSettings, ENV)
    app: Any = FakeApp(settings, set())
    owners: Any = None
    routes = {
        (route.resource.canonical, route.method.lower())
        for route in StatusPages(app, owners).routes().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    described = {(path, method) for path, page in DOCUMENT["paths"].items() for method in page}
    assert described == routes


def test_every_answer_is_as_the_document_says() -> None:
    async def story() -> None:
        async with running({0, 1, 2, 3}) as fleet:
            when = iso(NOON)
            asked = {
                "/jobs/{job_id}": ["/jobs/1", "/jobs/8", "/jobs/9", "/jobs/99", "/jobs/abc"],
                "/jobs/{job_id}/runs/{scheduled_time}": [
                    f"/jobs/1/runs/{when}",
                    f"/jobs/9/runs/{iso(NOON + 60 * SECOND)}",
                    "/jobs/1/runs/noon",
                    f"/jobs/1/runs/{when}?request_id=4",
                ],
                "/tenants/{tenant}/jobs": ["/tenants/acme/jobs?limit=3", "/tenants/x/jobs", "/tenants/x/jobs?limit=x"],
                "/health": ["/health", "/health?x=1"],
                "/stats": ["/stats", "/stats?x=1"],
            }
            assert asked.keys() == DOCUMENT["paths"].keys() - {"/openapi.json"}
            for path, requests in asked.items():
                answers = DOCUMENT["paths"][path]["get"]["responses"]
                for request in requests:
                    code, body = await fleet.get(request)
                    schema = answers[str(code)]["content"]["application/json"]["schema"]
                    assert violations(body, schema, SCHEMAS) == [], request
            for app in fleet.apps:
                app.owned.clear()
            for path, (request, *_) in asked.items():
                code, body = await fleet.get(request)
                schema = DOCUMENT["paths"][path]["get"]["responses"][str(code)]["content"]["application/json"]["schema"]
                assert code == (200 if path == "/stats" else 503)
                assert violations(body, schema, SCHEMAS) == [], request
            code, document = await fleet.get("/openapi.json")
            assert (code, document) == (200, DOCUMENT)

    tell(story)


def test_every_reference_in_the_document_leads_somewhere() -> None:
    references = set(re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(DOCUMENT)))
    assert references <= SCHEMAS.keys()


def test_a_question_survives_being_forwarded() -> None:
    question = Question("a/b c?", "failed", 17, 5)
    path, _, query = question.path([1, 3]).partition("?")
    assert path == "/tenants/a%2Fb%20c%3F/jobs"
    pairs = dict(pair.split("=") for pair in query.replace("%2C", ",").split("&"))
    assert Question.read("a/b c?", pairs) == Question("a/b c?", "failed", 17, 5, (1, 3))
