"""Schedules and sensors, and above all ticks that did not come."""

import asyncio
import time
from typing import Any

import pytest

from dagster_exporter.collectors.instigators import Instigators
from dagster_exporter.failures import Failure

from .fake_dagster import FakeDagster, Node
from .samples import Samples

MISSED = "dagster_schedule_missed_seconds"
NIGHTLY = {"schedule_name": "nightly", "location": "lab"}


def schedule(
    due: list[float],
    tick: float | None,
    status: str = "RUNNING",
    turned_on: float | None = None,
) -> Node:
    ticks = [] if tick is None else [{"timestamp": tick, "status": "SUCCESS"}]
    return {
        "name": "nightly",
        "potentialTickTimestamps": due,
        "scheduleState": {
            "status": status,
            "typeSpecificData": {"startTimestamp": turned_on},
            "ticks": ticks,
        },
    }


def poll(collector: Instigators) -> Samples:
    return Samples.of(asyncio.run(collector.poll()))


def missed(fake: FakeDagster, **given: Any) -> float:
    fake.schedules = [schedule(**given)]
    value = poll(Instigators(fake)).get(MISSED, **NIGHTLY)
    assert value is not None
    return value


def test_status_and_last_tick(fake: FakeDagster) -> None:
    fake.schedules = [schedule([], tick=5000.0)]
    fake.sensors = [
        {"name": "files", "sensorState": {"status": "STOPPED", "ticks": []}}
    ]
    samples = poll(Instigators(fake))
    start = "dagster_schedule_"
    assert samples.get(start + "status", **NIGHTLY, status="running") == 1
    assert samples.get(start + "last_tick_status", **NIGHTLY, status="success") == 1
    assert samples.get(start + "last_tick_timestamp_seconds", **NIGHTLY) == 5000.0
    files = {"sensor_name": "files", "location": "lab"}
    assert samples.get("dagster_sensor_status", **files, status="stopped") == 1
    assert not samples.series("dagster_sensor_last_tick_status")


def test_a_location_that_does_not_load_has_none_to_show(fake: FakeDagster) -> None:
    fake.schedules = [schedule([], tick=5000.0)]
    fake.locations = {"lab": None, "other": []}
    samples = poll(Instigators(fake))
    assert len(samples.series("dagster_schedule_status")) == 1
    fake.loading.add("other")
    assert not poll(Instigators(fake)).series("dagster_schedule_status")


def test_in_time(fake: FakeDagster) -> None:
    now = time.time()
    assert missed(fake, due=[now - 60, now - 1, now + 60], tick=now - 1) == 0


def test_a_tick_that_was_due_and_did_not_come(fake: FakeDagster) -> None:
    now = time.time()
    late = missed(fake, due=[now - 600, now - 300, now + 60], tick=now - 600)
    assert 300 <= late < 360


def test_it_was_off_when_the_tick_was_due(fake: FakeDagster) -> None:
    now = time.time()
    due, tick = [now - 600, now - 300, now + 60], now - 900
    assert missed(fake, due=due, tick=tick, turned_on=now - 10) == 0
    assert missed(fake, due=due, tick=tick, status="STOPPED") == 0


def test_turned_on_and_never_ticked(fake: FakeDagster) -> None:
    now = time.time()
    due = [now - 600, now - 300, now + 60]
    assert 300 <= missed(fake, due=due, tick=None, turned_on=now - 400) < 360
    assert missed(fake, due=due, tick=None) == 0


def test_the_first_missed_one_is_remembered(fake: FakeDagster) -> None:
    collector = Instigators(fake)
    now = time.time()
    fake.schedules = [schedule([now - 300, now - 200, now - 100], tick=now - 400)]
    poll(collector)
    # Later: Dagster names later due times only.
    fake.schedules = [schedule([now - 3, now - 2, now - 1], tick=now - 400)]
    value = poll(collector).get(MISSED, **NIGHTLY)
    assert value is not None
    assert 300 <= value < 360
    fake.schedules = [schedule([now - 3, now - 2, now - 1], tick=now - 1)]
    assert poll(collector).get(MISSED, **NIGHTLY) == 0


def test_some_of_the_missed_ones_came(fake: FakeDagster) -> None:
    """A daemon that catches up, or was turned off and on, is late by less."""
    collector = Instigators(fake)
    now = time.time()
    due = [now - 900, now - 600, now - 300, now + 60]
    fake.schedules = [schedule(due, tick=now - 1200)]
    value = poll(collector).get(MISSED, **NIGHTLY)
    assert value is not None
    assert 900 <= value < 960
    fake.schedules = [schedule(due, tick=now - 600)]
    value = poll(collector).get(MISSED, **NIGHTLY)
    assert value is not None
    assert 300 <= value < 360
    fake.schedules = [schedule(due, tick=now - 600, turned_on=now - 100)]
    assert poll(collector).get(MISSED, **NIGHTLY) == 0


@pytest.mark.parametrize("field", ["name", "potentialTickTimestamps", "scheduleState"])
def test_a_field_is_missing(fake: FakeDagster, field: str) -> None:
    fake.schedules = [schedule([], tick=5000.0)]
    del fake.schedules[0][field]
    with pytest.raises(Failure, match=field) as caught:
        poll(Instigators(fake))
    assert caught.value.reason == "missing_field"
