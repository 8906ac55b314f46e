"""What happens as a worker's memory fills?

What:  reads the thresholds on the workers, tells kinds of memory apart, then crosses
       them on one worker: results go to disk, it pauses, and its nanny ends it.
Why:   a worker that fills up raises no error. It slows down, then it takes no more
       work, and from the client either looks like a program that hangs.
Needs: any cluster; holds a quarter of a worker's memory and, where workers may be
       disturbed, fills one that has a nanny to 98 % of its limit, which ends it.
Run:   make run EXAMPLE=0301_worker_memory
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
from distributed import get_worker, wait

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.lesson import Need, say

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

MIB = 2**20
TILE = 16  # MiB of one result
HELD = 128  # MiB without a key
MOST_CHUNKS = 24  # a quarter of the limit in compose.yml
PATIENCE = 60  # seconds
OLD_AFTER = "distributed.worker.memory.recent-to-old-time"  # the scheduler's setting


def make_tile(number: int) -> np.ndarray:
    """One tile of a made survey, depths in metres, all of them its number."""
    return np.full(TILE * MIB // 8, float(number))


def mean_depth(tile: np.ndarray) -> float:
    """Mean depth of one tile, metres."""
    return float(tile.mean())


def where_am_i() -> str:
    """Address of the worker that runs this task."""
    return get_worker().address


def work_until_paused(_: int) -> str:
    """Keep a thread busy until its worker is no longer running; its status then."""
    worker, deadline = get_worker(), time.monotonic() + PATIENCE
    while worker.status.name == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
    return worker.status.name


def thresholds() -> dict[str, float]:
    """The thresholds as configured where this runs, as fractions of the limit."""
    names = ("target", "spill", "pause", "terminate")
    return {
        name: dask.config.get(f"distributed.worker.memory.{name}") for name in names
    }


def process_memory(dask_worker: "Worker") -> float:
    """MiB of the worker's process (resident set), as its own monitor measures them."""
    return dask_worker.monitor.get_process_memory() / MIB


async def hold(size: float, dask_worker: "Worker") -> None:
    """Hold ``size`` MiB behind Dask's back, as a leak or a library's cache would.

    Taken in a thread: the worker's own goes on to send heartbeats meanwhile.
    """
    memory = await asyncio.to_thread(np.ones, int(size * MIB), np.uint8)
    vars(dask_worker)["held_by_0301"] = memory


def let_go(dask_worker: "Worker") -> None:
    """Free what ``hold`` holds, if anything."""
    vars(dask_worker).pop("held_by_0301", None)


def kept(keys: Collection[str], dask_worker: "Worker") -> tuple[int, int]:
    """How many of these results the worker has in memory, and how many on its disk."""
    there = set(keys) & set(dask_worker.data)
    on_disk = there & set(getattr(dask_worker.data, "disk", ()))
    return len(there - on_disk), len(on_disk)


def states_on_worker(keys: list[str], dask_worker: "Worker") -> list[str]:
    """What the worker calls the state of each task."""
    tasks = dask_worker.state.tasks
    return [tasks[key].state if key in tasks else "unknown" for key in keys]


def states_on_scheduler(keys: list[str], dask_scheduler: "Scheduler") -> list[str]:
    """What the scheduler calls it."""
    return [dask_scheduler.tasks[key].state for key in keys]


