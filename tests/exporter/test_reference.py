"""``docs/reference/exporter.md`` has every metric, setting and reason, and no other."""

import re
from pathlib import Path

from prometheus_client import ProcessCollector

from dagster_exporter import metrics
from dagster_exporter.failures import REASONS
from dagster_exporter.settings import HEADERS_VARIABLE, OPTIONS
from dagster_exporter.state import State

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "exporter.md").read_text("utf-8")

GO_EXPORTER = {
    "dagster_active_runs": "job_name location status",
    "dagster_active_run_duration_seconds": "job_name location status",
    "dagster_completed_runs_total": "job_name location status",
    "dagster_last_run_info": "job_name location status",
    "dagster_last_run_duration_seconds": "job_name location status",
    "dagster_code_location_load_error": "location",
    "dagster_daemon_healthy": "daemon_type required",
    "dagster_daemon_last_heartbeat_timestamp_seconds": "daemon_type",
    "dagster_run_queue_concurrency_key_backlog": "concurrency_key",
    "dagster_schedule_status": "schedule_name location status",
    "dagster_schedule_last_tick_status": "schedule_name location status",
    "dagster_schedule_last_tick_timestamp_seconds": "schedule_name location",
    "dagster_sensor_status": "sensor_name location status",
    "dagster_sensor_last_tick_status": "sensor_name location status",
    "dagster_sensor_last_tick_timestamp_seconds": "sensor_name location",
    "dagster_asset_stale_status": "asset_key status",
    "dagster_asset_last_materialization_status": "asset_key status",
    "dagster_asset_last_materialization_timestamp_seconds": "asset_key",
    "dagster_op_pool_concurrency_active_slots": "pool",
    "dagster_op_pool_concurrency_assigned_steps": "pool",
    "dagster_op_pool_concurrency_pending_steps": "pool",
    "dagster_op_pool_concurrency_limit": "pool using_default_limit",
    "dagster_exporter_scrape_duration_seconds": "collector",
    "dagster_exporter_last_scrape_success": "collector",
    "dagster_exporter_scrape_errors_total": "collector",
    "dagster_exporter_build_info": "version commit",
}
"""Names and labels of the public Go exporter, from docs/metrics.md of
https://github.com/HirofumiTsuda/dagster-prometheus-exporter (commit 06588c41)."""


def test_each_collector_has_its_test_and_each_query_its_use() -> None:
    package = ROOT / "src" / "dagster_exporter"
    files = {path.stem for path in (package / "collectors").glob("[a-z]*.py")}
    tests = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    assert {f"test_{name}" for name in files} <= tests
    code = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    queries = {path.stem for path in (package / "queries").glob("*.graphql")}
    assert {name for name in queries if f'"{name}"' not in code} == set()


def rows(columns: int) -> list[list[str]]:
    """All lines of tables with so many columns whose first cell is code."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line[2:-1].split(" |")] for line in lines]
    return [line for line in cells if len(line) == columns]


def test_every_metric_is_there_and_no_other() -> None:
    said = {
        line[0].strip("`"): (
            line[1],
            tuple(re.findall(r"`(\w+)`", line[2])),
            line[3],
            line[4],
        )
        for line in rows(5)
    }
    assert said == {
        one.name: (one.kind, one.labels, one.meaning, "yes" if one.go else "")
        for one in metrics.ALL
    }


def test_the_go_exporter_s_names_and_labels() -> None:
    ours = {one.name: " ".join(one.labels) for one in metrics.ALL if one.go}
    assert ours == GO_EXPORTER


def test_what_is_exposed_before_any_poll_is_declared() -> None:
    names = set(re.findall(r"^# TYPE (\S+)", State(["a"]).text().decode(), flags=re.M))
    process = {family.name for family in ProcessCollector(registry=None).collect()}
    declared = {one.name for one in metrics.ALL}
    assert {name.removesuffix("_total") for name in names - declared} <= {
        name.removesuffix("_total") for name in process
    }


def test_every_label_is_bounded() -> None:
    """None of them can be a run, a time, a file or a message."""
    labels = {label for one in metrics.ALL for label in one.labels}
    assert labels == {
        *("job_name", "location", "status", "concurrency_key", "tag", "value"),
        *("daemon_type", "required", "schedule_name", "sensor_name"),
        *("asset_key", "check_name", "pool", "using_default_limit"),
        *("collector", "reason", "version", "commit"),
    }


def test_every_setting_is_there_and_no_other() -> None:
    said = {(line[0].strip("`"), line[1].strip("`")) for line in rows(4)}
    wanted = {(option.variable, option.flag) for option in OPTIONS}
    assert said == wanted | {(HEADERS_VARIABLE, "")}


def test_every_reason_is_there_and_no_other() -> None:
    section = PAGE.partition("## Why a poll failed")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, flags=re.M)) == REASONS
