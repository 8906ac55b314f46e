"""Units of work: what is counted where, and what travels with the task."""

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster
from monitoring_files import rules
from prometheus_client import REGISTRY, CollectorRegistry
from support import eventually

from dask_cluster_lab.metrics import work
from dask_cluster_lab.metrics.labels import count_series, unbounded
from dask_cluster_lab.metrics.survey import (
    THRESHOLD,
    TILES,
    UnreadableTile,
    survey_tile,
)
from dask_cluster_lab.metrics.work import (
    REPORTS,
    Instruments,
    WorkerMetrics,
    install,
    uninstall,
    unit_of_work,
    worker_metrics,
)


def units(stage: str, outcome: str) -> float | None:
    return REGISTRY.get_sample_value(
        "survey_units_total", {"stage": stage, "outcome": outcome}
    )


def rows(stage: str, direction: str) -> float | None:
    return REGISTRY.get_sample_value(
        "survey_rows_total", {"stage": stage, "direction": direction}
    )


@pytest.fixture
def installed() -> Iterator[Instruments]:
    yield install()
    uninstall()


def test_the_gates_threshold_is_a_bucket_boundary() -> None:
    assert THRESHOLD in work.RESIDUAL_BUCKETS
    registry = CollectorRegistry()
    instruments = Instruments(registry)
    for residual in (THRESHOLD, THRESHOLD + 1e-9):
        instruments.residual.observe(residual)
    bucket = {"le": str(THRESHOLD)}
    assert registry.get_sample_value("survey_residual_metres_bucket", bucket) == 1


def test_labels_are_bounded_and_instruments_go_without_a_trace() -> None:
    registry = CollectorRegistry()
    instruments = Instruments(registry)
    assert unbounded(registry) == []
    instruments.remove()
    assert list(registry.collect()) == []


def test_they_bring_fewer_series_than_the_alert_on_growth_allows() -> None:
    registry = CollectorRegistry()
    Instruments(registry)
    limits = [
        int(alert.expression.partition("growth1d > ")[2].split()[0])
        for alert in rules("alert")
        if alert.name == "SeriesGrowth"
    ]
    assert limits == [120]
    assert count_series(registry) == 104 < limits[0] < TILES


def test_a_unit_is_counted_with_rows_outcome_and_time(installed: Instruments) -> None:
    with unit_of_work("grid", 7, rows_in=95) as unit:
        unit.rows_out = 25
    with unit_of_work("validate", 7, rows_in=25) as unit:
        unit.outcome = "rejected"
        unit.residual = 0.07
    assert units("grid", "ok") == 1
    assert units("validate", "rejected") == 1
    assert units("validate", "ok") == 0
    assert (rows("grid", "in"), rows("grid", "out")) == (95, 25)
    assert REGISTRY.get_sample_value("survey_residual_metres_sum") == 0.07
    count = REGISTRY.get_sample_value("survey_unit_seconds_count", {"stage": "grid"})
    assert count == 1


def test_an_exception_is_the_outcome_error_and_goes_on(installed: Instruments) -> None:
    with pytest.raises(UnreadableTile, match="tile 3 ends after half"):
        survey_tile(3, unreadable=True)
    assert units("ingest", "error") == 1
    assert units("ingest", "ok") == 0
    assert units("grid", "ok") == 0


@pytest.mark.parametrize(
    ("stage", "outcome", "message"),
    [
        ("cleaning", "ok", "'cleaning' is not a stage"),
        ("grid", "perhaps", "'perhaps' is not an outcome"),
    ],
)
def test_undeclared_words_are_refused(stage: str, outcome: str, message: str) -> None:
    with pytest.raises(ValueError, match=message), unit_of_work(stage, 1) as unit:
        unit.outcome = outcome


def test_without_instruments_the_work_is_done_all_the_same() -> None:
    assert units("grid", "ok") is None
    assert survey_tile(0).outcome == "ok"
    assert units("grid", "ok") is None


def test_installed_as_often_as_wanted_removed_with_the_last() -> None:
    first, second = install(), install()
    assert first is second
    uninstall()
    assert units("grid", "ok") == 0
    uninstall()
    assert units("grid", "ok") is None
    uninstall()  # once too often changes nothing
    assert install() is not first
    uninstall()


def test_the_plugin_on_a_cluster(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client:
        assert units("publish", "ok") is None
        client.register_plugin(WorkerMetrics())
        try:
            assert units("publish", "ok") == 0, "before any task"
            client.gather(client.map(survey_tile, range(10), pure=False))
            assert units("publish", "ok") == 10
            client.register_plugin(WorkerMetrics())
            assert units("publish", "ok") == 10, "a second time loses nothing"
        finally:
            client.unregister_worker_plugin(WorkerMetrics.name)
        assert units("publish", "ok") is None


def test_a_block_inside_of_another_changes_nothing(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client:
        with worker_metrics(client):
            client.submit(survey_tile, 0, pure=False).result()
            with worker_metrics(client):
                assert units("publish", "ok") == 1
                client.submit(survey_tile, 1, pure=False).result()
            assert units("publish", "ok") == 2, "the inner one ended, and took nothing"
        assert units("publish", "ok") is None


def test_what_a_client_left_that_is_gone_starts_from_zero(
    cluster: LocalCluster,
) -> None:
    scheduler = cluster.scheduler
    assert scheduler is not None
    with Client(cluster, set_as_default=False) as killed:
        killed.register_plugin(WorkerMetrics(killed.id))
        killed.submit(survey_tile, 0, pure=False).result()
        gone = killed.id
    eventually(lambda: gone not in scheduler.clients, "the client to be gone")
    with Client(cluster, set_as_default=False) as client:
        assert units("publish", "ok") == 1
        with worker_metrics(client):
            assert units("publish", "ok") == 0
        assert units("publish", "ok") is None


def test_reports_travel_with_the_task(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client:
        future = client.submit(survey_tile, 24, pure=False)
        tile = future.result()
        assert cluster.scheduler is not None
        metadata = cluster.scheduler.tasks[future.key].metadata
        assert metadata == {
            REPORTS: {
                "ingest/24": ("ok", 100, 95, None),
                "grid/24": ("ok", 95, 25, None),
                "validate/24": ("rejected", 25, 0, tile.residual),
            }
        }
