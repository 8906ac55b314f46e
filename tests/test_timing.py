"""Fair timing: who takes turns when, and what is kept."""

import statistics
import types
from collections.abc import Callable

import pytest

from dask_cluster_lab import timing
from dask_cluster_lab.timing import Timing, interleave


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless a test moves ``clock[0]``."""
    now = [100.0]
    stopped = types.SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr(timing, "time", stopped)
    return now


def variant(
    clock: list[float], name: str, seconds: list[float], calls: list[str]
) -> Callable[[], int]:
    """Takes one of ``seconds`` after the other; returns the number of the call."""

    def call() -> int:
        number = calls.count(name)
        calls.append(name)
        clock[0] += seconds[number]
        return number

    return call


def test_turns_medians_and_results(clock: list[float]) -> None:
    calls: list[str] = []
    timings = interleave(
        {
            "a": variant(clock, "a", [50.0, 1.0, 2.0, 9.0], calls),
            "b": variant(clock, "b", [60.0, 4.0, 4.0, 5.0], calls),
        },
        rounds=3,
    )
    assert calls == ["a", "b"] * 4
    assert list(timings) == ["a", "b"]
    assert timings["a"].seconds == [1.0, 2.0, 9.0]
    assert timings["b"].seconds == [4.0, 4.0, 5.0]
    assert (timings["a"].median, timings["b"].median) == (2.0, 4.0)
    assert (timings["a"].result, timings["b"].result) == (3, 3)


@pytest.mark.parametrize(
    ("warm_up", "kept"), [(0, [1.0, 2.0]), (1, [2.0, 4.0]), (2, [4.0, 8.0])]
)
def test_warm_up_rounds_are_thrown_away(
    warm_up: int, kept: list[float], clock: list[float]
) -> None:
    calls: list[str] = []
    only = variant(clock, "x", [1.0, 2.0, 4.0, 8.0], calls)
    timings = interleave({"x": only}, rounds=2, warm_up=warm_up)
    assert timings["x"].seconds == kept
    assert len(calls) == 2 + warm_up


def test_five_rounds_and_one_warm_up_by_default() -> None:
    calls: list[int] = []
    timings = interleave({"x": lambda: calls.append(1)})
    assert len(calls) == 6
    assert len(timings["x"].seconds) == 5
    assert all(seconds >= 0 for seconds in timings["x"].seconds)
    assert timings["x"].result is None


def test_an_even_number_of_rounds() -> None:
    assert Timing([1.0, 2.0, 3.0, 10.0]).median == 2.5


@pytest.mark.parametrize("rounds", [0, -1])
def test_no_rounds(rounds: int) -> None:
    with pytest.raises(ValueError, match=f"^rounds must be at least 1, not {rounds}$"):
        interleave({"x": lambda: None}, rounds=rounds)


def test_nothing_to_time() -> None:
    assert interleave({}) == {}
    with pytest.raises(statistics.StatisticsError):
        _ = Timing().median


def test_an_error_ends_the_timing() -> None:
    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        interleave({"fine": lambda: None, "bad": fail})
