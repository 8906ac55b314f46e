"""Background polling: each collector for itself."""

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest

from dagster_exporter import log, metrics
from dagster_exporter.failures import Failure
from dagster_exporter.metrics import Family
from dagster_exporter.poller import Poller
from dagster_exporter.state import State

from .samples import Samples


class Scripted:
    """A collector that does what the test says."""

    def __init__(self, name: str, *script: object, seconds: float = 0.0) -> None:
        self.name = name
        self.script = list(script)
        self.seconds = seconds
        self.polls = 0

    async def poll(self) -> Sequence[Family]:
        self.polls += 1
        await asyncio.sleep(self.seconds)
        step = self.script[min(self.polls, len(self.script)) - 1]
        if isinstance(step, Exception):
            raise step
        return [metrics.LOAD_ERROR.family([((str(step),), 1)])]


class Setup:
    """A poller with its state."""

    def __init__(self, *collectors: Scripted) -> None:
        self.state = State(one.name for one in collectors)
        self.poller = Poller(collectors, self.state, interval=0.05)
        self.collectors = collectors

    async def until_polled(self, name: str, times: int) -> None:
        collector = next(one for one in self.collectors if one.name == name)
        task = asyncio.create_task(self.poller.run())
        while collector.polls < times:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def samples(self) -> Samples:
        return Samples(self.state.text().decode())


def test_one_hangs_one_fails_one_works() -> None:
    setup = Setup(
        Scripted("hangs", "never", seconds=3600),
        Scripted("fails", Failure("timeout", "too slow")),
        Scripted("works", "lab"),
    )
    asyncio.run(setup.until_polled("works", 5))
    samples = setup.samples()
    success = "dagster_exporter_last_scrape_success"
    assert samples.get(success, collector="hangs") is None
    assert samples.get(success, collector="fails") == 0
    assert samples.get(success, collector="works") == 1
    reasons = samples.series("dagster_exporter_poll_failures_total")
    labels = frozenset({"collector": "fails", "reason": "timeout"}.items())
    assert reasons.keys() == {labels}
    errors = samples.get("dagster_exporter_scrape_errors_total", collector="fails")
    assert errors == reasons[labels] >= 1
    assert setup.state.waiting_for() == ["hangs", "fails"]


def test_what_was_known_stays_and_gets_old() -> None:
    setup = Setup(Scripted("a", "lab", Failure("timeout", "too slow")))
    asyncio.run(setup.until_polled("a", 4))
    samples = setup.samples()
    assert samples.get("dagster_code_location_load_error", location="lab") == 1
    assert samples.get("dagster_exporter_last_scrape_success", collector="a") == 0
    age = samples.get("dagster_exporter_seconds_since_success", collector="a")
    assert age is not None
    assert age >= 0.1
    assert setup.state.waiting_for() == []


def test_a_poll_that_takes_longer_than_the_interval() -> None:
    setup = Setup(Scripted("slow", "lab", seconds=0.12))
    asyncio.run(setup.until_polled("slow", 3))
    assert setup.state.record("slow").overruns >= 2


def test_a_fault_of_ours_is_a_failure_too(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup(Scripted("a", ValueError("hush-hush")))
    with caplog.at_level(logging.INFO):
        asyncio.run(setup.until_polled("a", 3))
    assert setup.state.record("a").failures.keys() == {"internal"}
    lines = [log.JsonLines().format(record) for record in caplog.records]
    assert len(lines) == 1
    assert json.loads(lines[0])["error"] == "ValueError"
    assert "hush" not in lines[0]


def test_what_cannot_be_rendered_ends_no_polling() -> None:
    setup = Setup(
        Scripted("odd", "lab", "x\ud800"),  # half of a character
        Scripted("works", "dock"),
    )
    asyncio.run(setup.until_polled("works", 4))
    assert setup.state.record("odd").failures.keys() == {"internal"}
    assert setup.state.record("odd").failures["internal"] >= 2
    samples = setup.samples()
    assert samples.get("dagster_code_location_load_error", location="lab") == 1
    assert samples.get("dagster_exporter_last_scrape_success", collector="odd") == 0
    assert samples.get("dagster_exporter_last_scrape_success", collector="works") == 1


def test_the_log_tells_of_changes_only(caplog: pytest.LogCaptureFixture) -> None:
    late, reset = Failure("timeout", "late"), Failure("connection_lost", "reset")
    setup = Setup(Scripted("a", late, late, reset, reset, "lab", "lab"))
    with caplog.at_level(logging.INFO):
        asyncio.run(setup.until_polled("a", 7))
    told = [json.loads(log.JsonLines().format(record)) for record in caplog.records]
    assert [(one["event"], one.get("reason")) for one in told] == [
        ("poll failed", "timeout"),
        ("poll failed", "connection_lost"),
        ("poll works again", None),
    ]
