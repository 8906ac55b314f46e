"""Active runs: counts, ages, and the backlog behind limits."""

import asyncio
import json
import time
import tracemalloc

import pytest

from dagster_exporter.collectors.active_runs import (
    CONCURRENCY_KEY,
    MOST_VALUES,
    ActiveRuns,
)
from dagster_exporter.failures import Failure
from dagster_exporter.roster import Roster

from .fake_dagster import FakeDagster, make_run
from .samples import Samples

LIMITS = """
- key: lab/instrument
  limit: 1
  value: multibeam
- key: dagster/concurrency_key
  limit: 2
  value: survey_db
- key: team
  limit: 3
  value:
    applyLimitPerUniqueValue: true
"""


def collector(fake: FakeDagster, page_size: int = 500) -> ActiveRuns:
    roster = Roster()
    roster.learn({"lab": frozenset({"good"})}, frozenset())
    return ActiveRuns(fake, roster, page_size)


def poll(active: ActiveRuns) -> Samples:
    return Samples.of(asyncio.run(active.poll()))


def test_every_status_of_a_known_job_is_there(fake: FakeDagster) -> None:
    samples = poll(collector(fake))
    statuses = "queued not_started managed starting started suspended canceling"
    for status in statuses.split():
        for name in ("dagster_active_runs", "dagster_active_run_duration_seconds"):
            series = {"job_name": "good", "location": "lab", "status": status}
            assert samples.get(name, **series) == 0


def test_counts_and_the_age_of_the_oldest(fake: FakeDagster) -> None:
    now = time.time()
    fake.runs = [
        make_run("a", "STARTED", at=now - 100),
        make_run("b", "STARTED", at=now - 500),
        make_run("c", "CANCELING", job="gone", location=None, at=now - 50),
    ]
    # Somebody tags the oldest: it is not younger for that.
    fake.runs[1]["updateTime"] = now
    samples = poll(collector(fake))
    good = {"job_name": "good", "location": "lab", "status": "started"}
    assert samples.get("dagster_active_runs", **good) == 2
    age = samples.get("dagster_active_run_duration_seconds", **good)
    assert age is not None
    assert 500 <= age < 560
    lost = {"job_name": "gone", "location": "__unknown__", "status": "canceling"}
    assert samples.get("dagster_active_runs", **lost) == 1


def test_backlog_for_any_limited_tag(fake: FakeDagster) -> None:
    now = time.time()
    fake.limits = LIMITS
    tags = [
        {"lab/instrument": "multibeam"},
        {"lab/instrument": "multibeam", "team": "red"},
        {"lab/instrument": "camera"},  # no limit on this value
        {"dagster/concurrency_key": "survey_db"},
        {"colour": "blue"},
    ]
    fake.runs = [
        make_run(str(number), "QUEUED", at=now - number, tags=one)
        for number, one in enumerate(tags, start=1)
    ]
    fake.runs.append(make_run("x", "STARTED", at=now, tags=tags[0]))
    active = collector(fake)
    samples = poll(active)
    backlog = "dagster_run_queue_tag_backlog"
    assert samples.get(backlog, tag="lab/instrument", value="multibeam") == 2
    assert samples.get(backlog, tag="team", value="red") == 1
    assert len(samples.series(backlog)) == 3
    key = "dagster_run_queue_concurrency_key_backlog"
    assert samples.get(key, concurrency_key="survey_db") == 1
    oldest = samples.get(
        "dagster_run_queue_tag_oldest_seconds",
        tag="lab/instrument",
        value="multibeam",
    )
    assert oldest is not None
    assert 2 <= oldest < 60
    limit = "dagster_run_queue_tag_limit"
    assert samples.get(limit, tag="team", value="") == 3
    assert samples.get("dagster_run_queue_max_concurrent_runs") == 4

    fake.runs = []
    samples = poll(active)
    assert samples.get(backlog, tag="lab/instrument", value="multibeam") == 0
    assert samples.get(key, concurrency_key="survey_db") == 0
    assert samples.get(backlog, tag="team", value="red") is None


def test_values_without_number_do_not_become_series_without_number(
    fake: FakeDagster,
) -> None:
    fake.limits = LIMITS
    fake.runs = [
        make_run(str(number), "QUEUED", tags={"team": f"tenant {number}"})
        for number in range(1000)
    ]
    samples = poll(collector(fake))
    found = samples.series("dagster_run_queue_tag_backlog", tag="team")
    assert len(found) < MOST_VALUES + 1
    assert sum(found.values()) == 1000


def test_tags_without_a_limit_take_no_memory(fake: FakeDagster) -> None:
    size = 10_000

    def peak() -> int:
        active = collector(fake, page_size=10)
        tracemalloc.start()
        try:
            poll(active)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    fake.limits = LIMITS
    fake.change = lambda query, answer: json.loads(json.dumps(answer))
    fake.runs = [make_run(str(number), "QUEUED") for number in range(200)]
    without = peak()
    for number, run in enumerate(fake.runs):
        run["tags"] = [{"key": "note", "value": f"{number:0{size}}"}]
    # Those of a page or two, and not all 200 of them.
    assert peak() - without < 100 * size


def test_concurrency_keys_without_number(fake: FakeDagster) -> None:
    name = "dagster_run_queue_concurrency_key_backlog"
    active = collector(fake)

    def wait(*keys: str) -> Samples:
        fake.runs = [
            make_run(f"{number} {key}", "QUEUED", tags={CONCURRENCY_KEY: key})
            for number, key in enumerate(keys)
        ]
        return poll(active)

    first = [f"old {number:03}" for number in range(MOST_VALUES)]
    assert len(wait(*first).series(name)) == MOST_VALUES
    # All that waits is told, also beyond the limit; nothing at 0 takes its place.
    samples = wait("new", "new", first[7])
    assert samples.get(name, concurrency_key="new") == 2
    assert samples.get(name, concurrency_key=first[7]) == 1
    assert samples.get(name, concurrency_key=first[0]) == 0
    assert samples.get(name, concurrency_key="__other__") is None
    assert len(samples.series(name)) == MOST_VALUES
    many = [f"tenant {number}" for number in range(1000)]
    samples = wait("new", first[7], *many)
    assert samples.get(name, concurrency_key="new") == 1
    assert samples.get(name, concurrency_key=first[7]) == 1
    assert samples.get(name, concurrency_key="__other__") == 1002 - MOST_VALUES
    assert len(samples.series(name)) == MOST_VALUES + 1
    assert samples.total(name) == 1002


def test_pages(fake: FakeDagster) -> None:
    fake.runs = [make_run(str(number), "QUEUED", at=number) for number in range(20)]
    samples = poll(collector(fake, page_size=4))
    assert samples.total("dagster_active_runs", job_name="good") == 20
    assert fake.asked["active_runs"] == 5  # 20 is four times 5: no empty page is asked


def test_runs_that_are_not_queued_at_all(fake: FakeDagster) -> None:
    fake.change = lambda query, answer: answer | {"instance": {"runQueueConfig": None}}
    samples = poll(collector(fake))
    assert samples.get("dagster_run_queue_max_concurrent_runs") == -1


@pytest.mark.parametrize("limits", ["- key: [", "- 5", "- {key: a, limit: many}"])
def test_limits_that_cannot_be_read(fake: FakeDagster, limits: str) -> None:
    fake.limits = limits
    with pytest.raises(Failure) as caught:
        poll(collector(fake))
    assert caught.value.reason == "missing_field"
