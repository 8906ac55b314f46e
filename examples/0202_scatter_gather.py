"""Publish once, use many times: what one big argument costs.

What:  one array reaches twelve tasks in four ways while a meter on the wire counts the
       bytes; then the ways in which publishing goes wrong, and when not to publish.
Why:   on a LocalCluster of threads an argument is a pointer; on a real cluster it is a
       message. The most common performance bug of a distributed program is one big
       object passed to every task.
Needs: any cluster; runs short tasks and holds about 15 MB; leaves nothing behind.
Run:   make run EXAMPLE=0202_scatter_gather
"""

import math
import re
import warnings
from collections.abc import Callable

import dask.array as da
import numpy as np

from dask_cluster_lab import Lesson, connect, interleave, run

N_TASKS = 12
SHAPE = (4_000, 160)  # rows x columns of float64: 5.12 MB


def make_survey(shape: tuple[int, int] = SHAPE) -> np.ndarray:
    """Made depths in metres (rows x columns); the same on every machine."""
    return np.random.default_rng(seed=0).random(shape)


def column_mean(survey: np.ndarray, column: int) -> float:
    """Mean depth of one column of ``survey``, metres."""
    return float(survey[:, column].mean())


def column_mean_of_made(column: int) -> float:
    """The same, of an array that is made where the task runs."""
    return column_mean(make_survey(), column)


