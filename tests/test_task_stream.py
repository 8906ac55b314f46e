"""The arithmetic of task streams, on made records."""

import pytest

from dask_cluster_lab.task_stream import peak_overlap


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        pytest.param([], 0, id="nothing ran"),
        pytest.param([(1.0, 2.0)], 1, id="one task"),
        pytest.param([(0, 1), (2, 3)], 1, id="apart"),
        pytest.param([(0, 1), (1, 2), (2, 3)], 1, id="one slot, no pause between"),
        pytest.param([(0, 2), (1, 3)], 2, id="partly"),
        pytest.param([(0, 9), (1, 2), (3, 4), (5, 6)], 2, id="one long, short in turn"),
        pytest.param([(0, 9), (1, 8), (2, 7)], 3, id="nested"),
        pytest.param([(0, 1)] * 4, 4, id="the same"),
        pytest.param([(5, 6), (0, 2), (1, 3), (5, 7)], 2, id="in any order"),
        pytest.param([(0, 1), (0, 1), (1, 2), (1, 2)], 2, id="two slots, two waves"),
        pytest.param([(1, 1)], 0, id="no length"),
        pytest.param([(0, 2), (1, 1)], 1, id="no length, within another"),
        pytest.param([(-3.5, -1.0), (-2.0, 0.5)], 2, id="before the epoch"),
    ],
)
def test_peak_overlap(intervals: list[tuple[float, float]], expected: int) -> None:
    assert peak_overlap(intervals) == expected


def test_peak_overlap_takes_an_iterator() -> None:
    assert peak_overlap((start, start + 2) for start in range(5)) == 2


def test_peak_overlap_rejects_an_interval_that_stops_before_it_starts() -> None:
    with pytest.raises(ValueError, match=r"\(2, 1\) stops before it starts"):
        peak_overlap([(0, 3), (2, 1)])
