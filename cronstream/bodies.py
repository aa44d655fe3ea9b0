"""The bodies of items: what a run needs, why one did not run, how an attempt went."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import msgspec

_ENDLESS = 10 * 366 * 86400.0

Body = TypeVar("Body", bound=msgspec.Struct)


class PoisonItem(ValueError):
    """An item that cannot be read; its batch goes on without it."""


class Policy(msgspec.Struct, array_like=True, frozen=True):
    """What the definition said about tries when the run was planned."""

    overlap: str = "allow"
    max_attempts: int = 5
    backoff_seconds: float = 30.0
    backoff_factor: float = 2.0
    max_backoff_seconds: float = 3600.0
    jitter: str = "full"
    timeout_seconds: float = 300.0
    first_attempt: int = 1
    """Where the numbering of this budget of tries begins: 1, or where a redrive goes on."""

    @property
    def last_attempt(self) -> int:
        """The number of the last try."""
        return self.first_attempt + self.max_attempts - 1

    def __post_init__(self) -> None:
        """Refuse what SQL refuses too: a row written around its triggers must not reach a worker."""
        for name, number, least in (
            ("max_attempts", self.max_attempts, 1),
            ("backoff_seconds", self.backoff_seconds, 0),
            ("backoff_factor", self.backoff_factor, 0),
            ("max_backoff", self.max_backoff_seconds, 0),
            ("timeout_seconds", self.timeout_seconds, 0),
            ("first_attempt", self.first_attempt, 1),
        ):
            if not least <= number < _ENDLESS:  # NaN is neither
                raise ValueError(f"{name} is {number}")


class Work(msgspec.Struct, array_like=True, frozen=True):
    """What to run: carried from the definition, so nothing downstream asks Postgres.

    ``payload`` is the JSON text as stored; None is SQL's NULL, b"null" is JSON's.
    """

    tenant: str
    name: str
    handler: str
    payload: bytes | None
    policy: Policy


class Skip(msgspec.Struct, array_like=True, frozen=True):
    """Scheduled times that did not run: one, or a long run of them summed up.

    The item's own scheduled time is ``last``.
    """

    tenant: str
    name: str
    reason: str
    first: int
    last: int
    count: int


class Deleted(msgspec.Struct, array_like=True, frozen=True):
    """A job that is gone."""

    tenant: str
    name: str


class Report(msgspec.Struct, array_like=True, frozen=True):
    """What a worker says of an attempt. Instants in microseconds, UTC."""

    tenant: str
    name: str
    worker: str
    published_at: int
    started_at: int
    finished_at: int | None = None
    error: str | None = None
    output: str | None = None
    work: bytes | None = None
    """The ``Work`` of an attempt that did not succeed: settle needs it to try again."""
    final: bool = False
    """The attempt did not succeed, and no further one would: it is not tried again."""
    retry_after_us: int | None = None
    """The target asked for no further try before this instant; ``max_backoff`` still bounds the wait."""


_encoder = msgspec.msgpack.Encoder()


def pack(body: Work | Skip | Deleted | Report) -> bytes:
    """A body as bytes."""
    return _encoder.encode(body)


class WorkPacker:
    """Packs the ``Work`` of many jobs that differ in name and payload alone: the same bytes as ``pack``, sooner."""

    __slots__ = ("_end", "_handler", "_tenant")

    def __init__(self, tenant: str, handler: str, policy: Policy) -> None:
        self._tenant = bytes([_FIVE_FIELDS]) + _encoder.encode(tenant)
        self._handler = _encoder.encode(handler)
        self._end = _encoder.encode(policy)

    def pack(self, name: bytes, payload: bytes | None) -> bytes:
        """``name`` in UTF-8."""
        if payload is None:
            return b"".join((self._tenant, _text_head(len(name)), name, self._handler, _NIL, self._end))
        return b"".join(
            (self._tenant, _text_head(len(name)), name, self._handler, _bytes_head(len(payload)), payload, self._end)
        )


# msgpack: what goes before a text, a byte string and an array of five.
_FIVE_FIELDS = 0x95
_NIL = b"\xc0"


@lru_cache(maxsize=4096)
def _text_head(size: int) -> bytes:
    return _encoder.encode("x" * size)[:-size] if size else _encoder.encode("")


@lru_cache(maxsize=65_536)
def _bytes_head(size: int) -> bytes:
    return _encoder.encode(bytes(size))[:-size] if size else _encoder.encode(b"")


def _reader(kind: type[Body]) -> Callable[[bytes], Body]:
    decoder = msgspec.msgpack.Decoder(kind)

    def read(body: bytes) -> Body:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise PoisonItem(f"not a {kind.__name__}: {error}") from None

    return read


work_of = _reader(Work)
skip_of = _reader(Skip)
deleted_of = _reader(Deleted)
report_of = _reader(Report)
