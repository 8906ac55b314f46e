"""Every metric that the exporter exposes, declared once.

Where ``go`` is true the public Go exporter has a metric of this name with these labels
(https://github.com/HirofumiTsuda/dagster-prometheus-exporter, docs/metrics.md), so that
dashboards and alerts made for it work with this one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector


@dataclass(frozen=True)
class Metric:
    """A name with its labels; all its series come from one collector."""

    kind: str
    name: str
    labels: tuple[str, ...]
    meaning: str
    go: bool = False

    def family(self, series: Iterable[tuple[tuple[str, ...], Any]]) -> Family:
        """The metric with its series: label values, and what ``add_metric`` takes."""
        make = {
            "gauge": GaugeMetricFamily,
            "counter": CounterMetricFamily,
            "histogram": HistogramMetricFamily,
        }[self.kind]
        family: Any = make(self.name, self.meaning, labels=self.labels)
        for values, value in series:
            parts = value if isinstance(value, tuple) else (value,)
            family.add_metric(values, *parts)
        return family


def render(families: Iterable[Family]) -> bytes:
    """The families in Prometheus's text format."""
    return generate_latest(_Given(list(families)))


class _Given(Collector):
    def __init__(self, families: list[Family]) -> None:
        self.families = families

    def collect(self) -> Iterable[Family]:
        return self.families


JOB = ("job_name", "location")
JOB_STATUS = (*JOB, "status")

