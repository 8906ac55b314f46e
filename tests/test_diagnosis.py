"""The diagnosis on made records: one run for each verdict, and runs on the border."""

import re
from collections.abc import Iterable
from typing import Any

import pytest

from dask_cluster_lab import diagnosis
from dask_cluster_lab.diagnosis import ADVICE, Diagnosis, Verdict, diagnose
from dask_cluster_lab.task_stream import Record

A, B = "tcp://10.0.0.1:4001", "tcp://10.0.0.2:4002"
TWO_BY_TWO = {A: 2, B: 2}

Stretch = tuple[str, float, float]


def task(key: Any, worker: str, *stretches: Stretch) -> Record:
    """A record of the task stream: its stretches are (action, start, seconds)."""
    return {
        "key": key,
        "worker": worker,
        "startstops": [
            {"action": action, "start": start, "stop": start + seconds}
            for action, start, seconds in stretches
        ],
    }


def queue(worker: str, seconds: Iterable[float], name: str = "tile") -> list[Record]:
    """Tasks that one thread computes one after the other from second 100 on."""
    records, clock = [], 100.0
    for number, taken in enumerate(seconds):
        records.append(task((name, worker, number), worker, ("compute", clock, taken)))
        clock += taken
    return records


def with_stretches(*more: Stretch) -> list[Record]:
    """Four threads that compute for 2 s each, and a task with ``more`` stretches."""
    records = [record for w in (A, A, B) for record in queue(w, [0.5] * 4)]
    records += queue(B, [0.5] * 3)
    return [*records, task("last", B, *more, ("compute", 101.5, 0.5))]


BUSY = [record for worker in (A, A, B, B) for record in queue(worker, [0.5] * 4)]
ONE_LONG = [
    *queue(A, [3.0], "region"),
    *(record for worker in (A, B, B) for record in queue(worker, [0.25] * 4)),
]
UNEVEN = [
    *queue(A, [0.5] * 4),
    *queue(A, [0.5] * 4),
    *queue(B, [0.25] * 2),
]
TINY = [
    task(("tile", worker, i), worker, ("compute", 100 + i * 0.02, 0.005))
    for worker in (A, A, B, B)
    for i in range(100)
]
WAITING = [  # two steps, each of which waits half a second for the client
    task((step, worker, thread), worker, ("compute", start, 0.5))
    for step, start in (("first", 100), ("second", 101), ("third", 102))
    for worker in (A, B)
    for thread in (0, 1)
]


@pytest.mark.parametrize(
    ("records", "verdict"),
    [
        pytest.param(queue(A, [0.2, 0.3]), "too short to judge", id="too short"),
        pytest.param(
            with_stretches(("disk-read", 100, 1.5), ("disk-write", 100, 1.5)),
            "spilling",
            id="spilling",
        ),
        pytest.param(
            with_stretches(("transfer", 98, 2.5), ("deserialize", 98, 2.5)),
            "moving data",
            id="moving data",
        ),
        pytest.param(TINY, "tasks too small", id="too small"),
        pytest.param(ONE_LONG, "one long task", id="one long"),
        pytest.param(UNEVEN, "uneven load", id="uneven"),
        pytest.param(WAITING, "idle slots", id="idle"),
        pytest.param(BUSY, "more slots would help", id="busy"),
    ],
)
def test_verdict(records: list[Record], verdict: Verdict) -> None:
    found = diagnose(records, TWO_BY_TWO)
    assert found.verdict == verdict
    assert found.advice == ADVICE[verdict]


def test_figures_of_a_busy_run() -> None:
    found = diagnose(BUSY, TWO_BY_TWO)
    assert (found.tasks, found.slots) == (16, 4)
    assert (found.duration, found.compute, found.floor) == (2.0, 8.0, 2.0)
    assert (found.efficiency, found.spread, found.longest) == (1.0, 1.0, 0.5)
    assert found.by_worker == {A: 4.0, B: 4.0}
    assert found.by_action == {"compute": 8.0}
    assert found.stragglers == ()