def main() -> None:
    """Tell the story."""
    with connect(meter_wire=True) as session, Lesson(session) as lesson:
        client, wire = session.client, session.wire
        survey = make_survey()
        columns = range(N_TASKS)

        def as_argument() -> list[float]:
            futures = [
                client.submit(column_mean, survey, column, pure=False)
                for column in columns
            ]
            return client.gather(futures)

        def as_scattered(broadcast: bool = False) -> list[float]:
            remote = client.scatter(survey, hash=False, broadcast=broadcast)
            futures = [
                client.submit(column_mean, remote, column, pure=False)
                for column in columns
            ]
            return client.gather(futures)

        ways: dict[str, Callable[[], list[float]]] = {
            "argument of every task": as_argument,
            "scattered": as_scattered,
            "scattered, broadcast": lambda: as_scattered(broadcast=True),
            "made on the workers": lambda: client.gather(
                client.map(column_mean_of_made, columns, pure=False)
            ),
        }

        lesson.section(f"One array of {survey.nbytes / 1e6:.2f} MB, {N_TASKS} tasks")
        print(
            "Bytes are counted in one run of each way. Times are medians of five runs,"
        )
        print("taken in turns after a warm-up; they differ from machine to machine.")
        sent = {}
        for name, way in ways.items():
            with wire.count() as traffic:
                way()
            sent[name] = traffic.sent
        times = interleave(ways, rounds=5)
        lesson.table(
            ["how the array gets there", "MB sent", "arrays sent", "median time"],
            [
                (
                    name,
                    sent[name] / 1e6,
                    round(sent[name] / survey.nbytes, 1),
                    f"{times[name].median * 1e3:.0f} ms",
                )
                for name in ways
            ],
        )
        argument, scattered, broadcast, made = (sent[n] / survey.nbytes for n in ways)
        lesson.check(
            "as an argument, the array crosses the wire once per task",
            N_TASKS <= argument < N_TASKS + 0.5,
            f"{argument:.1f} arrays for {N_TASKS} tasks",
            needs="wire",
        )
        lesson.check(
            "scattered, it crosses once, however many tasks use it",
            1 <= scattered < 1.1,
            f"{scattered:.2f} arrays",
            needs="wire",
        )
        lesson.check(
            "broadcast, it crosses once as well: the copies are made on the other side",
            1 <= broadcast < 1.1,
            f"{broadcast:.2f} arrays",
            needs="wire",
        )
        lesson.check(
            "made on the workers, it never crosses",
            made < 0.1,
            f"{made:.2f} arrays",
            needs="wire",
        )
        results = [times[name].result for name in ways]
        lesson.check(
            "all four give the same means, to 1e-12",
            all(np.allclose(results[0], r, rtol=0, atol=1e-12) for r in results),
            f"the first is {results[0][0]:.6f} m in each",
        )

        lesson.section("A future is a reference: while you hold it, the data stays")
        remote = client.scatter(survey, hash=False)
        key = remote.key
        held_by = len(client.who_has()[key])  # of all keys that the scheduler knows
        lesson.check(
            "the scattered array is on a worker", held_by == 1, f"held by {held_by}"
        )
        del remote
        lesson.check(
            "dropping the last reference frees it",
            lesson.until(lambda: key not in client.who_has(), "the release"),
            "the scheduler has forgotten the key",
        )

        lesson.section("Publishing inside the loop defeats it")
        with wire.count() as in_loop:
            futures = [
                client.submit(
                    column_mean, client.scatter(survey, hash=False), column, pure=False
                )
                for column in columns
            ]
            client.gather(futures)
        del futures
        lesson.check(
            "a scatter in the loop sends the array once per task again",
            in_loop.sent / survey.nbytes >= N_TASKS,
            f"{in_loop.sent / survey.nbytes:.1f} arrays for {N_TASKS} tasks",
            needs="wire",
        )

        lesson.section("When not to publish")
        small = survey[:8, :N_TASKS].copy()
        with wire.count() as small_argument:
            client.gather(
                client.map(column_mean, [small] * N_TASKS, columns, pure=False)
            )
        with wire.count() as small_scattered:
            shared = client.scatter(small, hash=False)
            client.gather(
                client.map(column_mean, [shared] * N_TASKS, columns, pure=False)
            )
        with wire.count() as once_argument:
            client.submit(column_mean, survey, 0, pure=False).result()
        with wire.count() as once_scattered:
            shared = client.scatter(survey, hash=False)
            client.submit(column_mean, shared, 0, pure=False).result()
        del shared
        lesson.table(
            ["what", "kB, argument", "kB, scattered"],
            [
                (name, kilobytes(argument.sent), kilobytes(published.sent))
                for name, argument, published in [
                    (
                        f"{small.nbytes} bytes, {N_TASKS} tasks in one map",
                        small_argument,
                        small_scattered,
                    ),
                    (
                        f"{survey.nbytes / 1e6:.2f} MB, a single task",
                        once_argument,
                        once_scattered,
                    ),
                ]
            ],
        )
        lesson.check(
            "used once, publishing saves nothing",
            once_scattered.sent > 0.99 * once_argument.sent,
            f"{once_scattered.sent / once_argument.sent:.2f} times the bytes",
            needs="wire",
        )
        lesson.check(
            "small data costs more to publish than to send along in one map",
            small_scattered.sent > small_argument.sent,
            "the table's first row",
            needs="wire",
        )
        print(
            "And data that the workers can read or make for themselves is best left to"
        )
        print("them: the last way of the first table sent nothing at all.")

        lesson.section("Collections hide the same mistake")
        print("from_array puts the client's array into the graph, which is a message.")
        table = make_survey((8_000, 200))
        with warnings.catch_warnings(record=True) as caught, wire.count() as graph:
            warnings.simplefilter("always")
            in_graph = da.from_array(table, chunks=(1_000, 200)).mean().compute()
        with wire.count() as recipe:
            on_workers = (
                da.random.default_rng(0)
                .random(table.shape, chunks=(1_000, 200))
                .mean()
                .compute()
            )
        text = " ".join(str(w.message) for w in caught)
        size = re.search(r"large graph of size ([\d.]+ \w+)", text)
        lesson.check(
            "Dask itself warns of a large graph",
            size is not None,
            f"'{size[0] if size else 'no such warning'}' for an array of "
            f"{table.nbytes / 2**20:.2f} MiB",
        )
        lesson.check(
            "the array was in the graph; a recipe for as large an array is not",
            graph.sent > table.nbytes and recipe.sent < table.nbytes / 100,
            f"{graph.sent / 1e6:.1f} MB sent, against ~{recipe.sent / 1e3:.0f} kB",
            needs="wire",
        )
        lesson.check(
            "the answer was right all the while",
            math.isclose(in_graph, table.mean(), rel_tol=1e-12),
            f"mean {in_graph:.6f}; of the other array {on_workers:.6f}",
        )


def kilobytes(count: float) -> str:
    """A count of bytes for a table; it may vary by a few hundred bytes."""
    return "n/a" if math.isnan(count) else f"~{count / 1e3:,.1f}"


if __name__ == "__main__":
    run(main)
