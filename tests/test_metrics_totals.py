"""Totals of a run: distinct units, whatever happens to the tasks that did them."""

import contextlib
import datetime
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from prometheus_client import REGISTRY, CollectorRegistry
from support import eventually

from dask_cluster_lab.errors import LabError
from dask_cluster_lab.metrics.labels import OUTCOMES, STAGES, unbounded
from dask_cluster_lab.metrics.manifest import manifest, write_manifest
from dask_cluster_lab.metrics.survey import (
    Tile,
    UnreadableTile,
    expected,
    survey_tile,
)
from dask_cluster_lab.metrics.totals import (
    RunTotals,
    Totals,
    read_totals,
    run_totals,
)
from dask_cluster_lab.metrics.work import REPORTS

OK = {"ingest/1": ("ok", 100, 95, None), "validate/1": ("ok", 25, 25, 0.04)}
REJECTED = {"ingest/1": ("ok", 100, 95, None), "validate/1": ("rejected", 25, 0, 0.07)}


def finish(
    plugin: RunTotals,
    key: str = "tile-1",
    worker: str = "a",
    reports: object = OK,
    start: str = "processing",
    end: str = "memory",
) -> None:
    """What the scheduler tells its plugins when a task ends."""
    metadata = {REPORTS: reports} if reports else {}
    plugin.transition(
        key, start, end, stimulus_id="s", worker=worker, metadata=metadata
    )


def test_a_unit_counts_once_however_often_it_is_done() -> None:
    plugin = RunTotals("x")
    finish(plugin, worker="a")
    finish(plugin, worker="b")  # after a died
    finish(plugin, key="tile-1-again", worker="b")
    totals = plugin.read()
    assert totals.units == {("ingest", "ok"): 1, ("validate", "ok"): 1}
    assert totals.rows == {
        ("ingest", "in"): 100,
        ("ingest", "out"): 95,
        ("validate", "in"): 25,
        ("validate", "out"): 25,
    }
    assert (totals.executions, totals.tasks) == (3, 2)
    assert totals.by_worker == {"a": 1, "b": 1}
    assert totals.residuals == [0.04]
    assert totals.stage("validate") == 1
    assert totals.stage("publish") == 0


def test_the_last_outcome_of_a_unit_counts() -> None:
    plugin = RunTotals("x")
    finish(plugin, reports=REJECTED)
    finish(plugin, reports=OK)
    assert plugin.read().units == {("ingest", "ok"): 1, ("validate", "ok"): 1}


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("released", "memory"),  # scattered
        ("waiting", "memory"),
        ("processing", "released"),
        ("memory", "released"),
        ("no-worker", "memory"),
    ],
)
def test_only_a_task_that_finishes_did_any_work(start: str, end: str) -> None:
    plugin = RunTotals("x")
    finish(plugin, start=start, end=end)
    assert plugin.read() == Totals("x")


def test_tasks_of_others_count_for_nothing() -> None:
    plugin = RunTotals("x")
    finish(plugin, reports=None)
    plugin.transition("k", "processing", "memory", worker="a")
    assert plugin.read() == Totals("x")


def test_a_task_that_failed_and_one_that_failed_first() -> None:
    plugin = RunTotals("x")
    finish(plugin, key="bad", end="erred")
    finish(plugin, key="late", end="erred")
    finish(plugin, key="late")
    assert plugin.read().erred == 1


def test_past_its_limit_it_says_that_it_is_not_exact() -> None:
    plugin = RunTotals("x", limit=2)
    finish(plugin)
    assert plugin.read().exact
    finish(plugin)  # the same units are no more
    assert plugin.read().exact
    finish(plugin, key="tile-2", reports={"ingest/2": ("ok", 1, 1, None)})
    totals = plugin.read()
    assert not totals.exact
    assert totals.stage("ingest") == 1
    assert REGISTRY.get_sample_value("survey_run_exact") is None


def test_tasks_and_failed_tasks_are_bounded_too() -> None:
    again = RunTotals("x", limit=2)
    for number in range(3):
        finish(again, key=f"tile-1-{number}")  # the same two units each time
    totals = again.read()
    assert (totals.tasks, totals.executions, totals.by_worker) == (2, 3, {"a": 2})
    assert not totals.exact
    failed = RunTotals("x", limit=2)
    for key in ("a", "b", "b"):
        finish(failed, key=key, end="erred")
    assert failed.read().exact
    finish(failed, key="c", end="erred")
    assert (failed.read().erred, failed.read().exact) == (2, False)