def memory_by_kind(dask_scheduler: "Scheduler") -> dict[str, dict[str, float]]:
    """Of each worker, MiB of each kind of memory, as the scheduler last heard."""
    kinds = ("managed", "unmanaged_old", "unmanaged_recent", "process", "spilled")
    return {
        address: {kind: getattr(worker.memory, kind) / MIB for kind in kinds}
        for address, worker in dask_scheduler.workers.items()
    }


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session) as lesson,
        contextlib.ExitStack() as undo,
    ):
        client = session.client
        workers = session.workers()
        one, limit = workers[0].address, workers[0].memory_limit / MIB
        if not limit:
            raise LabError(
                f"worker {one} has no memory limit, so it has no thresholds."
            )
        # A worker is filled where that is allowed, and never this very process.
        fill: Need = "processes" if session.kind == "local" else "disruption"

        def ask(function: Any, *args: Any) -> Any:
            """Run ``function`` in the process of the one worker."""
            return client.run(function, *args, workers=[one])[one]

        def memory() -> dict[str, float]:
            return client.run_on_scheduler(memory_by_kind)[one]

        def managed() -> float:
            """MiB on all workers."""
            kinds = client.run_on_scheduler(memory_by_kind).values()
            return sum(kind["managed"] for kind in kinds)

        lesson.section("Four thresholds")
        everywhere = client.run(thresholds)
        at = everywhere[one]
        what = {
            "target": "managed memory above it: results go to disk",
            "spill": "the process above it: the same",
            "pause": "the process above it: no task is started",
            "terminate": "its nanny, which watches it, kills it",
        }
        lesson.table(
            ["threshold", "of the limit", "GiB", "what it is for"],
            [(n, at[n], round(at[n] * limit / 1024, 2), what[n]) for n in what],
        )
        lesson.check(
            "all workers have the same four, in this order and below their limit",
            list(at.values()) == sorted(at.values())
            and at["terminate"] < 1
            and all(other == at for other in everywhere.values()),
            f"{len(everywhere)} workers, {limit / 1024:.2f} GiB each",
        )
        with dask.config.set({"distributed.worker.memory.pause": 0.5}):
            here, there = thresholds()["pause"], ask(thresholds)["pause"]
        lesson.check(
            "configuration is per process: set in the client, it changes no worker",
            here != there == at["pause"],
            f"pause is {here} in the client and {there} on the worker",
            needs="processes",
        )
        threads = workers[0].threads
        say(
            f"To plan with: {limit / 1024:.2f} GiB for {threads} threads, so at most "
            f"{limit / threads / 1024:.2f} GiB for a task and what the worker keeps."
        )

        lesson.section("What Dask knows of, and what it does not")
        undo.callback(client.run, let_go)
        ask(let_go)  # what a run that lost its scheduler may have left
        moments = {"at rest": memory()}
        ask(hold, HELD)
        lesson.until(lambda: memory()["unmanaged_recent"] > 0.9 * HELD, "heartbeats")
        moments[f"{HELD} MiB held"] = held = memory()
        before = managed()
        n_chunks = min(int(limit / 4 / TILE), MOST_CHUNKS)
        rng = da.random.default_rng(0)
        survey = rng.random((n_chunks, TILE * MIB // 8), chunks=(1, -1)).persist()
        wait(survey)
        size = survey.nbytes / MIB
        lesson.until(lambda: managed() - before == size, "the scheduler to hear of it")
        lesson.until(lambda: memory()["unmanaged_recent"] > 0.9 * HELD, "heartbeats")
        moments["and its part of an array"] = memory()
        there = managed() - before
        lesson.table(
            ["one worker, MiB", "managed", "unmanaged: old", "recent", "process"],
            [
                (when, *[f"~{now[kind]:.0f}" for kind in now if kind != "spilled"])
                for when, now in moments.items()
            ],
        )
        old_after = client.run_on_scheduler(dask.config.get, OLD_AFTER)
        print(
            "Results have keys and are managed. The rest of the process is not: old is"
        )
        print(f"the least of it in the last {old_after}, recent what came on top.")
        lesson.check(
            "what has no key is unmanaged, and recent at first",
            held["unmanaged_recent"] > HELD / 2
            and held["managed"] == moments["at rest"]["managed"],
            f"~{held['unmanaged_recent']:.0f} MiB are recent of which {HELD} are held, "
            f"managed stayed at {held['managed']:.0f} MiB",
        )
        ask(let_go)
        del survey
        lesson.until(lambda: managed() == before, "the release")
        lesson.check(
            "a persisted array is managed to the byte, until it is dropped",
            there == size and managed() == before,
            f"{there:.0f} MiB on {len(workers)} workers for {size:.0f} MiB of array, "
            f"then {managed() - before:.0f}",
        )

        lesson.section("Above target, results go to disk")
        n_tiles = int(at["target"] * limit / TILE) + 8
        in_memory, on_disk, depths = 0, 0, [0.0]
        if lesson.can(fill):
            tiles = client.map(make_tile, range(n_tiles), workers=[one], pure=False)
            wait(tiles)
            keys = [tile.key for tile in tiles]
            in_memory, on_disk = ask(kept, keys)
            # The newest first, which are in memory. The other way round, each that
            # comes back from the disk would push out the next.
            means = client.map(mean_depth, tiles[::-1], workers=[one], pure=False)
            depths = client.gather(means)[::-1]
            del tiles, means
            lesson.until(lambda: ask(kept, keys) == (0, 0), "the release")
        lesson.check(
            f"of {n_tiles} results of {TILE} MiB, what is too much went to disk",
            on_disk >= 7
            and in_memory + on_disk == n_tiles
            and in_memory * TILE <= at["target"] * limit,
            f"~{on_disk} there and ~{in_memory} in memory, ~{in_memory * TILE} MiB; "
            f"target is {at['target'] * limit:.0f} MiB",
            needs=fill,
        )
        lesson.check(
            "every one can still be read, as if nothing had happened",
            depths == list(range(n_tiles)),
            f"{sum(a == b for a, b in enumerate(depths))} of {n_tiles} as made",
            needs=fill,
        )

        lesson.section("Above pause, a worker starts nothing")
        ran = queued = pinned = free = ("", "", "")
        status, on_disk, process, results = "", 0, 0.0, [""] * 4
        if lesson.can(fill):
            tiles = client.map(make_tile, range(2), workers=[one], pure=False)
            wait(tiles)
            keys = [tile.key for tile in tiles]
            busy = client.map(
                work_until_paused, range(threads), workers=[one], pure=False
            )
            tasks = [busy[0], client.submit(where_am_i, workers=[one], pure=False)]
            sent = [task.key for task in (*busy, tasks[1])]
            ready = ["executing"] * threads + ["ready"]
            lesson.until(lambda: ask(states_on_worker, sent) == ready, "full threads")
            brim = (at["pause"] + at["terminate"]) / 2 * limit
            ask(hold, brim - ask(process_memory))
            lesson.until(
                lambda: session.workers()[0].status == "paused", "the pause", 30
            )
            status = session.workers()[0].status
            tasks += [
                client.submit(where_am_i, workers=[one], pure=False),
                client.submit(where_am_i, pure=False),
            ]
            with contextlib.suppress(TimeoutError):
                wait([*busy, tasks[3]], timeout=10 if len(workers) > 1 else 2)
            with contextlib.suppress(TimeoutError):
                wait(tasks[1:3], timeout=1)  # without a deadline, it would be for ever
            lesson.until(lambda: ask(kept, keys) == (0, 2), "the spilling")
            (_, on_disk), process = ask(kept, keys), ask(process_memory)
            sent = [task.key for task in tasks]
            ran, queued, pinned, free = states = [
                (str(status), there, here)
                for status, there, here in zip(
                    [task.status for task in tasks],
                    client.run_on_scheduler(states_on_scheduler, sent),
                    ask(states_on_worker, sent),
                    strict=True,
                )
            ]
            names = ["running by then", "queued by then", "pinned since", "not pinned"]
            lesson.table(
                ["task", "for the client", "on the scheduler", "on the worker"],
                [(name, *state) for name, state in zip(names, states, strict=True)],
            )
            ask(let_go)
            wait(tasks)
            results = client.gather(tasks)
            del tiles, busy, tasks
        lesson.check(
            "the worker paused itself, and the scheduler knows",
            status == "paused" and process > at["pause"] * limit,
            f"it is {status} at ~{process:.0f} MiB; pause is "
            f"{at['pause'] * limit:.0f} MiB",
            needs=fill,
        )
        lesson.check(
            "a task that runs goes on to its end",
            ran[0] == "finished" and results[0] == "paused",
            f"it is {ran[0]}, and found its worker {results[0]}",
            needs=fill,
        )
        lesson.check(
            "others wait and nothing is raised: it looks like a program that hangs",
            (queued, pinned)
            == (
                ("pending", "processing", "ready"),
                ("pending", "no-worker", "unknown"),
            ),
            f"after 1 s, one is {queued[1]} and one {pinned[1]} for the scheduler",
            needs=fill,
        )
        lesson.check(
            "without a pin, a task runs on another worker",
            free[0] == "finished" and results[3] != one,
            f"on {results[3]}",
            needs=fill if len(workers) > 1 else "two workers",
        )
        lesson.check(
            "spilling cannot help: only results have keys, and can go to disk",
            on_disk == 2 and process > at["spill"] * limit,
            f"{on_disk} of 2 results are there, ~{process:.0f} MiB stay",
            needs=fill,
        )
        now = session.workers()[0].status
        lesson.check(
            "when the memory is free again it resumes, and what waited runs there",
            now == "running" and results[1:3] == [one, one],
            f"it is {now}, and {results.count(one)} tasks ran on it",
            needs=fill,
        )

        lesson.section("Above terminate, its nanny ends it")
        ended: dict[str, Any] = {"pid": 0, "rss": 0}
        pid, holders, depth, n_after = -1, [""], 0.0, 0
        if lesson.can(fill):
            tile = client.submit(make_tile, 7, pure=False)
            wait(tile)
            holders = list(client.who_has()[tile.key])
            victim = holders[:1]
            ((_, pid),) = client.run(os.getpid, workers=victim).items()
            ((_, size),) = client.run(process_memory, workers=victim).items()
            began = client.run_on_scheduler(time.time)
            over = (at["terminate"] + 1) / 2 * limit
            with contextlib.suppress(OSError):  # who should answer may be gone by then
                client.run(hold, over - size, workers=victim)
            lesson.until_workers(len(workers), without=victim)
            n_after = len(session.workers())
            for when, event in client.get_events("worker-restart-memory"):
                if when > began and event["worker"] in victim:
                    ended = event
            with contextlib.suppress(TimeoutError):
                depth = mean_depth(tile.result(timeout=PATIENCE))
        lesson.check(
            "its nanny ended the process and started another",
            ended["pid"] == pid
            and ended["rss"] > at["terminate"] * limit * MIB
            and n_after == len(workers),
            f"at ~{ended['rss'] / MIB:.0f} MiB, terminate is "
            f"{at['terminate'] * limit:.0f} MiB; {n_after} workers again",
            needs=fill,
        )
        lesson.check(
            "no error comes home: the result that it alone had is computed again",
            len(holders) == 1 and depth == 7,
            f"{len(holders)} worker had it, which is gone; it reads {depth:g} m",
            needs=fill,
        )


if __name__ == "__main__":
    run(main)
