"""Daemons: heartbeats as times."""

import asyncio

import pytest

from dagster_exporter.collectors.daemons import Daemons
from dagster_exporter.failures import Failure

from .fake_dagster import FakeDagster, Node
from .samples import Samples

HEALTHY = "dagster_daemon_healthy"
HEARTBEAT = "dagster_daemon_last_heartbeat_timestamp_seconds"


def daemon(kind: str, healthy: bool | None, beat: float | None) -> Node:
    return {
        "daemonType": kind,
        "required": kind != "BACKFILL",
        "healthy": healthy,
        "lastHeartbeatTime": beat,
    }


def poll(fake: FakeDagster) -> Samples:
    return Samples.of(asyncio.run(Daemons(fake).poll()))


def test_healthy_silent_and_never_started(fake: FakeDagster) -> None:
    fake.daemons = [
        daemon("SCHEDULER", True, 5000.5),
        daemon("SENSOR", False, 4000.0),
        daemon("BACKFILL", None, None),
    ]
    samples = poll(fake)
    assert samples.get(HEALTHY, daemon_type="SCHEDULER", required="true") == 1
    assert samples.get(HEALTHY, daemon_type="SENSOR", required="true") == 0
    assert samples.get(HEALTHY, daemon_type="BACKFILL", required="false") == 0
    assert samples.get(HEARTBEAT, daemon_type="SCHEDULER") == 5000.5
    assert samples.get(HEARTBEAT, daemon_type="BACKFILL") is None


@pytest.mark.parametrize(
    "field", ["daemonType", "required", "healthy", "lastHeartbeatTime"]
)
def test_a_field_is_missing(fake: FakeDagster, field: str) -> None:
    fake.daemons = [daemon("SCHEDULER", True, 5000.0)]
    del fake.daemons[0][field]
    with pytest.raises(Failure, match=field) as caught:
        poll(fake)
    assert caught.value.reason == "missing_field"
