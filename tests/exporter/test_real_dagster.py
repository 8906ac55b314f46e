"""The exporter in front of a real Dagster, whose own word is the truth.

Made answers hide the worst faults: they say what the author believes of Dagster. The
tests are in an order that starts Dagster once and ends with the longest waits.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import leave_out
from support import eventually

from dagster_exporter import metrics
from dagster_exporter.client import QUERIES, Client
from dagster_exporter.settings import Settings

from .process import Process, exporter
from .real_dagster import RealDagster, install

TOTAL = "dagster_completed_runs_total"
ACTIVE = "dagster_active_runs"
SUCCESS = "dagster_exporter_last_scrape_success"
LOAD_ERROR = "dagster_code_location_load_error"
HEARTBEAT = "dagster_daemon_last_heartbeat_timestamp_seconds"
# A margin far below the outages of these tests, and pages that are soon full.
ARGUMENTS = (
    "--interval=1",
    "--timeout=5",
    "--safety-margin=1",
    "--page-size=2",
)


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealDagster]:
    """Webserver and daemon, with the lab's jobs and a second code location."""
    install(leave_out)
    instance = RealDagster(tmp_path_factory.mktemp("dagster"))
    try:
        instance.start()
        yield instance
    finally:
        instance.close()


@pytest.fixture(scope="module")
def watch(
    dagster: RealDagster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    """An exporter that watches from before the first run to the end."""
    folder = tmp_path_factory.mktemp("watch")
    with exporter(folder, dagster.dagster.endpoint, *ARGUMENTS) as process:
        process.ready()
        yield process


def lab(job: str, status: str) -> dict[str, str]:
    return {"job_name": job, "location": "lab", "status": status}


def harbour(status: str, job: str = "moor") -> dict[str, str]:
    return {"job_name": job, "location": "harbour", "status": status}


def agree(watch: Process, dagster: RealDagster, *jobs: str) -> None:
    """Exporter and Dagster count the same, and still do after another poll."""

    def differences() -> list[Any]:
        samples = watch.samples()
        return [
            (job, status, counted, truth)
            for job in jobs
            for status in ("SUCCESS", "FAILURE", "CANCELED")
            if (counted := samples.total(TOTAL, job_name=job, status=status.lower()))
            != (truth := dagster.dagster.count(job, status))
        ]

    eventually(lambda: not differences(), f"agreement about {jobs}")
    watch.poll_again("completed_runs")
    assert differences() == []


def test_every_query_is_valid(dagster: RealDagster) -> None:
    key = [{"path": ["soundings"]}]
    variables: dict[str, dict[str, Any]] = {
        "active_runs": {"statuses": ["QUEUED"], "limit": 2},
        "completed_runs": {"statuses": ["SUCCESS"], "updatedAfter": 5.5, "limit": 2},
        "instigators": {"ticksAfter": 1.0},
        "asset_runs": {"assetKeys": key},
        "asset_materializations": {
            "assetKeys": key,
            "after": "5000",
            "before": "6000",
            "limit": 2,
        },
    }

    async def ask_all() -> set[str]:
        client = Client(Settings(endpoint=dagster.dagster.endpoint, timeout=120))
        try:
            for path in sorted(QUERIES.glob("*.graphql")):
                assert await client.ask(path.stem, **variables.get(path.stem, {}))
            return {path.stem for path in QUERIES.glob("*.graphql")}
        finally:
            await client.close()

    assert variables.keys() < asyncio.run(ask_all())


def test_everything_that_is_declared_is_exposed(watch: Process) -> None:
    names = {name for name in watch.samples().names() if name.startswith("dagster_")}
    assert names == {metric.name for metric in metrics.ALL}
    failures = watch.samples().series("dagster_exporter_poll_failures_total")
    assert failures == {}


def test_blind_spot_1_cancelled_runs_and_rare_statuses(
    dagster: RealDagster, watch: Process
) -> None:
    statuses = ("CANCELING", "NOT_STARTED", "MANAGED")
    ids = [dagster.make(status)[0] for status in statuses]
    dagster.make("CANCELED")
    for status in statuses:
        watch.reads(1, ACTIVE, **harbour(status.lower()))
    watch.reads(1, TOTAL, **harbour("canceled"))
    for run_id in ids:
        dagster.delete(run_id)
    for status in statuses:
        watch.reads(0, ACTIVE, **harbour(status.lower()))


def test_blind_spot_2_an_outage_counts_nothing_twice(
    dagster: RealDagster, watch: Process
) -> None:
    dagster.make("FAILURE", times=2)
    agree(watch, dagster, "moor")
    before = watch.samples()
    with dagster.frozen(dagster.web):
        dagster.make("FAILURE")
        failures = "dagster_exporter_poll_failures_total"
        labels = {"collector": "completed_runs", "reason": "timeout"}
        eventually(lambda: watch.value(failures, **labels), "a time-out")
        # Nothing that was known is lost, and it is not called new.
        samples = watch.samples()
        assert samples.series(TOTAL) == before.series(TOTAL)
        assert samples.get(SUCCESS, collector="completed_runs") == 0
        age = samples.get(
            "dagster_exporter_seconds_since_success", collector="completed_runs"
        )
        assert age is not None
        assert age >= 5
    watch.reads(3, TOTAL, **harbour("failure"))
    agree(watch, dagster, "moor")


def test_blind_spot_3_tagging_a_finished_run(
    dagster: RealDagster, watch: Process
) -> None:
    [old] = dagster.make("SUCCESS")
    agree(watch, dagster, "moor")
    # Later than the margin: the exporter has forgotten that it knows the run.
    time.sleep(1.5)
    dagster.make("SUCCESS")
    agree(watch, dagster, "moor")
    dagster.tag(old)
    watch.poll_again("completed_runs")
    agree(watch, dagster, "moor")


def test_more_than_two_pages(dagster: RealDagster, watch: Process) -> None:
    dagster.make("SUCCESS", job="dredge", times=7)
    watch.reads(7, TOTAL, **harbour("success", job="dredge"))
    agree(watch, dagster, "dredge")


def test_blind_spot_4_a_location_that_breaks_and_is_repaired(
    dagster: RealDagster, watch: Process
) -> None:
    before = watch.samples().series(TOTAL, location="harbour")
    assert len(before) == 6
    assert watch.samples().total(TOTAL, job_name="moor") > 0
    dagster.harbour.write_text("this is no Python\n")
    dagster.reload("harbour")
    watch.reads(1, LOAD_ERROR, location="harbour")
    assert watch.value(LOAD_ERROR, location="lab") == 0
    for _ in range(2):  # that is more than it takes to forget a removed job
        watch.poll_again("code_location_status")
    watch.poll_again("completed_runs")
    samples = watch.samples()
    assert samples.series(TOTAL, location="harbour") == before
    assert samples.series("dagster_last_run_info", location="harbour")
    # Repaired, with a job less: the next test is about that one.
    dagster.write_harbour("moor")
    dagster.reload("harbour")
    watch.reads(0, LOAD_ERROR, location="harbour")
    watch.poll_again("completed_runs")
    after = watch.samples().series(TOTAL, job_name="moor")
    assert after == {key: before[key] for key in after}
    assert len(after) == 3


def test_a_removed_job(watch: Process) -> None:
    eventually(
        lambda: not watch.samples().series(TOTAL, job_name="dredge"),
        "the series of the removed job to go",
    )
    assert watch.value(LOAD_ERROR, location="harbour") == 0
    samples = watch.samples()
    for name in (ACTIVE, "dagster_last_run_info", "dagster_run_duration_seconds_count"):
        assert not samples.series(name, job_name="dredge")
        assert samples.series(name, job_name="moor")


def test_blind_spot_5_dagster_hangs_when_the_exporter_starts(
    dagster: RealDagster, tmp_path: Path
) -> None:
    before = dagster.dagster.count("moor", "SUCCESS")
    with (
        dagster.frozen(dagster.web),
        exporter(tmp_path, dagster.dagster.endpoint, *ARGUMENTS) as late,
    ):
        dagster.make("SUCCESS", times=3)
        # Blind spot 7: readiness is told at once, from what is known already.
        answer = late.get("/readyz")
        assert answer.status_code == 503
        assert "completed_runs" in answer.json()["no good poll yet"]
        dagster.wake(dagster.web)
        late.ready()
        late.reads(3, TOTAL, **harbour("success"))
    assert dagster.dagster.count("moor", "SUCCESS") == before + 3


def test_blind_spot_6_a_backlog_behind_any_limited_tag(
    dagster: RealDagster, watch: Process
) -> None:
    """With it: runs that start, fail, die, wait and are cancelled."""
    takes_long = {"take_time": {"seconds": 3000.0}}
    first = dagster.dagster.launch("limited", takes_long)
    second = dagster.dagster.launch("limited", takes_long)
    dagster.dagster.launch("failing")
    dagster.dagster.launch("killed")
    dagster.dagster.launch("survey")
    backlog = "dagster_run_queue_tag_backlog"
    instrument = {"tag": "lab/instrument", "value": "multibeam"}
    watch.reads(1, ACTIVE, **lab("limited", "started"))
    watch.reads(1, ACTIVE, **lab("limited", "queued"))
    watch.reads(1, backlog, **instrument)
    keys = watch.samples().series("dagster_run_queue_concurrency_key_backlog")
    assert sum(keys.values()) == 0  # where the Go exporter looks, nothing waits
    waited = watch.value("dagster_run_queue_tag_oldest_seconds", **instrument)
    assert waited is not None
    assert waited > 0

    dagster.dagster.cancel(second)
    watch.reads(1, TOTAL, **lab("limited", "canceled"))
    watch.reads(0, backlog, **instrument)
    dagster.dagster.cancel(first)
    watch.reads(2, TOTAL, **lab("limited", "canceled"))

    watch.reads(1, TOTAL, **lab("failing", "failure"))
    watch.reads(1, TOTAL, **lab("killed", "failure"))  # and nothing in it said so
    watch.reads(1, TOTAL, **lab("survey", "success"))
    info = "dagster_last_run_info"
    assert watch.value(info, **lab("killed", "failure")) == 1
    agree(watch, dagster, "limited", "failing", "killed", "survey")


def test_a_backlog_behind_a_concurrency_key(
    dagster: RealDagster, watch: Process
) -> None:
    takes_long = {"take_time": {"seconds": 3000.0}}
    runs = [dagster.dagster.launch("keyed", takes_long) for _ in range(2)]
    key = "dagster_run_queue_concurrency_key_backlog"
    watch.reads(1, ACTIVE, **lab("keyed", "started"))
    watch.reads(1, ACTIVE, **lab("keyed", "queued"))
    watch.reads(1, key, concurrency_key="survey_db")
    tag = {"tag": "dagster/concurrency_key", "value": "survey_db"}
    watch.reads(1, "dagster_run_queue_tag_backlog", **tag)
    assert watch.value("dagster_run_queue_tag_limit", **tag) == 1
    for run in reversed(runs):
        dagster.dagster.cancel(run)
    watch.reads(2, TOTAL, **lab("keyed", "canceled"))
    watch.reads(0, key, concurrency_key="survey_db")
    # Who cancels runs does not change how the job's last one ended: it has none.
    assert not watch.samples().series("dagster_last_run_info", job_name="keyed")


def test_durations_are_those_of_dagster(dagster: RealDagster, watch: Process) -> None:
    runs = [dagster.dagster.launch("good") for _ in range(2)]
    eventually(lambda: dagster.dagster.ended(*runs), "two runs to end")
    watch.reads(2, TOTAL, **lab("good", "success"))
    query = (
        "query($filter: RunsFilter) { runsOrError(filter: $filter) {"
        " ... on Runs { results { creationTime startTime endTime } } } }"
    )
    for job in ("good", "keyed"):
        found = dagster.dagster.ask(query, filter={"pipelineName": job})
        times = [one for one in found["runsOrError"]["results"] if one["startTime"]]
        assert times
        samples = watch.samples()
        for name, first, last in (
            ("dagster_run_duration_seconds", "startTime", "endTime"),
            ("dagster_run_wait_seconds", "creationTime", "startTime"),
        ):
            where = {"job_name": job, "location": "lab"}
            truth = sum(one[last] - one[first] for one in times)
            assert samples.get(f"{name}_count", **where) == len(times)
            assert samples.get(f"{name}_sum", **where) == pytest.approx(truth, abs=0.01)


def test_a_sensor_that_is_turned_on_and_off(
    dagster: RealDagster, watch: Process
) -> None:
    sensor = {"sensor_name": "new_files", "location": "lab"}
    watch.reads(1, "dagster_sensor_status", **sensor, status="stopped")
    dagster.turn_sensor(True, "new_files")
    watch.reads(1, "dagster_sensor_status", **sensor, status="running")
    watch.reads(1, "dagster_sensor_last_tick_status", **sensor, status="skipped")
    tick = watch.value("dagster_sensor_last_tick_timestamp_seconds", **sensor)
    assert tick is not None
    assert 0 <= time.time() - tick < 300
    dagster.turn_sensor(False, "new_files")
    watch.reads(1, "dagster_sensor_status", **sensor, status="stopped")
    assert watch.value("dagster_sensor_status", **sensor, status="running") is None


def test_assets_of_the_run_above(watch: Process) -> None:
    for key in ("soundings", "chart"):
        watch.reads(1, "dagster_asset_materializations_total", asset_key=key)
        watch.reads(1, "dagster_asset_stale_status", asset_key=key, status="fresh")
    latest = "dagster_asset_last_materialization_status"
    watch.reads(1, latest, asset_key="chart", status="success")
    check = {"asset_key": "soundings", "check_name": "depths_are_positive"}
    watch.reads(1, "dagster_asset_check_status", **check, status="succeeded")


def test_blind_spot_7_the_age_of_what_is_shown(watch: Process) -> None:
    """Authentication, TLS and the state file have their tests without a Dagster."""
    samples = watch.samples()
    for name in (
        "dagster_exporter_last_success_timestamp_seconds",
        "dagster_exporter_seconds_since_success",
    ):
        assert len(samples.series(name)) == 7
    assert watch.get("/readyz").status_code == 200


def test_a_restart_of_dagster(dagster: RealDagster, watch: Process) -> None:
    before = watch.samples().series(TOTAL)
    dagster.stop(dagster.web)
    failures = "dagster_exporter_poll_failures_total"
    labels = {"collector": "completed_runs", "reason": "unreachable"}
    eventually(lambda: watch.value(failures, **labels), "no connection")
    dagster.make("SUCCESS")
    assert watch.samples().series(TOTAL) == before
    dagster.start_web()
    watch.reads(1, SUCCESS, collector="completed_runs")
    agree(watch, dagster, "moor", "limited", "failing", "killed", "survey")


def test_only_the_daemon_is_frozen(dagster: RealDagster, watch: Process) -> None:
    """Everything looks well, but for heartbeats, and a schedule that is due."""
    missed = "dagster_schedule_missed_seconds"
    schedule = {"schedule_name": "every_minute", "location": "lab"}
    daemon = {"daemon_type": "SCHEDULER", "required": "true"}
    with dagster.frozen(dagster.daemon):
        dagster.turn(True, "every_minute")
        watch.poll_again("daemon_health")
        heartbeat = watch.value(HEARTBEAT, daemon_type="SCHEDULER")
        assert heartbeat
        eventually(lambda: (watch.value(missed, **schedule) or 0) > 0, "a missed tick")
        assert watch.value(HEARTBEAT, daemon_type="SCHEDULER") == heartbeat
        assert watch.value("dagster_daemon_healthy", **daemon) == 1
        for name in ("daemon_health", "completed_runs", "definitions_roster"):
            assert watch.value(SUCCESS, collector=name) == 1
    eventually(
        lambda: watch.value(HEARTBEAT, daemon_type="SCHEDULER") != heartbeat,
        "a heartbeat",
    )
    watch.reads(0, missed, **schedule)

    def stopped() -> bool:
        """The daemon that goes on can write back that it is running: then again."""
        dagster.turn(False, "every_minute")
        state = "dagster_schedule_status"
        return watch.value(state, **schedule, status="stopped") == 1

    eventually(stopped, "the schedule to be stopped")
    tick = "dagster_schedule_last_tick_status"
    assert watch.samples().series(tick, **schedule)
