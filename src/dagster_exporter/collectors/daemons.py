"""Dagster's daemons: without them nothing is scheduled, started or sensed."""

from dagster_exporter import metrics
from dagster_exporter.answers import (
    Asks,
    child,
    children,
    optional_flag,
    optional_number,
    text,
)
from dagster_exporter.metrics import Family


class Daemons:
    """Their heartbeats, as times: Dagster's own verdict comes half an hour late."""

    name = "daemon_health"

    def __init__(self, client: Asks) -> None:
        self._client = client

    async def poll(self) -> list[Family]:
        """One request."""
        answer = await self._client.ask("daemons")
        health = child(child(answer, "instance"), "daemonHealth")
        healthy, heartbeats = [], []
        for daemon in children(health, "allDaemonStatuses"):
            kind = text(daemon, "daemonType")
            required = str(optional_flag(daemon, "required") is True).lower()
            # No verdict counts as a bad one.
            good = optional_flag(daemon, "healthy") is True
            healthy.append(((kind, required), int(good)))
            beat = optional_number(daemon, "lastHeartbeatTime")
            if beat is not None:
                heartbeats.append(((kind,), beat))
        return [
            metrics.DAEMON_HEALTHY.family(healthy),
            metrics.DAEMON_HEARTBEAT.family(heartbeats),
        ]