def test_figures_of_one_long_task() -> None:
    found = diagnose(ONE_LONG, TWO_BY_TWO)
    assert (found.tasks, found.duration, found.compute) == (13, 3.0, 6.0)
    assert (found.floor, found.longest, found.efficiency) == (1.5, 3.0, 0.5)
    assert found.by_worker == {A: 4.0, B: 2.0}
    assert found.spread == pytest.approx(4 / 3)
    assert [span.key for span in found.stragglers] == [("region", A, 0)]
    region, tile = found.by_prefix
    assert (region.name, region.tasks, region.seconds, region.longest) == (
        "region", 1, 3.0, 3.0,
    )  # fmt: skip
    assert (tile.name, tile.tasks, tile.seconds, tile.longest) == (
        "tile", 12, 3.0, 0.25,
    )  # fmt: skip


def test_figures_of_tiny_tasks() -> None:
    found = diagnose(TINY, TWO_BY_TWO)
    assert found.compute / found.tasks == pytest.approx(0.005)
    assert found.duration == pytest.approx(99 * 0.02 + 0.005)
    assert found.efficiency == pytest.approx(0.5 / 1.985, rel=1e-3)


def test_figures_of_waiting() -> None:
    found = diagnose(WAITING, TWO_BY_TWO)
    assert (found.duration, found.floor, found.efficiency) == (2.5, 1.5, 0.6)
    assert found.spread == 1.0


def test_figures_of_uneven_load() -> None:
    found = diagnose(UNEVEN, TWO_BY_TWO)
    assert found.by_worker == {A: 4.0, B: 0.5}
    assert found.spread == pytest.approx(4 / 2.25)
    assert found.efficiency == pytest.approx(4.5 / 8)


def test_actions_are_added_up_apart() -> None:
    found = diagnose(
        with_stretches(
            ("transfer", 99, 0.5), ("transfer", 99.25, 0.5), ("disk-read", 99.5, 0.25)
        ),
        TWO_BY_TWO,
    )
    assert found.by_action == {"compute": 8.0, "transfer": 1.0, "disk-read": 0.25}
    assert found.duration == 3.0, "from the first start of any stretch"


def test_an_idle_worker_counts() -> None:
    found = diagnose(queue(A, [0.5] * 4), {A: 1, B: 1})
    assert found.by_worker == {A: 2.0, B: 0.0}
    assert (found.spread, found.efficiency, found.floor) == (2.0, 0.5, 1.0)
    assert found.verdict == "uneven load"


def test_a_worker_that_is_gone_keeps_its_time_but_has_no_slots() -> None:
    found = diagnose([*queue(A, [0.5] * 4), *queue(B, [0.5] * 4)], {A: 2})
    assert found.by_worker == {A: 2.0, B: 2.0}
    assert (found.slots, found.floor) == (2, 2.0)


def scaled(records: list[Record], seconds: float) -> list[Record]:
    """The same run, but with its last stop ``seconds`` after its first start."""
    factor = seconds / diagnose(records, TWO_BY_TWO).duration
    return [
        {
            **record,
            "startstops": [
                {
                    **stretch,
                    "start": stretch["start"] * factor,
                    "stop": stretch["stop"] * factor,
                }
                for stretch in record["startstops"]
            ],
        }
        for record in records
    ]


