"""Publish once, use many times: what one big argument costs.

What:  one array reaches twelve tasks in four ways while a meter on the wire counts the
       bytes; then the ways in which publishing goes wrong, and when not to publish.
Why:   on a LocalCluster of threads an argument is a pointer; on a real cluster it is a
       message. The most common performance bug of a distributed program is one big
       object passed to every task.
Needs: any cluster; runs short tasks and holds about 15 MB; leaves nothing behind.
Run:   make run EXAMPLE=0202_scatter_gather
"""

import re
import warnings
from collections.abc import Callable
from typing import Any

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
        client = session.client
        survey = make_survey()
        columns = range(N_TASKS)

        def bytes_sent(action: Callable[[], Any]) -> float:
            with session.wire.count() as traffic:
                action()
            return traffic.sent

        def means_of(array: Any) -> list[float]:
            """One submit for each column; ``array`` is an array or a future of one."""
            futures = [
                client.submit(column_mean, array, i, pure=False) for i in columns
            ]
            return client.gather(futures)

        def publish(broadcast: bool = False) -> Any:
            return client.scatter(survey, hash=False, broadcast=broadcast)

        def copies_of(future: Any) -> int:
            return len(client.who_has()[future.key])

        lesson.section(f"One array of {survey.nbytes / 1e6:.2f} MB, {N_TASKS} tasks")
        print(
            "Bytes are counted in one run of each way. Times are medians of five runs,"
        )
        print("taken in turns after a warm-up; they differ from machine to machine.")
        ways: dict[str, Callable[[], list[float]]] = {
            "argument of every task": lambda: means_of(survey),
            "scattered": lambda: means_of(publish()),
            "scattered, broadcast": lambda: means_of(publish(broadcast=True)),
            "made on the workers": lambda: client.gather(
                client.map(column_mean_of_made, columns, pure=False)
            ),
        }
        arrays = {name: bytes_sent(way) / survey.nbytes for name, way in ways.items()}
        times = interleave(ways, rounds=5)
        lesson.table(
            ["how the array gets there", "MB sent", "arrays sent", "median time"],
            [
                (
                    name,
                    round(arrays[name] * survey.nbytes / 1e6, 1),
                    round(arrays[name], 1),
                    f"{times[name].median * 1e3:.0f} ms",
                )
                for name in ways
            ],
        )
        argument, scattered, broadcast, made = arrays.values()
        lesson.check(
            "as an argument, the array crosses the wire once per task",
            N_TASKS <= argument < N_TASKS + 0.5,
            f"{argument:.1f} arrays for {N_TASKS} tasks",
            needs="wire",
        )
        lesson.check(
            "scattered, it crosses once, however many tasks use it",
            1 <= scattered < 1.1,
            f"{scattered:.1f} arrays",
            needs="wire",
        )
        lesson.check(
            "broadcast, it crosses once as well",
            1 <= broadcast < 1.1,
            f"{broadcast:.1f} arrays",
            needs="wire",
        )
        # The Active Memory Manager can trim the copies at any moment, so three tries.
        copies = max(copies_of(publish(broadcast=True)) for _ in range(3))
        lesson.check(
            "the copies are made on the other side: every worker has one",
            copies == len(session.workers()),
            f"{copies} copies on {len(session.workers())} workers",
            needs="two workers",
        )
        lesson.check(
            "made on the workers, it never crosses",
            made < 0.1,
            f"{made:.1f} arrays",
            needs="wire",
        )
        results = [times[name].result for name in ways]
        lesson.check(
            "all four give the same means, to 1e-12",
            all(np.allclose(results[0], r, rtol=0, atol=1e-12) for r in results),
            f"the first are {', '.join(f'{r[0]:.6f}' for r in results)}",
        )

        lesson.section("A future is a reference: while you hold it, the data stays")
        remote = publish()
        key = remote.key
        holders = client.who_has()[key]  # of all keys that the scheduler knows
        lesson.check(
            "the scattered array is on one worker",
            len(holders) == 1,
            f"held by {len(holders)}",
        )
        del remote
        forgotten = lesson.until(lambda: key not in client.who_has(), "its release")
        lesson.check(
            "dropping the last reference frees it",
            forgotten,
            "forgotten by the scheduler" if forgotten else f"{key} is still there",
        )

        lesson.section("How publishing goes wrong, and when not to publish")
        small = survey[:8, :N_TASKS].copy()
        in_loop = bytes_sent(
            lambda: client.gather(
                [client.submit(column_mean, publish(), i, pure=False) for i in columns]
            )
        )
        lesson.check(
            "a scatter inside the loop sends the array once per task again",
            in_loop / survey.nbytes >= N_TASKS,
            f"{in_loop / survey.nbytes:.1f} arrays for {N_TASKS} tasks",
            needs="wire",
        )
        once = bytes_sent(lambda: client.submit(column_mean, survey, 0).result())
        once_published = bytes_sent(
            lambda: client.submit(column_mean, publish(), 0).result()
        )
        lesson.check(
            "for a single use, publishing saves nothing",
            once_published > 0.99 * once,
            f"{once / 1e6:.1f} MB as an argument, {once_published / 1e6:.1f} published",
            needs="wire",
        )
        sent = bytes_sent(
            lambda: client.gather(client.map(column_mean, [small] * N_TASKS, columns))
        )
        sent_published = bytes_sent(
            lambda: client.gather(
                client.map(column_mean, [client.scatter(small)] * N_TASKS, columns)
            )
        )
        lesson.check(
            f"{small.nbytes} bytes in one map cost less than publishing them first",
            sent < sent_published,
            f"~{sent / 1e3:.1f} kB, against ~{sent_published / 1e3:.1f} kB",
            needs="wire",
        )
        print("And what the workers can read or make for themselves need not be sent:")
        print("see the last row of the table.")

        lesson.section("Collections hide the same mistake")
        print("from_array puts the client's array into the graph, which is a message.")
        table = make_survey((8_000, 200))
        with (
            warnings.catch_warnings(record=True) as caught,
            session.wire.count() as graph,
        ):
            warnings.simplefilter("always")
            answer = da.from_array(table, chunks=1_000).mean().compute()
        rng = da.random.default_rng(seed=0)
        recipe = bytes_sent(rng.random(table.shape, chunks=1_000).mean().compute)
        warned = re.search(
            r"large graph of size [\d.]+ \w+", " ".join(str(w.message) for w in caught)
        )
        lesson.check(
            "Dask itself warns of a large graph",
            warned is not None,
            f"'{warned[0] if warned else 'nothing of the kind'}' for an array of "
            f"{table.nbytes / 2**20:.2f} MiB",
        )
        lesson.check(
            "the array was in the graph; a recipe for as large an array is small",
            graph.sent > table.nbytes > 100 * recipe,
            f"{graph.sent / 1e6:.1f} MB sent, against ~{recipe / 1e3:.0f} kB",
            needs="wire",
        )
        lesson.check(
            "the answer was right all the while, to 1e-12",
            np.isclose(answer, table.mean(), rtol=0, atol=1e-12),
            f"{answer:.6f} from the cluster, {table.mean():.6f} here",
        )


if __name__ == "__main__":
    run(main)
