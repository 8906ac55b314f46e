"""Completed runs: each counted once, in pages, at a cost that follows the new ones."""

import asyncio
import time

import pytest

from dagster_exporter.collectors.completed_runs import CompletedRuns
from dagster_exporter.failures import Failure
from dagster_exporter.roster import GONE_AFTER, Roster
from dagster_exporter.totals import Totals
from dagster_exporter.window import Window

from .fake_dagster import FakeDagster, make_run
from .samples import Samples

TOTAL = "dagster_completed_runs_total"
GOOD = {"job_name": "good", "location": "lab"}
FLOOR = 1000.0
MARGIN = 100.0


class Setup:
    """A collector with its roster."""

    def __init__(self, fake: FakeDagster, page_size: int = 500) -> None:
        self.roster = Roster()
        totals = Totals(Window(FLOOR, MARGIN))
        self.collector = CompletedRuns(fake, self.roster, page_size, totals)

    @property
    def totals(self) -> Totals:
        return self.collector.totals

    def poll(self) -> Samples:
        return Samples.of(asyncio.run(self.collector.poll()))

    def jobs(self, *jobs: str) -> None:
        self.roster.learn({"lab": frozenset(jobs)}, frozenset())


@pytest.fixture
def setup(fake: FakeDagster) -> Setup:
    return Setup(fake)


def test_known_jobs_start_at_zero(setup: Setup) -> None:
    setup.jobs("good")
    samples = setup.poll()
    for status in ("success", "failure", "canceled"):
        assert samples.get(TOTAL, **GOOD, status=status) == 0
    assert samples.get("dagster_last_run_info", **GOOD, status="success") is None


def test_outcomes_durations_and_the_last_run(fake: FakeDagster, setup: Setup) -> None:
    fake.runs = [
        make_run("a", "SUCCESS", at=1010, wait=2, seconds=4),
        make_run("b", "FAILURE", at=1030, wait=20, seconds=2),
        make_run("c", "CANCELED", at=1020),
    ]
    fake.runs[2]["startTime"] = None  # cancelled while it waited
    samples = setup.poll()
    for status in ("success", "failure", "canceled"):
        assert samples.get(TOTAL, **GOOD, status=status) == 1
    assert samples.series("dagster_last_run_info") == {
        frozenset({**GOOD, "status": "failure"}.items()): 1
    }
    last = samples.get("dagster_last_run_duration_seconds", **GOOD, status="failure")
    assert last == 22
    assert samples.get("dagster_last_run_end_timestamp_seconds", **GOOD) == 1030
    assert samples.get("dagster_run_duration_seconds_count", **GOOD) == 2
    assert samples.get("dagster_run_duration_seconds_sum", **GOOD) == 6
    bucket = "dagster_run_duration_seconds_bucket"
    assert samples.get(bucket, **GOOD, le="1.0") == 0
    assert samples.get(bucket, **GOOD, le="5.0") == 2
    assert samples.get(bucket, **GOOD, le="+Inf") == 2
    assert samples.get("dagster_run_wait_seconds_sum", **GOOD) == 22


def test_a_cancelled_run_takes_no_failure_back(fake: FakeDagster, setup: Setup) -> None:
    setup.jobs("good", "failing")
    failing = {"job_name": "failing", "location": "lab"}
    before = [
        make_run("a", "FAILURE", job="failing", at=900),
        make_run("b", "CANCELED", job="failing", at=950),
    ]
    fake.runs = [*before, make_run("c", "FAILURE", at=1010)]
    setup.poll()
    fake.runs.append(make_run("d", "CANCELED", at=1020))
    samples = setup.poll()
    assert samples.series("dagster_last_run_info") == {
        frozenset({**GOOD, "status": "failure"}.items()): 1,
        frozenset({**failing, "status": "failure"}.items()): 1,
    }
    assert samples.get("dagster_last_run_end_timestamp_seconds", **GOOD) == 1010
    assert samples.get(TOTAL, **GOOD, status="canceled") == 1
    fake.runs.append(make_run("e", "SUCCESS", at=1030))
    assert samples.get("dagster_last_run_info", **GOOD, status="success") is None
    samples = setup.poll()
    assert samples.get("dagster_last_run_info", **GOOD, status="success") == 1
    assert samples.get("dagster_last_run_info", **GOOD, status="failure") is None


def test_again_and_again_counts_once(fake: FakeDagster, setup: Setup) -> None:
    fake.runs = [make_run("a", at=1010)]
    for _ in range(3):
        assert setup.poll().get(TOTAL, **GOOD, status="success") == 1


def test_tagging_a_finished_run_does_not_count_it_again(
    fake: FakeDagster, setup: Setup
) -> None:
    fake.runs = [make_run("a", at=1010)]
    setup.poll()
    fake.runs.append(make_run("b", at=5000))
    setup.poll()
    assert ("a", "success") not in setup.totals.window.seen
    fake.runs[0]["updateTime"] = 5001
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 2


def test_runs_from_before_the_floor_give_a_last_run_only(
    fake: FakeDagster, setup: Setup
) -> None:
    setup.jobs("good")
    fake.runs = [make_run("a", "FAILURE", at=900)]
    samples = setup.poll()
    assert samples.get(TOTAL, **GOOD, status="failure") == 0
    assert samples.get("dagster_last_run_info", **GOOD, status="failure") == 1


def test_a_run_that_becomes_visible_late(fake: FakeDagster, setup: Setup) -> None:
    fake.runs = [make_run("a", at=2000)]
    setup.poll()
    fake.runs.append(make_run("late", at=2000 - MARGIN + 1))
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 2