@pytest.mark.parametrize(
    ("records", "verdict"),
    [
        # A second is judged, a little less is not.
        pytest.param(scaled(BUSY, 0.99), "too short to judge", id="0.99 s"),
        pytest.param(scaled(BUSY, 1.01), "more slots would help", id="1.01 s"),
        # Beside 8 s of computing, 0.89 s are a tenth of all and 3.43 s three tenths.
        pytest.param(
            with_stretches(("disk-read", 100, 0.85)),
            "more slots would help",
            id="a little disk",
        ),
        pytest.param(with_stretches(("disk-write", 100, 0.93)), "spilling", id="disk"),
        pytest.param(
            with_stretches(("transfer", 99.5, 1.7), ("deserialize", 99.5, 1.7)),
            "more slots would help",
            id="some moving",
        ),
        pytest.param(
            with_stretches(("transfer", 99.5, 1.75), ("deserialize", 99.5, 1.75)),
            "moving data",
            id="much moving",
        ),
        # The longest against the floor of (longest + 9) / 4: equal at 3 s.
        pytest.param(
            [*queue(A, [2.9]), *(r for w in (A, B, B) for r in queue(w, [1.0] * 3))],
            "more slots would help",
            id="just below the floor",
        ),
        pytest.param(
            [*queue(A, [3.1]), *(r for w in (A, B, B) for r in queue(w, [1.0] * 3))],
            "one long task",
            id="just above the floor, with busy slots",
        ),
        # Tasks of 10 ms are large enough to be judged by something else.
        pytest.param(
            [
                task(("tile", w, i), w, ("compute", 100 + i * 0.02, 0.0101))
                for w in (A, A, B, B)
                for i in range(100)
            ],
            "idle slots",
            id="10.1 ms tasks",
        ),
        # Small, but the slots are busy with them.
        pytest.param(
            [record for w in (A, A, B, B) for record in queue(w, [0.005] * 300)],
            "more slots would help",
            id="small and busy",
        ),
        # One wave of equal tasks: each is as long as the floor.
        pytest.param(
            [record for w in (A, A, B, B) for record in queue(w, [2.0])],
            "one long task",
            id="one wave",
        ),
        # Efficiency just below 0.7, spread 1.4: slots stood still, but not unevenly.
        pytest.param(
            [
                *(r for _ in range(2) for r in queue(A, [0.4] * 5)),
                *(r for _ in range(2) for r in queue(B, [0.4] * 2)),
                task("late", B, ("compute", 102.0, 0.01)),
            ],
            "idle slots",
            id="a little uneven",
        ),
        pytest.param(queue(A, [2.0]), "one long task", id="a single task"),
        # The first that applies: what spills is too short, what moves spills.
        pytest.param(
            [task("x", A, ("disk-read", 100, 0.4), ("compute", 100.4, 0.1))],
            "too short to judge",
            id="short and spilling",
        ),
        pytest.param(
            with_stretches(("transfer", 97, 4.0), ("disk-read", 100, 2.0)),
            "spilling",
            id="spilling and moving",
        ),
    ],
)
def test_verdict_on_the_border(records: list[Record], verdict: Verdict) -> None:
    assert diagnose(records, TWO_BY_TWO).verdict == verdict


@pytest.mark.parametrize(
    ("records", "threads", "message"),
    [
        ([], TWO_BY_TWO, "0 tasks on 4 slots"),
        (BUSY, {}, "16 tasks on 0 slots"),
        ([task("x", A, ("transfer", 1, 2))], TWO_BY_TWO, "0 tasks on 4 slots"),
    ],
)
def test_nothing_to_judge(
    records: list[Record], threads: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        diagnose(records, threads)


def test_tasks_that_took_no_time_on_the_clock() -> None:
    found = diagnose([task("x", A, ("compute", 5.0, 0.0))], TWO_BY_TWO)
    assert (found.duration, found.efficiency, found.spread) == (0.0, 0.0, 1.0)
    assert found.verdict == "too short to judge"


def test_stragglers_longest_first() -> None:
    found = diagnose([*queue(A, [1.0] * 9), *queue(B, [3.5, 3.0, 8.0])], {A: 1, B: 1})
    assert [span.seconds for span in found.stragglers] == [8.0, 3.5]


def test_the_docstring_lists_the_verdicts_in_their_order() -> None:
    table = (diagnosis.__doc__ or "").split("===\n")[1]
    listed = [re.split(r" {2,}", line)[0] for line in table.splitlines()]
    assert [name for name in listed if name in ADVICE] == list(ADVICE)


def test_takes_an_iterator() -> None:
    found: Diagnosis = diagnose(iter(BUSY), TWO_BY_TWO)
    assert found.tasks == len(BUSY)