def test_running_counts_are_those_of_a_full_count() -> None:
    """Retries, computing again, changed outcomes, and failures, in a random order."""
    random = np.random.default_rng(6)
    plugin = RunTotals("x")
    last: dict[tuple[str, int], tuple[str, int, int, float | None]] = {}
    first: dict[str, str] = {}
    for _ in range(2000):
        tile, worker = int(random.integers(50)), str(random.integers(3))
        key = f"tile-{tile}-{random.integers(2)}"
        if random.random() < 0.2:
            finish(plugin, key=key, end="erred")
            continue
        reports = {}
        for stage in STAGES:
            residual = float(random.random()) if stage == "validate" else None
            report = (
                str(random.choice(OUTCOMES)),
                int(random.integers(100)),
                int(random.integers(100)),
                residual,
            )
            reports[f"{stage}/{tile}"] = last[stage, tile] = report
        finish(plugin, key=key, worker=worker, reports=reports)
        first.setdefault(key, worker)
    totals = plugin.read()
    assert totals.units == Counter((s, one[0]) for (s, _), one in last.items())
    rows: Counter[tuple[str, str]] = Counter()
    for (stage, _), (_, rows_in, rows_out, _) in last.items():
        rows.update({(stage, "in"): rows_in, (stage, "out"): rows_out})
    assert totals.rows == rows
    assert totals.by_worker == Counter(first.values())
    assert totals.tasks == len(first) == 100
    assert totals.residuals == sorted(one[3] for one in last.values() if one[3])
    assert totals.exact
    registry = CollectorRegistry()
    registry.register(plugin)
    exposed = {
        (stage, outcome): registry.get_sample_value(
            "survey_run_units_total", {"stage": stage, "outcome": outcome}
        )
        for stage in STAGES
        for outcome in OUTCOMES
    }
    assert {labels: n for labels, n in exposed.items() if n} == totals.units


