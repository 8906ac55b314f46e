"""The short code of pitfalls.md."""

import ctypes
import sys
import time
from collections import Counter
from typing import Any

from distributed import Client, Scheduler


# [states]
def states(dask_scheduler: Scheduler) -> dict[str, int]:
    """How many tasks are in which state."""
    return dict(Counter(task.state for task in dask_scheduler.tasks.values()))


# [end]


# [demands]
def demands(key: str, dask_scheduler: Scheduler) -> tuple[Any, ...]:
    """State of a task, and what restricts it."""
    task = dask_scheduler.tasks[key]
    return task.state, task.worker_restrictions, task.resource_restrictions


# [end]


# [trim]
def trim_memory() -> int:
    """Ask the allocator for its free memory; 1 if it gave some back (Linux)."""
    return ctypes.CDLL("libc.so.6").malloc_trim(0)


# [end]


def main(client: Client) -> None:
    """Run it all."""
    running = client.submit(time.sleep, 1, pure=False)
    stuck = client.submit(sum, [1], workers=["tcp://127.0.0.1:1"], pure=False)
    deadline = time.monotonic() + 30
    while client.run_on_scheduler(states) != {"processing": 1, "no-worker": 1}:
        assert time.monotonic() < deadline
    # [ask]
    print(client.run_on_scheduler(states))
    print(client.processing())
    print(client.call_stack())
    # [end]
    state, workers, resources = client.run_on_scheduler(demands, stuck.key)
    assert (state, set(workers), resources) == (
        "no-worker",
        {"tcp://127.0.0.1:1"},
        None,
    )
    stuck.cancel()
    running.result(timeout=30)
    if sys.platform == "linux":
        # [run]
        print(client.run(trim_memory))
        # [end]
