"""Labels: what may be registered, what a registry has, how series are counted."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dask_cluster_lab.metrics.labels import (
    OUTCOMES,
    STAGES,
    UnboundedLabel,
    count_series,
    numbered,
    register,
    unbounded,
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_every_series_is_there_from_the_start(registry: CollectorRegistry) -> None:
    metric = register(
        Counter, "survey_x", "X.", ["stage", "outcome"], registry=registry
    )
    values = {
        (stage, outcome): registry.get_sample_value(
            "survey_x_total", {"stage": stage, "outcome": outcome}
        )
        for stage in STAGES
        for outcome in OUTCOMES
    }
    assert set(values.values()) == {0.0}
    assert len(values) == 12
    metric.labels("grid", "ok").inc(3)
    assert (
        registry.get_sample_value("survey_x_total", {"stage": "grid", "outcome": "ok"})
        == 3
    )


def test_options_reach_the_metric(registry: CollectorRegistry) -> None:
    metric = register(Histogram, "survey_h", "H.", registry=registry, buckets=(1, 2))
    metric.observe(1.5)
    buckets = {
        bound: registry.get_sample_value("survey_h_bucket", {"le": bound})
        for bound in ("1.0", "2.0", "+Inf")
    }
    assert buckets == {"1.0": 0, "2.0": 1, "+Inf": 1}


@pytest.mark.parametrize(
    "label", ["tile", "file", "path", "run", "vessel_id", "timestamp"]
)
def test_a_label_that_nobody_declared_is_refused(
    label: str, registry: CollectorRegistry
) -> None:
    with pytest.raises(UnboundedLabel) as caught:
        register(Counter, "survey_x", "X.", ["stage", label], registry=registry)
    assert str(caught.value) == (
        f"the metric survey_x has the label {label!r}, whose values nobody declared; "
        "the labels of this project are direction, outcome, stage."
    )
    assert list(registry.collect()) == []


def test_walking_a_registry_finds_what_others_registered(
    registry: CollectorRegistry,
) -> None:
    Counter("survey_tiles", "T.", ["tile"], registry=registry).labels("7").inc()
    Counter("survey_a", "A.", ["stage"], registry=registry).labels("cleaning").inc()
    Gauge("survey_fine", "F.", ["stage"], registry=registry).labels("grid").set(1)
    Histogram("survey_h", "H.", registry=registry).observe(1)
    Counter("other", "O.", ["tile"], registry=registry).labels("7").inc()
    prefixes = Gauge("dask_tasks", "D.", ["task_prefix_name"], registry=registry)
    for prefix in ("inc", "run_7"):
        prefixes.labels(prefix).set(1)
    assert unbounded(registry) == [
        "dask_tasks: the task prefix 'run_7' has a number",
        "survey_a: 'cleaning' is no declared value of 'stage'",
        "survey_tiles: the label 'tile' is not declared",
    ]


def test_numbered() -> None:
    names = ["sum", "getitem", "log1p", "arctan2", "x2", "conv_2d", "open_v2_store"]
    faults = ["2026", "7_run", "night_2026_11_30", "run 8", "run_7"]
    assert numbered([*names, *reversed(faults)]) == faults


def test_count_series(registry: CollectorRegistry) -> None:
    register(Gauge, "survey_g", "G.", ["stage"], registry=registry)
    Gauge("other", "O.", registry=registry)
    assert count_series(registry, "survey_") == 4
    assert count_series(registry) == 5


@pytest.mark.parametrize("nights", [1, 60])
def test_series_of_many_nights(nights: int, registry: CollectorRegistry) -> None:
    """Flat with declared labels; with the tile as one, what was predicted."""
    growing = CollectorRegistry()
    tiles = Counter("survey_tiles", "T.", ["night", "tile"], registry=growing)
    units = register(
        Counter, "survey_units", "U.", ["stage", "outcome"], registry=registry
    )
    before = count_series(registry)
    for night in range(nights):
        for tile in range(40):
            tiles.labels(str(night), str(tile)).inc()
            units.labels("ingest", "ok").inc()
    assert count_series(registry) == before
    # A counter has a second series for when it was made.
    assert count_series(growing) == nights * 40 * 2
