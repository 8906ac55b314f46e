"""Fair timing on a noisy machine: variants take turns, and medians are compared."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Timing:
    """The times of one variant, in seconds, in the order in which they were taken."""

    seconds: list[float] = field(default_factory=list)
    result: Any = None
    """What the last call returned."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def interleave(
    variants: Mapping[str, Callable[[], Any]], *, rounds: int = 5, warm_up: int = 1
) -> dict[str, Timing]:
    """Time ``variants`` in turns (A B C, A B C, ...), ``rounds`` times each.

    Taking turns spreads whatever else the machine does over all variants alike. The
    first ``warm_up`` rounds (imports, caches) are thrown away.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    timings = {name: Timing() for name in variants}
    for turn in range(warm_up + rounds):
        for name, variant in variants.items():
            start = time.perf_counter()
            result = variant()
            elapsed = time.perf_counter() - start
            timings[name].result = result
            if turn >= warm_up:
                timings[name].seconds.append(elapsed)
    return timings
