"""0503: the batch that it makes for any cluster, and its stream recorded by another."""

import json
import runpy
from collections import Counter
from types import SimpleNamespace

import pytest
from compose_cluster import ROOT, ComposeCluster
from distributed import get_task_stream
from lesson_runs import passes_on_the_cluster

from dask_cluster_lab.task_stream import computes, prefix_of

LESSON = ROOT / "examples" / "0503_task_stream.py"
lesson = SimpleNamespace(**runpy.run_path(str(LESSON)))


CLUSTERS = [[2] * n for n in (1, 2, 3, 5, 8)] + [
    [1, 1], [1, 1, 1], [4], [8], [16], [1, 8], [8, 1], [3, 2, 5], [1] * 32,
]  # fmt: skip


@pytest.mark.parametrize("threads", CLUSTERS, ids=str)
def test_the_longest_task_is_above_the_floor_by_construction(
    threads: list[int],
) -> None:
    slots = sum(threads)
    workers = {f"tcp://10.0.0.{i:03}:1": n for i, n in enumerate(threads)}
    half = lesson.half_of(workers)
    on_half = sum(workers[address] for address in half)
    n_long = lesson.long_tasks(slots, on_half)
    short = lesson.N_SHORT * lesson.SHORT
    assert n_long >= 1
    assert short < lesson.LONG
    # The floor, on all slots and on half of them, is below the longest task; all short
    # tasks fit beside the long ones, so that nothing else sets the duration.
    for available in (slots, on_half):
        assert (n_long * lesson.LONG + short) / available < lesson.LONG
        assert n_long < available
    # So they do in small, and the longer ones of the last section as well.
    assert short / 2 < lesson.LONG_IN_TURNS
    assert 0.4 * slots <= slots - n_long


@pytest.mark.parametrize(
    ("overhead", "seconds"),
    [(-0.1, 0.6), (0.0, 0.6), (0.15, 0.6), (0.3, 1.2), (0.5, 2.0), (9.0, 2.0)],
)
def test_long_tasks_are_longer_on_a_busy_machine(
    overhead: float, seconds: float
) -> None:
    assert lesson.long_enough(overhead) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        ([2], 1),
        ([2, 2], 1),
        ([2, 2, 2], 2),
        ([2] * 5, 3),
        ([2] * 8, 4),
        ([1, 1], 2),
        ([1, 1, 1], 2),
        ([8, 1], 1),
    ],
)
def test_half_of(threads: list[int], expected: int) -> None:
    workers = {chr(ord("a") + i): n for i, n in enumerate(threads)}
    half = lesson.half_of(workers)
    assert half == list(workers)[:expected]
    assert sum(workers[w] for w in half) >= max(2, sum(threads) / 2)


@pytest.mark.compose
def test_its_tasks_seen_by_another_client(shared_cluster: ComposeCluster) -> None:
    with shared_cluster.client() as client:
        with get_task_stream(client) as stream:
            passes_on_the_cluster("0503", shared_cluster, observers=1)
        workers = sorted(client.nthreads())
    ran = computes(stream.data)
    # Three long tasks on six slots: one run in full, 4 on trial, 10 in small, 5 with
    # each in six parts, and 10 in order, in which all tasks are survey_region.
    assert Counter(prefix_of(span.key) for span in ran) == {
        "survey_region": 3 + 14 * 3 + 5 * 18 + 10 * 23,
        "survey_tile": 40 + 19 * 20,
    }
    longest = sorted(span.seconds for span in ran)[-3:]
    assert min(longest) >= lesson.LONG
    assert {span.worker for span in ran} == set(workers)

    facts = json.loads((ROOT / "reports" / "0503_task_stream.json").read_text())
    totals = facts["totals"]
    assert totals["tasks"] == 43
    assert totals["verdict"] == "one long task"
    assert totals["longest seconds"] == pytest.approx(longest[-1], abs=0.001)
    assert totals["floor seconds"] < totals["longest seconds"]
    assert totals["duration seconds"] >= totals["longest seconds"]
