"""``docs/reference/metrics.md`` has every metric, and none that does not exist."""

import importlib
import inspect
import re
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from compose_cluster import ROOT
from distributed import Client, LocalCluster
from monitoring_files import DASHBOARDS, rules
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from dask_cluster_lab.metrics.labels import BOUNDED
from dask_cluster_lab.metrics.totals import RunTotals
from dask_cluster_lab.metrics.work import Instruments

PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
SOURCES = {
    "scheduler": "distributed.http.scheduler.prometheus.core",
    "worker": "distributed.http.worker.prometheus.core",
}


@dataclass(frozen=True)
class Documented:
    """A line of a table of metrics."""

    kind: str
    labels: frozenset[str]


def rows(section: str) -> list[list[str]]:
    """The cells of all tables below a heading, their heads left out."""
    _, found, rest = PAGE.partition(f"\n## {section}\n")
    assert found, section
    text = rest.partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def named(section: str) -> list[str]:
    return [cells[0].strip("`") for cells in rows(section)]


def documented(*sections: str) -> dict[str, Documented]:
    """Metric to what its line says."""
    lines = [line for section in sections for line in rows(section) if len(line) == 4]
    names = [line[0].strip("`") for line in lines]
    assert len(names) == len(set(names))
    return {
        name: Documented(line[1], frozenset(re.findall(r"`(\w+)`", line[2])))
        for name, line in zip(names, lines, strict=True)
    }


def exposed(families: Iterable[Metric]) -> dict[str, Documented]:
    """Metric to what it is, by the name that Prometheus stores."""
    return {
        name_of(family): Documented(
            family.type,
            frozenset(label for one in family.samples for label in one.labels) - {"le"},
        )
        for family in families
        if not family.name.endswith("_created")  # one sentence of the page
    }


def name_of(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


@pytest.fixture(scope="module")
def dasks(cluster: LocalCluster) -> dict[str, Documented]:
    """What a scheduler and a worker expose after a task, by HTTP."""
    with Client(cluster) as client:
        assert client.submit(sum, [1, 2], pure=False).result() == 3
        workers = client.scheduler_info()["workers"].values()
        addresses = [f"{one['host']}:{one['services']['dashboard']}" for one in workers]
        pages = [f"http://{address}/metrics" for address in addresses]
        pages.append(client.dashboard_link.replace("/status", "/metrics"))
        found: dict[str, Documented] = {}
        for page in pages:
            with urllib.request.urlopen(page, timeout=30) as answer:
                text = answer.read().decode()
            for name, one in exposed(text_string_to_metric_families(text)).items():
                labels = one.labels | (found[name].labels if name in found else set())
                found[name] = Documented(one.kind, frozenset(labels))
    return {
        name: one
        for name, one in found.items()
        if name.startswith(("dask_", "process_", "python_"))
    }


# The pipeline's own


def test_own_metrics_are_all_there_and_no_others() -> None:
    registry = CollectorRegistry()
    Instruments(registry)
    registry.register(RunTotals("reference"))
    assert documented("The pipeline's own") == exposed(registry.collect())


def test_values_of_labels_are_all_there() -> None:
    table = {
        cells[0].strip("`"): tuple(re.findall(r"`(\w+)`", cells[1]))
        for cells in rows("The pipeline's own")
        if len(cells) == 2
    }
    assert table == BOUNDED


# Dask's own


def test_dask_metrics_are_all_there_and_no_others(dasks: dict[str, Documented]) -> None:
    page = documented(
        "Dask's own, on the scheduler", "Dask's own, on each worker", "The processes"
    )
    optional = documented("Dask's own, with another package")
    here = dasks.keys() - optional.keys()  # somebody may have installed that package
    # Elsewhere than on Linux there is no /proc to read them from.
    missing = page.keys() - here
    assert {name for name in missing if not name.startswith("process_")} == set()
    assert here - page.keys() == set()
    assert {n: page[n].kind for n in here} == {n: dasks[n].kind for n in here}


def test_labels_of_dask_metrics_are_right(dasks: dict[str, Documented]) -> None:
    """Of a metric without a series no label can be seen; it may get one any time."""
    page = documented(
        "Dask's own, on the scheduler", "Dask's own, on each worker", "The processes"
    )
    seen = {name: one.labels for name, one in dasks.items() if one.labels}
    said = {name: one.labels for name, one in page.items() if one.labels}
    assert {n: said.get(n) for n in seen if n in page} == {
        n: labels for n, labels in seen.items() if n in page
    }
    unseen = said.keys() - seen.keys()
    late = ("dask_semaphore_", "dask_worker_tasks", "dask_worker_spill_")
    assert [name for name in unseen if not name.startswith(late)] == []


def test_sections_name_who_exposes_it() -> None:
    scheduler = named("Dask's own, on the scheduler")
    others = ("dask_scheduler_", "dask_semaphore_", "dask_stealing_")
    assert [name for name in scheduler if not name.startswith(others)] == []
    worker = named("Dask's own, on each worker")
    assert [name for name in worker if not name.startswith("dask_worker_")] == []


@pytest.mark.parametrize("name", named("Dask's own, with another package"))
def test_metrics_that_need_a_package_exist(name: str) -> None:
    """They cannot be fetched here; Dask's source has them."""
    _, who, what = name.split("_", maxsplit=2)
    source = inspect.getsource(importlib.import_module(SOURCES[who]))
    unit = what.removesuffix("_total").rpartition("_")
    assert re.search(rf'build_name\("{unit[0]}"\).*?unit="{unit[2]}"', source, re.S)


# Rules and dashboards


def test_rules_are_all_there_and_no_others() -> None:
    recorded = {rule.name for rule in rules("record")}
    assert sorted(named("Recording rules")) == sorted(recorded)
    assert {cells[0].strip("`"): cells[1] for cells in rows("Alerts")} == {
        rule.name: rule.text["labels"]["severity"] for rule in rules("alert")
    }


def test_dashboards_are_all_there_and_no_others() -> None:
    assert sorted(named("Dashboards")) == [path.stem for path in DASHBOARDS]