def test_a_page_that_fails_loses_and_doubles_nothing(fake: FakeDagster) -> None:
    setup = Setup(fake, page_size=2)
    fake.runs = [make_run(str(number), at=1001 + number) for number in range(7)]
    setup.collector._first = False

    def third_page_fails(query: str) -> None:
        if fake.asked[query] == 3:
            raise Failure("timeout", "too slow")

    fake.before = third_page_fails
    with pytest.raises(Failure):
        setup.poll()
    assert setup.totals.window.watermark == FLOOR
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 7


def test_an_empty_page_after_a_full_one_is_no_end(fake: FakeDagster) -> None:
    setup = Setup(fake, page_size=2)
    fake.runs = [make_run(str(number), at=1001 + number) for number in range(6)]
    setup.collector._first = False

    def cursor_is_deleted(query: str) -> None:
        if fake.asked[query] == 2:
            fake.runs = [run for run in fake.runs if run["runId"] != "4"]

    fake.before = cursor_is_deleted
    with pytest.raises(Failure) as caught:
        setup.poll()
    assert caught.value.reason == "suspect_page"
    # Nothing of the poll that broke off counts: it is as if it had not been.
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 5


def test_runs_that_end_exactly_at_a_page_s_end(fake: FakeDagster) -> None:
    setup = Setup(fake, page_size=3)
    fake.runs = [make_run(str(number), at=1001 + number) for number in range(6)]
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 6


def test_a_clock_that_is_ahead_does_not_hide_runs(
    fake: FakeDagster, setup: Setup
) -> None:
    fake.runs = [make_run("ahead", at=time.time() + 10_000)]
    setup.poll()
    fake.runs.append(make_run("now", at=time.time()))
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 2


def test_a_floor_that_is_ahead_hides_runs_of_the_first_seconds_only(
    fake: FakeDagster, setup: Setup
) -> None:
    """As the reference says of an exporter whose clock was ahead when it started."""
    ahead = 5.0
    started = FLOOR - ahead  # by Dagster's clock
    fake.runs = [make_run("first", at=started + 4)]
    assert setup.poll().total(TOTAL) == 0
    # The margin is for what comes late after that, and does not help here.
    fake.runs.append(make_run("later", at=started + 6))
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 1
    fake.runs.append(make_run("much later", at=started + 10 * MARGIN))
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 2
    fake.runs.append(make_run("slow machine", at=started + 10 * MARGIN - MARGIN + 1))
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 3


def test_series_of_a_removed_job_go_after_a_while(
    fake: FakeDagster, setup: Setup
) -> None:
    fake.runs = [make_run("a", at=1010)]
    setup.jobs("good", "other")
    setup.poll()
    for _ in range(GONE_AFTER):
        assert setup.poll().get(TOTAL, **GOOD, status="success") == 1
        setup.jobs("other")
    samples = setup.poll()
    for name in (TOTAL, "dagster_last_run_info", "dagster_run_duration_seconds_count"):
        assert not samples.series(name, job_name="good")


def test_series_of_a_broken_location_stay(fake: FakeDagster, setup: Setup) -> None:
    fake.runs = [make_run("a", "FAILURE", at=1010)]
    setup.jobs("good")
    setup.poll()
    for _ in range(2 * GONE_AFTER):
        setup.roster.learn({}, frozenset({"lab"}))
        samples = setup.poll()
    assert samples.get(TOTAL, **GOOD, status="failure") == 1
    assert samples.get("dagster_last_run_info", **GOOD, status="failure") == 1


@pytest.mark.parametrize("history", [1_000, 100_000])
def test_cost_follows_the_new_runs_and_not_the_history(
    fake: FakeDagster, history: int
) -> None:
    setup = Setup(fake, page_size=100)
    fake.runs = [
        make_run(str(number), at=FLOOR - number, seconds=1) for number in range(history)
    ]
    setup.poll()
    assert fake.asked["completed_runs"] == 2  # one of them for the last runs
    for round_ in range(1, 4):
        fake.asked.clear()
        now = FLOOR + round_ * 1000
        fake.runs += [make_run(f"{round_} {number}", at=now) for number in range(250)]
        samples = setup.poll()
        assert samples.get(TOTAL, **GOOD, status="success") == round_ * 250
        # From the second on with those of the margin, which are asked for again.
        assert fake.asked["completed_runs"] == (3 if round_ == 1 else 5)
        assert len(setup.totals.window.seen) == 250


def test_a_long_look_back_comes_page_by_page(fake: FakeDagster) -> None:
    setup = Setup(fake, page_size=500)
    spacing = 0.5
    fake.runs = [
        make_run(str(number), at=FLOOR + 1 + number * spacing, seconds=1)
        for number in range(10_000)
    ]
    assert setup.poll().get(TOTAL, **GOOD, status="success") == 10_000
    assert fake.asked["completed_runs"] == 1 + 10_000 / 500
    assert all(asked["limit"] == 501 for asked in fake.variables)
    # What is kept is the margin's share, also at the height of it.
    assert len(setup.totals.window.seen) == MARGIN / spacing


def test_an_update_time_that_is_missing(fake: FakeDagster, setup: Setup) -> None:
    fake.runs = [make_run("a", at=1010)]
    answer = fake.change

    def without(query: str, data: dict[str, object]) -> object:
        for run in fake.runs:
            run.pop("creationTime", None)
        return answer(query, data)

    fake.change = without
    with pytest.raises(Failure, match="creationTime") as caught:
        setup.poll()
    assert caught.value.reason == "missing_field"
    assert setup.totals.runs == {}
