"""The ground floor: batches on the wire, partitions, settings, clocks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronstream.bodies import PoisonItem, Policy, Work, pack, work_of
from cronstream.clock import Anchor, FakeClock, iso, to_datetime, to_us
from cronstream.records import Batch, Item, Kind, PoisonRecord, Source, in_batches
from cronstream.settings import (
    AlertSettings,
    CoordinatorSettings,
    HistorySettings,
    Installation,
    SettingsError,
    WorkerSettings,
    read_settings,
)
from cronstream.topics import murmur2, partition_of, partitions_of

ids = st.integers(min_value=-(2**63), max_value=2**63 - 1)
items = st.builds(Item, st.sampled_from(Kind), ids, ids, ids, st.integers(0, 2**31 - 1), st.binary(max_size=40))


@given(st.lists(items, max_size=20))
def test_a_batch_comes_back_as_it_was(given_items: list[Item]) -> None:
    source = Source("t", 1, 2, 3)
    batch = Batch.decode(Batch.of(given_items, token=7, published_at=9, source=source).encode())
    assert list(batch.items()) == given_items
    assert (batch.token, batch.published_at, batch.source) == (7, 9, source)


@given(st.lists(items, max_size=20), st.data())
def test_a_selection_holds_the_chosen_items(given_items: list[Item], data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(given_items), max_size=len(given_items)))
    batch = Batch.of(given_items, token=1, published_at=1).select(np.array(mask, np.bool_))
    assert list(batch.items()) == [item for item, kept in zip(given_items, mask, strict=True) if kept]


def test_an_item_of_an_unknown_kind_is_poison_alone() -> None:
    known = Item(Kind.RUN, 1, 2, body=b"abc", not_before=9)
    batch = replace(Batch.of([known, known], token=1, published_at=1), kind=np.array([250, Kind.RUN], np.uint8))
    unknown, item = batch.each()
    assert isinstance(unknown, PoisonItem)
    assert "250" in str(unknown)
    assert item == batch.item(1) == known
    with pytest.raises(PoisonItem, match="250"):
        list(batch.items())


@given(st.binary(max_size=200))
def test_noise_is_poison_and_nothing_else(noise: bytes) -> None:
    with pytest.raises(PoisonRecord):
        Batch.decode(noise)


def test_a_cut_batch_is_poison() -> None:
    value = Batch.of([Item(Kind.RUN, 1, 2, body=b"abc")], token=1, published_at=1).encode()
    for cut in range(len(value)):
        with pytest.raises(PoisonRecord):
            Batch.decode(value[:cut])


def test_a_bad_body_is_poison_alone() -> None:
    with pytest.raises(PoisonItem):
        work_of(b"\xc1")
    work = Work("t", "n", "http", b"{}", Policy())
    assert work_of(pack(work)) == work


@given(st.lists(items, max_size=30), st.integers(1, 7), st.integers(1, 60))
def test_batches_lose_nothing_and_keep_their_bounds(given_items: list[Item], most: int, size: int) -> None:
    batches = list(in_batches(given_items, most, size))
    assert [item for batch in batches for item in batch] == given_items
    assert all(len(batch) <= most for batch in batches)
    assert all(sum(len(item.body) for item in batch) <= size for batch in batches if len(batch) > 1)


@pytest.mark.parametrize(
    ("data", "expected"),
    # Values of org.apache.kafka.common.utils.UtilsTest, as signed 32-bit.
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_murmur2_agrees_with_kafka(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


@given(ids, st.integers(1, 64))
def test_partitions_are_in_range(job_id: int, partitions: int) -> None:
    assert 0 <= partition_of(job_id, partitions) < partitions


@given(st.lists(st.integers(0, 2**63 - 1), max_size=30), st.integers(1, 64))
def test_many_partitions_at_once_are_the_same(job_ids: list[int], partitions: int) -> None:
    many = partitions_of(np.array(job_ids, np.int64), partitions)
    assert many.tolist() == [partition_of(job_id, partitions) for job_id in job_ids]


ENV = {"CRONSTREAM_POSTGRES": "host=x", "CRONSTREAM_KAFKA": "k:1", "CRONSTREAM_ETCD": "e:1"}


def test_settings_come_from_variables() -> None:
    settings = read_settings(CoordinatorSettings, {**ENV, "CRONSTREAM_LEASE_TTL_SECONDS": "7", "HOME": "/"})
    assert settings.lease_ttl_seconds == 7
    assert settings.topics.triggers == "cronstream.triggers"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"CRONSTREAM_KAFKA": ""}, "CRONSTREAM_KAFKA is not set"),
        ({"CRONSTREAM_SLOT": "1"}, "did you mean CRONSTREAM_SLOTS?"),
        ({"CRONSTREAM_SLOTS": "none"}, "CRONSTREAM_SLOTS: "),
        ({"CRONSTREAM_INSTALLATION": "A B"}, "CRONSTREAM_INSTALLATION: "),
    ],
)
def test_wrong_settings_name_their_variable(change: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says.replace("?", r"\?")):
        read_settings(WorkerSettings, {**ENV, **change})


def test_the_margin_must_fit_the_lease() -> None:
    with pytest.raises(SettingsError, match="trust_margin_seconds"):
        read_settings(CoordinatorSettings, {**ENV, "CRONSTREAM_LEASE_TTL_SECONDS": "2"})


def test_the_password_is_read_from_its_file(tmp_path: object) -> None:
    from pathlib import Path

    secret = Path(str(tmp_path)) / "password"
    secret.write_text("it's\\secret\n")
    settings = read_settings(WorkerSettings, {**ENV, "CRONSTREAM_POSTGRES_PASSWORD_FILE": str(secret)})
    assert settings.postgres_password() == r"it's\secret"
    assert "it's" not in repr(settings)


def test_an_anchor_runs_on_boot_time_alone() -> None:
    clock = FakeClock(wall_us=1_000_000, boot_ns=5_000)
    anchor = Anchor(2_000_000, clock.boot_ns())
    clock.step_wall(3600)
    clock.advance(1.5)
    assert anchor.now_us(clock.boot_ns()) == 3_500_000


def test_instants_are_exact_both_ways() -> None:
    instant = 1_772_953_200_000_001
    assert to_us(to_datetime(instant)) == instant
    assert iso(1_772_953_200_000_000) == "2026-03-08T07:00:00Z"


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_are_shown_as_the_standard_library_shows_them(instant: datetime) -> None:
    assert iso(to_us(instant)) == instant.isoformat().replace("+00:00", "Z")


def test_lists_are_written_with_commas(tmp_path: Path) -> None:
    lists = {"HTTP_ALLOW": "10.0.0.0/8, fd00::/8", "PYTHON_MODULES": "a,b.c,", "PYTHON_PATH": f"{tmp_path}"}
    settings = read_settings(WorkerSettings, {**ENV, **{f"CRONSTREAM_{name}": text for name, text in lists.items()}})
    assert [str(network) for network in settings.http_allow] == ["10.0.0.0/8", "fd00::/8"]
    assert settings.python_modules == ("a", "b.c")
    assert settings.python_path == (tmp_path,)
    assert settings.process_slots >= 4


@pytest.mark.parametrize("network", ["10.0.0.1/8", "localhost", "10.0.0.0/8;fd00::/8"])
def test_what_is_no_network_is_named(network: str) -> None:
    with pytest.raises(SettingsError, match="CRONSTREAM_HTTP_ALLOW: value is not a valid IPv4 or IPv6 network"):
        read_settings(WorkerSettings, {**ENV, "CRONSTREAM_HTTP_ALLOW": network})


@pytest.mark.parametrize(
    ("model", "name"), [(HistorySettings, "HISTORY_FOLDER"), (WorkerSettings, "PYTHON_PATH")], ids=["sink", "workers"]
)
@pytest.mark.parametrize("is_file", [True, False])
def test_a_folder_that_is_not_there_is_refused(
    model: type[Installation], name: str, is_file: bool, tmp_path: Path
) -> None:
    path = tmp_path / "there"
    if is_file:
        path.write_text("")
    with pytest.raises(SettingsError) as refused:
        read_settings(model, {**ENV, f"CRONSTREAM_{name}": f"{path}"})
    assert str(refused.value) == f"CRONSTREAM_{name}: {path} is no folder: make it first, or name the one that is meant"


@pytest.mark.parametrize("word", ["true", "TRUE", "yes", "on", "1", "false", "No", "off", "0"])
def test_the_words_of_a_switch(word: str) -> None:
    enabled = read_settings(WorkerSettings, {**ENV, "CRONSTREAM_COMMAND_ENABLED": word}).command_enabled
    assert enabled == (word.lower() in {"true", "yes", "on", "1"})


def test_what_is_no_switch_is_shown_with_the_words_that_are() -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(WorkerSettings, {**ENV, "CRONSTREAM_COMMAND_ENABLED": "ja"})
    says = "is 'ja', not true or false (yes or no, on or off, 1 or 0)"
    assert str(refused.value) == f"CRONSTREAM_COMMAND_ENABLED: {says}"


@pytest.mark.parametrize("url", ["hook.example", "ftp://hook.example/", "https://", "https://a b/", "http:///x"])
def test_what_is_no_address_of_a_webhook_is_refused_without_a_pattern(url: str) -> None:
    with pytest.raises(SettingsError, match="CRONSTREAM_ALERT_WEBHOOK_URL: is no address like https://host/path"):
        read_settings(AlertSettings, {**ENV, "CRONSTREAM_ALERT_WEBHOOK_URL": url})
