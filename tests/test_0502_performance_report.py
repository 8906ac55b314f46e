"""0502: the files that it leaves, read again by the test."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from compose_cluster import ROOT, ComposeCluster
from distributed import Client, performance_report
from lesson_runs import passes_on_the_cluster

from dask_cluster_lab.reports import fetched_from_outside, tab_titles

if TYPE_CHECKING:
    from distributed import LocalCluster

REPORTS = ROOT / "reports"


LESSON = ROOT / "examples" / "0502_performance_report.py"
lesson = SimpleNamespace(**runpy.run_path(str(LESSON)))


@pytest.mark.parametrize(
    ("page", "tasks"),
    [
        ("<li> number of tasks: 0 </li>", 0),
        ("<li> number of tasks: 1168 </li>", 1168),
        ("nothing of the kind", -1),
    ],
)
def test_tasks_reported(page: str, tasks: int) -> None:
    assert lesson.tasks_reported(page) == tasks


def test_both_chunkings_give_the_sum() -> None:
    whole, rest = divmod(lesson.N, 97)
    expected = whole * sum(range(97)) + sum(range(rest))
    for chunk in lesson.CHUNKS.values():
        assert int(lesson.remainders(chunk).compute(scheduler="threads")) == expected


def test_about() -> None:
    assert (lesson.about(24.6), lesson.about(float("nan"))) == ("~25", "n/a")


def test_what_an_inline_report_fetches_is_the_icon(
    cluster: "LocalCluster", tmp_path: Path
) -> None:
    """The claim that the lesson repairs, so that an upgrade of Dask shows here."""
    path = tmp_path / "report.html"
    with Client(cluster) as client, performance_report(str(path), mode="inline"):
        client.submit(sum, [1, 2], pure=False).result()
    page = path.read_text(encoding="utf-8")
    assert [a.rpartition("/")[2] for a in fetched_from_outside(page)] == ["favicon.ico"]
    assert fetched_from_outside(lesson.ICON.sub("", page)) == []
    assert len(page) - len(lesson.ICON.sub("", page)) < 200


@pytest.mark.compose
def test_its_files(shared_cluster: ComposeCluster) -> None:
    """A second run writes the same files anew; each says what it holds."""
    passes_on_the_cluster("0502", shared_cluster)
    facts = {
        name: json.loads((REPORTS / f"0502_{name}.json").read_text(encoding="utf-8"))
        for name in lesson.CHUNKS
    }
    assert sorted(path.name for path in REPORTS.glob("0502*")) == [
        "0502_bad.html", "0502_bad.json", "0502_good.html", "0502_good.json",
    ]  # fmt: skip
    index = (REPORTS / "index.html").read_text(encoding="utf-8")
    for name, fact in facts.items():
        page = (REPORTS / f"0502_{name}.html").read_text(encoding="utf-8")
        assert fact["bytes"] == len(page.encode())
        assert (fact["session"], fact["workers"]) == ("compose", 3)
        assert fact["scheduler"] == shared_cluster.address
        assert lesson.tasks_reported(page) == fact["totals"]["tasks"]
        assert fetched_from_outside(page) == []
        assert set(tab_titles(page)) >= lesson.WANTED
        assert f'href="0502_{name}.html"' in index
    assert facts["bad"]["totals"]["tasks"] > 20 * facts["good"]["totals"]["tasks"]
