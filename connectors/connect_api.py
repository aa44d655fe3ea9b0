"""Kafka Connect's REST interface: the few calls that capture needs."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

from connectors.seen import Status


class ConnectUnavailable(RuntimeError):
    """Connect does not answer, or is between two states (rebalancing): ask again later."""


class ConnectRefused(RuntimeError):
    """Connect answered with an error that asking again will not mend."""


class ConnectApi:
    """One Connect worker. Not thread-safe; each call opens a connection of its own."""

    def __init__(self, address: str, timeout_seconds: float = 10.0) -> None:
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"Connect's address is http://host:port, not {address!r}")
        self._host, self._port = parts.hostname, parts.port or 8083
        self._timeout_seconds = timeout_seconds

    def put_config(self, name: str, config: dict[str, str]) -> None:
        """Create the connector or bring its configuration up to date; the same again changes nothing."""
        self._call("PUT", f"/connectors/{quote(name)}/config", config)

    def status(self, name: str) -> Status | None:
        """None: there is no such connector."""
        answer = self._call("GET", f"/connectors/{quote(name)}/status", missing_ok=True)
        if answer is None:
            return None
        tasks = answer["tasks"]
        traces = [part.get("trace") for part in (*tasks, answer["connector"])]
        return Status(
            connector=answer["connector"]["state"],
            task=tasks[0]["state"] if tasks else None,
            trace=next((trace for trace in traces if trace), ""),
        )

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Start the connector and its task anew."""
        flag = "true" if only_failed else "false"
        self._call("POST", f"/connectors/{quote(name)}/restart?includeTasks=true&onlyFailed={flag}")

    def stop(self, name: str) -> None:
        """End the task and keep the configuration."""
        self._call("PUT", f"/connectors/{quote(name)}/stop")

    def resume(self, name: str) -> None:
        self._call("PUT", f"/connectors/{quote(name)}/resume")

    def forget_offsets(self, name: str) -> None:
        """Drop what the connector remembers of its position; it must be stopped."""
        self._call("DELETE", f"/connectors/{quote(name)}/offsets")

    def delete(self, name: str) -> None:
        self._call("DELETE", f"/connectors/{quote(name)}", missing_ok=True)

    def _call(self, method: str, path: str, body: object = None, *, missing_ok: bool = False) -> Any:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_seconds)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ConnectUnavailable(f"Connect at {self._host}:{self._port}: {error}") from None
        finally:
            connection.close()
        if response.status == 404 and missing_ok:
            return None
        # 409: a rebalance, or a state that is being left; 404 without an object: not started yet.
        if response.status in (404, 408, 409, 503, 504):
            raise ConnectUnavailable(f"{method} {path}: {response.status} {_message(text)}")
        if response.status == 500 and b"timed out" in text.lower():
            raise ConnectUnavailable(f"{method} {path}: {_message(text)}")
        if response.status >= 400:
            raise ConnectRefused(f"{method} {path}: {response.status} {_message(text)}")
        return json.loads(text) if text else None


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])[:1000]
    except (ValueError, KeyError, TypeError):
        return text[:200].decode(errors="replace")
