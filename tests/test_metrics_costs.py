"""The comparison that ``make bench`` shows: both sides run, and it leaves nothing."""

import pytest
from distributed import Client, LocalCluster
from prometheus_client import REGISTRY

from dask_cluster_lab.metrics import costs
from dask_cluster_lab.metrics.totals import RunTotals


def test_both_ratios_are_of_two_things_that_ran(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "TASKS", 20)
    monkeypatch.setattr(costs, "ROUNDS", 1)
    work, unit = costs.work_and_unit(3)
    assert work > unit > 0
    with Client(cluster, set_as_default=False) as client:
        assert costs.task_ratio(client) > 1
        assert costs.scheduler_ratio(client) > 0
        assert (
            client.run_on_scheduler(
                lambda dask_scheduler: sorted(dask_scheduler.plugins)
            ).count(RunTotals.name)
            == 0
        )
    assert REGISTRY.get_sample_value("survey_run_exact") is None
    assert (
        REGISTRY.get_sample_value(
            "survey_units_total", {"stage": "grid", "outcome": "ok"}
        )
        is None
    )
