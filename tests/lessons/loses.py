"""A lesson whose data dies with the worker that held it.

What:  scatters a number to one worker, ends that worker's process, asks for the number.
Why:   scattered data has no recipe; what the user then reads is tested.
Needs: a cluster that may be disturbed.
Run:   by tests/test_robustness.py
"""

import contextlib
import os

from dask_cluster_lab import Lesson, connect, run


def main() -> None:
    """Lose it."""
    with connect() as session, Lesson(session, seconds=90):
        client, holder = session.client, session.workers()[0].address
        number = client.scatter(7, workers=[holder], hash=False)
        with contextlib.suppress(OSError):
            client.run(os._exit, 1, workers=[holder])
        print(client.submit(abs, number, pure=False).result(timeout=60))


if __name__ == "__main__":
    run(main)