def test_a_scrape_walks_over_no_units(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = RunTotals("x")
    finish(plugin, reports=REJECTED)
    monkeypatch.setattr(plugin, "_units", None)
    monkeypatch.setattr(plugin, "_finished", None)
    registry = CollectorRegistry()
    registry.register(plugin)
    rejected = {"stage": "validate", "outcome": "rejected"}
    assert registry.get_sample_value("survey_run_units_total", rejected) == 1
    with pytest.raises(AttributeError):
        plugin.read()


def test_quantiles() -> None:
    totals = Totals("x", residuals=[0.01, 0.02, 0.03])
    assert totals.quantile(0.5) == 0.02
    assert totals.quantile(0.75) == pytest.approx(0.025)
    assert str(Totals("x").quantile(0.5)) == "nan"


def test_it_travels_empty() -> None:
    plugin = RunTotals("x", limit=5, client="c")
    finish(plugin)
    copy = pickle.loads(pickle.dumps(plugin))
    assert (copy.run, copy.limit, copy.client) == ("x", 5, "c")
    assert copy.read() == Totals("x")


def test_its_metrics_have_every_series_and_no_run() -> None:
    plugin = RunTotals("night-7")
    finish(plugin, reports=REJECTED)
    registry = CollectorRegistry()
    registry.register(plugin)
    assert unbounded(registry) == []
    rejected = {"stage": "validate", "outcome": "rejected"}
    assert registry.get_sample_value("survey_run_units_total", rejected) == 1
    rows = {"stage": "ingest", "direction": "out"}
    assert registry.get_sample_value("survey_run_rows_total", rows) == 95
    assert registry.get_sample_value("survey_run_exact") == 1
    count = sum(len(family.samples) for family in registry.collect())
    assert count == 4 * 3 + 4 * 2 + 1


# On a cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        yield client


def test_a_run_on_a_cluster(client: Client, tmp_path: Path) -> None:
    with run_totals(client, "night") as reader:
        tiles = client.map(survey_tile, range(50), folder=str(tmp_path), pure=False)
        results: list[Tile] = client.gather(tiles)
        bad = client.submit(survey_tile, 50, unreadable=True, pure=False)
        assert isinstance(bad.exception(), ValueError)
        client.gather(client.scatter(results, hash=False))
        client.register_plugin(RunTotals("night"))
        totals = reader.read()
    assert totals.tasks == totals.executions == 50
    assert totals.erred == 1
    truth = expected(50)
    assert totals.units["publish", "ok"] == truth["ok"] == len(list(tmp_path.iterdir()))
    assert totals.units["validate", "rejected"] == truth["rejected"]
    assert totals.residuals == sorted(tile.residual for tile in results)
    assert sum(totals.by_worker.values()) == 50


def unreadable_but_caught(number: int) -> None:
    """A task that goes on without the unit that failed."""
    with contextlib.suppress(UnreadableTile):
        survey_tile(number, unreadable=True)


def test_tasks_that_fail_are_in_the_manifest(client: Client) -> None:
    with run_totals(client, "night") as reader:
        tiles = client.map(survey_tile, range(20), pure=False)
        bad = client.map(survey_tile, range(20, 25), unreadable=True, pure=False)
        client.gather(tiles)
        assert all(isinstance(one.exception(), UnreadableTile) for one in bad)
        client.submit(unreadable_but_caught, 25, pure=False).result()
        said = manifest(reader.read())
    assert said["tasks"] == {"finished": 21, "failed": 5, "executions": 21}
    assert (said["stages"]["ingest"]["ok"], said["stages"]["ingest"]["error"]) == (
        20,
        1,
    )
    assert said["exact"] is True


def test_failed_tasks_of_others_and_those_that_the_run_stands_on(
    client: Client, cluster: LocalCluster
) -> None:
    with (
        run_totals(client, "night") as reader,
        Client(cluster, set_as_default=False) as other,
    ):
        bad = other.submit(survey_tile, 1, unreadable=True, pure=False)
        assert isinstance(bad.exception(), UnreadableTile)
        assert reader.read().erred == 0
        first = dask.delayed(survey_tile)(2, unreadable=True)
        last = client.compute(dask.delayed(list)([dask.delayed(str)(first)]))
        assert isinstance(last.exception(), UnreadableTile)
        assert reader.read().erred == 1


def test_it_leaves_nothing_behind(client: Client, cluster: LocalCluster) -> None:
    assert cluster.scheduler is not None
    with run_totals(client, "night"):
        assert RunTotals.name in cluster.scheduler.plugins
        assert REGISTRY.get_sample_value("survey_run_exact") == 1
    assert RunTotals.name not in cluster.scheduler.plugins
    assert REGISTRY.get_sample_value("survey_run_exact") is None


def test_a_block_inside_of_another_joins_it(client: Client) -> None:
    with run_totals(client, "night") as outer:
        client.submit(survey_tile, 1, pure=False).result()
        with run_totals(client, "night", limit=1) as inner:
            client.submit(survey_tile, 2, pure=False).result()
            assert inner.read() == outer.read()
        client.submit(survey_tile, 3, pure=False).result()
        totals = outer.read()
    assert (totals.stage("ingest"), totals.tasks, totals.exact) == (3, 3, True)
    assert REGISTRY.get_sample_value("survey_run_exact") is None


def test_failed_tasks_of_a_client_that_joined(
    client: Client, cluster: LocalCluster
) -> None:
    with (
        run_totals(client, "night") as reader,
        Client(cluster, set_as_default=False) as other,
        run_totals(other, "night"),
    ):
        bad = other.submit(survey_tile, 1, unreadable=True, pure=False)
        assert isinstance(bad.exception(), UnreadableTile)
        assert reader.read().erred == 1


def test_what_a_client_left_that_is_gone_is_replaced(
    client: Client, cluster: LocalCluster
) -> None:
    scheduler = cluster.scheduler
    assert scheduler is not None
    with Client(cluster, set_as_default=False) as killed:
        killed.register_plugin(RunTotals("night", client=killed.id))
        killed.submit(survey_tile, 1, pure=False).result()
        gone = killed.id
    eventually(lambda: gone not in scheduler.clients, "the client to be gone")
    assert client.run_on_scheduler(read_totals).tasks == 1
    with run_totals(client, "night") as reader:
        assert reader.read() == Totals("night")
    assert RunTotals.name not in scheduler.plugins


def test_one_run_at_a_time(client: Client) -> None:
    with run_totals(client, "night"):
        with (
            pytest.raises(LabError) as caught,
            run_totals(client, "day"),
        ):
            pass
        assert str(caught.value) == (
            "the scheduler counts the run 'night'; wait for its end, or use "
            "'make restart'."
        )
        assert REGISTRY.get_sample_value("survey_run_exact") == 1


# The manifest


def some_totals() -> Totals:
    plugin = RunTotals("2026-11-30")
    finish(plugin, reports=REJECTED)
    return plugin.read()


def test_what_a_manifest_says() -> None:
    when = datetime.datetime(2026, 11, 30, 23, 59, tzinfo=datetime.UTC)
    said = manifest(some_totals(), when)
    assert said["run"] == "2026-11-30"
    assert said["ended"] == "2026-11-30T23:59:00+00:00"
    assert set(said["versions"]) == {
        "python", "dask", "distributed", "numpy", "dask-cluster-lab",
    }  # fmt: skip
    assert said["exact"] is True
    assert said["tasks"] == {"finished": 1, "failed": 0, "executions": 1}
    assert list(said["stages"]) == list(STAGES)
    assert said["stages"]["validate"] == {
        "ok": 0, "rejected": 1, "error": 0, "rows in": 25, "rows out": 0,
    }  # fmt: skip
    assert said["residual metres"] == {"p50": 0.07, "p95": 0.07, "p99": 0.07}


def test_a_run_that_measured_nothing_has_no_quantiles() -> None:
    said = manifest(Totals("x"))
    assert set(said["residual metres"].values()) == {None}
    assert "NaN" not in json.dumps(said)


def test_a_manifest_is_written_whole_and_again(tmp_path: Path) -> None:
    for _ in range(2):
        path = write_manifest(some_totals(), tmp_path)
    assert list(tmp_path.iterdir()) == [path] == [tmp_path / "2026-11-30.json"]
    assert json.loads(path.read_text())["stages"]["ingest"]["ok"] == 1


@pytest.mark.parametrize("run", ["", ".", "..", "a/b", "../x"])
def test_a_run_whose_name_is_no_file(run: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        write_manifest(Totals(run), tmp_path)
    assert list(tmp_path.iterdir()) == []
