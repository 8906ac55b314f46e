"""A lesson that is in the middle of something for as long as a test needs.

What:  runs half-second tasks for many minutes.
Why:   a test stops, freezes or interrupts something while it waits.
Needs: any cluster.
Run:   by tests/test_robustness.py
"""

import time

from dask_cluster_lab import Lesson, connect, run


def work(seconds: float) -> float:
    """Sleep; the sleep is the work."""
    time.sleep(seconds)
    return seconds


def main() -> None:
    """Wait."""
    with connect() as session, Lesson(session, seconds=90) as lesson:
        futures = session.client.map(work, [0.5] * 2000, pure=False)
        print("the tasks are under way")
        session.client.gather(futures)
        lesson.check("nothing went wrong", True)


if __name__ == "__main__":
    run(main)