ACTIVE_RUNS = Metric(
    "gauge",
    "dagster_active_runs",
    JOB_STATUS,
    "Runs that have not ended, by status; 0 for known jobs without any",
    go=True,
)
ACTIVE_RUN_DURATION = Metric(
    "gauge",
    "dagster_active_run_duration_seconds",
    JOB_STATUS,
    "Time that the oldest of these runs has been in its status; 0 without any",
    go=True,
)
KEY_BACKLOG = Metric(
    "gauge",
    "dagster_run_queue_concurrency_key_backlog",
    ("concurrency_key",),
    "Queued runs with this value of the tag dagster/concurrency_key",
    go=True,
)
TAG_BACKLOG = Metric(
    "gauge",
    "dagster_run_queue_tag_backlog",
    ("tag", "value"),
    "Queued runs with a tag that the run queue limits, whichever tag that is",
)
TAG_BACKLOG_AGE = Metric(
    "gauge",
    "dagster_run_queue_tag_oldest_seconds",
    ("tag", "value"),
    "Time that the oldest of these runs has waited; 0 without any",
)
TAG_LIMIT = Metric(
    "gauge",
    "dagster_run_queue_tag_limit",
    ("tag", "value"),
    "Runs with this tag that may run at once; value is empty for every value alike",
)
MAX_RUNS = Metric(
    "gauge",
    "dagster_run_queue_max_concurrent_runs",
    (),
    "Runs that may run at once in all; -1 for no limit",
)
COMPLETED_RUNS = Metric(
    "counter",
    "dagster_completed_runs_total",
    JOB_STATUS,
    "Runs that ended, since the exporter started (or since its state file did)",
    go=True,
)
LAST_RUN = Metric(
    "gauge",
    "dagster_last_run_info",
    JOB_STATUS,
    "Always 1; how the last run that was not cancelled did end",
    go=True,
)
LAST_RUN_DURATION = Metric(
    "gauge",
    "dagster_last_run_duration_seconds",
    JOB_STATUS,
    "Time from creation to end of that last run, its wait included",
    go=True,
)
LAST_RUN_END = Metric(
    "gauge",
    "dagster_last_run_end_timestamp_seconds",
    JOB,
    "When that last run did end",
)
RUN_DURATION = Metric(
    "histogram",
    "dagster_run_duration_seconds",
    JOB,
    "Time from start to end of runs that ended, their wait not included",
)
RUN_WAIT = Metric(
    "histogram",
    "dagster_run_wait_seconds",
    JOB,
    "Time from creation to start of runs that ended: the queue and the launch",
)
LOAD_ERROR = Metric(
    "gauge",
    "dagster_code_location_load_error",
    ("location",),
    "1 if the code location does not load, else 0",
    go=True,
)
DAEMON_HEALTHY = Metric(
    "gauge",
    "dagster_daemon_healthy",
    ("daemon_type", "required"),
    "1 if Dagster calls the daemon healthy, which it does for 30 minutes after its end",
    go=True,
)
DAEMON_HEARTBEAT = Metric(
    "gauge",
    "dagster_daemon_last_heartbeat_timestamp_seconds",
    ("daemon_type",),
    "When the daemon last gave a sign of life; absent if it never did",
    go=True,
)
SCHEDULE_STATUS = Metric(
    "gauge",
    "dagster_schedule_status",
    ("schedule_name", "location", "status"),
    "Always 1; whether the schedule is running or stopped",
    go=True,
)
SCHEDULE_TICK = Metric(
    "gauge",
    "dagster_schedule_last_tick_status",
    ("schedule_name", "location", "status"),
    "Always 1; how the last tick went",
    go=True,
)
SCHEDULE_TICK_TIME = Metric(
    "gauge",
    "dagster_schedule_last_tick_timestamp_seconds",
    ("schedule_name", "location"),
    "When the last tick was",
    go=True,
)
SCHEDULE_MISSED = Metric(
    "gauge",
    "dagster_schedule_missed_seconds",
    ("schedule_name", "location"),
    "Time since the first tick that was due and did not come; 0 if none is missing",
)
SENSOR_STATUS = Metric(
    "gauge",
    "dagster_sensor_status",
    ("sensor_name", "location", "status"),
    "Always 1; whether the sensor is running or stopped",
    go=True,
)
SENSOR_TICK = Metric(
    "gauge",
    "dagster_sensor_last_tick_status",
    ("sensor_name", "location", "status"),
    "Always 1; how the last tick went; skipped is the usual one",
    go=True,
)
SENSOR_TICK_TIME = Metric(
    "gauge",
    "dagster_sensor_last_tick_timestamp_seconds",
    ("sensor_name", "location"),
    "When the last tick was",
    go=True,
)
ASSET_STALE = Metric(
    "gauge",
    "dagster_asset_stale_status",
    ("asset_key", "status"),
    "Always 1; whether the asset is missing, stale or fresh, as Dagster computes it",
    go=True,
)
ASSET_LAST_RUN = Metric(
    "gauge",
    "dagster_asset_last_materialization_status",
    ("asset_key", "status"),
    "Always 1; status of the latest run that was to materialise the asset",
    go=True,
)
ASSET_LAST_RUN_TIME = Metric(
    "gauge",
    "dagster_asset_last_materialization_timestamp_seconds",
    ("asset_key",),
    "When that run ended, however it did",
    go=True,
)
ASSET_MATERIALIZED_TIME = Metric(
    "gauge",
    "dagster_asset_last_success_timestamp_seconds",
    ("asset_key",),
    "When the asset was last materialised indeed",
)
ASSET_MATERIALIZATIONS = Metric(
    "counter",
    "dagster_asset_materializations_total",
    ("asset_key",),
    "Materialisations of the asset since the exporter started",
)
CHECK_STATUS = Metric(
    "gauge",
    "dagster_asset_check_status",
    ("asset_key", "check_name", "status"),
    "Always 1; result of the check for the latest materialisation",
)
CHECK_TIME = Metric(
    "gauge",
    "dagster_asset_check_timestamp_seconds",
    ("asset_key", "check_name"),
    "When that check ran",
)
POOL_ACTIVE = Metric(
    "gauge",
    "dagster_op_pool_concurrency_active_slots",
    ("pool",),
    "Slots of the pool in which a step runs",
    go=True,
)
POOL_ASSIGNED = Metric(
    "gauge",
    "dagster_op_pool_concurrency_assigned_steps",
    ("pool",),
    "Steps that have a slot of the pool and do not run yet",
    go=True,
)
POOL_PENDING = Metric(
    "gauge",
    "dagster_op_pool_concurrency_pending_steps",
    ("pool",),
    "Steps that wait for a slot of the pool",
    go=True,
)
POOL_LIMIT = Metric(
    "gauge",
    "dagster_op_pool_concurrency_limit",
    ("pool", "using_default_limit"),
    "Slots that the pool has",
    go=True,
)
POLL_DURATION = Metric(
    "gauge",
    "dagster_exporter_scrape_duration_seconds",
    ("collector",),
    "Duration of the last poll, good or not",
    go=True,
)
POLL_SUCCESS = Metric(
    "gauge",
    "dagster_exporter_last_scrape_success",
    ("collector",),
    "1 if the last poll was good, 0 if it failed; absent before the first ended",
    go=True,
)
POLL_ERRORS = Metric(
    "counter",
    "dagster_exporter_scrape_errors_total",
    ("collector",),
    "Polls that failed",
    go=True,
)
POLL_FAILURES = Metric(
    "counter",
    "dagster_exporter_poll_failures_total",
    ("collector", "reason"),
    "Polls that failed, by reason",
)
LAST_GOOD = Metric(
    "gauge",
    "dagster_exporter_last_success_timestamp_seconds",
    ("collector",),
    "When the last good poll ended; absent before the first",
)
SINCE_GOOD = Metric(
    "gauge",
    "dagster_exporter_seconds_since_success",
    ("collector",),
    "Age of what is shown: time since the last good poll, or since the start",
)
OVERRUNS = Metric(
    "counter",
    "dagster_exporter_poll_overruns_total",
    ("collector",),
    "Polls that took longer than the interval",
)
STATE_ERRORS = Metric(
    "counter",
    "dagster_exporter_state_file_errors_total",
    (),
    "Times that the state file could not be written",
)
SEEN_RUNS = Metric(
    "gauge",
    "dagster_exporter_remembered_runs",
    (),
    "Runs remembered so that none is counted twice: those of the safety margin",
)
BUILD_INFO = Metric(
    "gauge",
    "dagster_exporter_build_info",
    ("version", "commit"),
    "Always 1; the version of the exporter",
    go=True,
)

ALL = [value for value in list(globals().values()) if isinstance(value, Metric)]
