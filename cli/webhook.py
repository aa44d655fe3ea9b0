"""How far the alerts' webhook is: how many alerts it has not taken, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cli.errors import Failure
from cli.groups import asked_twice, stand_of
from cli.output import count, span
from cronstream.settings import AlertSettings

STUCK_SECONDS = 60.0
"""Longer than the webhook's tries are apart."""


def look_at_webhook(settings: AlertSettings, timeout_seconds: float) -> dict[str, Any] | None:
    """Its backlog and the age of the oldest alert in it; None where there is no webhook.

    Raises Failure when it does not get on, or is set and nobody serves it; Unasked when Kafka does not say.
    """
    group, place = f"{settings.installation}-webhook", (settings.topics.alerts, 0)
    stand = asked_twice(lambda: stand_of(settings, group, [place], timeout_seconds))
    if not stand.members:
        # Its place stays when the setting goes: then nobody wants those alerts any more.
        if settings.alert_webhook_url is None:
            return None
        raise Failure(
            f"a webhook is set and nobody is in the group {group}: does the alerts process have "
            "CRONSTREAM_ALERT_WEBHOOK_URL?"
        )
    if stand.committed.get(place, -1) < 0:  # one without a place begins where the topic ends
        return judged(0, None)
    backlog = stand.backlog()
    return judged(backlog["backlog"], backlog["oldest_age"])


def judged(backlog: int, oldest_age: timedelta | None) -> dict[str, Any]:
    """What is known. Raises Failure if the oldest alert has waited through tries that were not taken."""
    if oldest_age is not None and oldest_age.total_seconds() > STUCK_SECONDS:
        raise Failure(
            f"the webhook does not get on: {count(backlog, 'alert')} {'waits' if backlog == 1 else 'wait'} for it, "
            f"the oldest for {span(oldest_age)}; what it answers is in the log of the alerts process (action=webhook)"
        )
    return {"backlog": backlog, "oldest_age": oldest_age}
