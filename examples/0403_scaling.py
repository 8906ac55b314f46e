"""What does capacity buy, and how does it leave and come back?

What:  runs a batch on all, two thirds and one third of the workers; retires a worker
       and brings it back into a running batch; kills one; lets a small cluster adapt.
Why:   slots shorten a batch and nothing else. A worker that is told to leave hands
       over its data and stays away; one that is killed loses it and comes back.
Needs: any cluster; on the Compose cluster, with Docker at hand, it stops and starts
       one worker's container and kills a worker; 20 seconds; leaves nothing behind.
Run:   make run EXAMPLE=0403_scaling
"""

import contextlib
import logging
import math
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from distributed import (
    Client,
    Future,
    LocalCluster,
    as_completed,
    get_task_stream,
    get_worker,
    wait,
)

from dask_cluster_lab import Lesson, connect, interleave, run
from dask_cluster_lab.containers import Container, restart, start, worker_containers
from dask_cluster_lab.lesson import Need
from dask_cluster_lab.task_stream import computes, records_of

if TYPE_CHECKING:
    from distributed import Scheduler

TASKS_PER_SLOT = 2
SECONDS, LONGEST = 0.1, 0.5
N_TILES = 4
SHAPE = (500, 500)  # rows x columns of float64
MOST = 3  # workers of the small cluster


def nap(_: object, seconds: float = SECONDS) -> str:
    """Sleep, as work that needs no core; address of the worker that did it."""
    time.sleep(seconds)
    return get_worker().address


def make_tile(number: int) -> np.ndarray:
    """One tile of a made survey, depths in metres (rows x columns)."""
    return np.random.default_rng(number).random(SHAPE)


def times_run(key: str, dask_scheduler: "Scheduler") -> int:
    """How often the scheduler has sent a task to a worker, from its transition log."""
    return sum(step[2] == "processing" for step in dask_scheduler.story(key))


def joined_after(since: float, dask_scheduler: "Scheduler") -> float:
    """Seconds from ``since`` to the next registration of a worker, by the event log."""
    log = dask_scheduler.get_events("all")
    joined = (when for when, e in log if when > since and e["action"] == "add-worker")
    return min(joined, default=math.nan) - since


def long_enough(overhead: float) -> float:
    """Seconds of a task that let ``overhead`` seconds a batch decide nothing.

    A busy machine gets longer tasks: there it takes long to send them.
    """
    return min(max(SECONDS, overhead), LONGEST)


def rungs(n_workers: int) -> list[int]:
    """All, two thirds and one third of the workers; no number twice, none below 1."""
    thirds = {max(1, round(n_workers * part / 3)) for part in (1, 2, 3)}
    return sorted(thirds, reverse=True)


@dataclass
class Departure:
    """What became of N_TILES results and a scattered tile when their worker left."""

    held: int = 0
    """How many of these it held, as the only one."""
    kept: int = 0
    """Results that were never computed again."""
    again: int = 0
    """Runs of tasks that made up for lost results."""
    right: bool = False
    """Whether every result is the right one in the end."""
    scattered: str = "not asked"
    """What became of the scattered tile."""
    since: float = field(default=math.nan, compare=False)
    """The scheduler's time, from which ``back_after`` counts."""
    back_after: float = field(default=math.nan, compare=False)
    """Seconds until a worker was registered in its place."""

    def __str__(self) -> str:
        return (
            f"{self.kept} of {N_TILES} results kept, {self.again} computed again, "
            f"the scattered tile: {self.scattered}"
        )


def depart(lesson: Lesson, worker: str, leave: Callable[[], object]) -> Departure:
    """Put data on ``worker``, let it ``leave``, and look for the data."""
    session, client = lesson.session, lesson.session.client
    tiles: list[Future[np.ndarray]] = []
    for number in range(N_TILES):  # one by one, so that no idle worker steals any
        # A preference, not a pin: what is lost may be computed elsewhere.
        tiles += client.map(
            make_tile,
            [number],
            workers=[worker],
            allow_other_workers=True,
            pure=False,
        )
        wait(tiles, timeout=30)
    extra = client.scatter(make_tile(N_TILES), workers=[worker], hash=False)
    keys = {tile.key for tile in tiles}

    def holders() -> dict[Any, list[str]]:
        found = {key: list(who) for key, who in client.who_has().items()}
        return {key: found.get(key, []) for key in (*keys, extra.key)}

    lesson.until(lambda: all(holders().values()), "the data to be there")
    held = sum(who == [worker] for who in holders().values())
    since = client.run_on_scheduler(time.time)
    with contextlib.suppress(OSError):  # the connection may end with the worker
        leave()

    def over() -> bool:
        gone = worker not in {w.address for w in session.workers()}
        found = holders()
        return gone and all(found[key] for key in keys)

    lesson.until(over, "the worker to leave, and the results", seconds=30)
    values = client.gather(tiles)
    runs = [client.run_on_scheduler(times_run, tile.key) for tile in tiles]
    try:
        same = np.array_equal(extra.result(timeout=30), make_tile(N_TILES))
        scattered = "kept" if same else "changed"
    except Exception as error:  # which one is what we want to know
        scattered = type(error).__name__
    return Departure(
        held=held,
        kept=runs.count(1),
        again=sum(runs) - N_TILES,
        right=np.array_equal(values, [make_tile(n) for n in range(N_TILES)]),
        scattered=scattered,
        since=since,
    )


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        contextlib.ExitStack() as undo,  # after the lesson, however it ends
        Lesson(session) as lesson,
    ):
        client = session.client
        workers = session.workers()
        addresses = [worker.address for worker in workers]
        n_tasks = TASKS_PER_SLOT * sum(worker.threads for worker in workers)

        def whole() -> bool:
            return len(session.workers()) == len(workers)

        def container(host: str) -> Container:
            return worker_containers(session)[host]

        def ended(host: str) -> bool:
            return lesson.until(lambda: not container(host).running, "its end", 45)

        steps = rungs(len(workers))
        used: dict[int, set[str]] = {rung: set() for rung in steps}
        seconds = SECONDS

        def batch(rung: int) -> None:
            some = addresses[:rung]
            naps = [seconds] * n_tasks
            futures = client.map(nap, range(n_tasks), naps, workers=some, pure=False)
            used[rung].update(client.gather(futures))

        trial = interleave({"all": partial(batch, len(workers))}, rounds=2)["all"]
        seconds = long_enough(min(trial.seconds) - TASKS_PER_SLOT * SECONDS)

        lesson.section(f"The ladder: {n_tasks} tasks")
        print(f"Each sleeps {seconds:.1f} s: this is about slots, and this machine may")
        print(
            "have fewer cores than the cluster has slots. The floor is the time if no"
        )
        print("slot ever stood still. Medians of five, taken in turns after a warm-up.")

        def long_task(rung: int) -> None:
            some, long = addresses[:rung], TASKS_PER_SLOT * seconds
            client.submit(nap, 0, long, workers=some, pure=False).result()

        most, least = steps[0], steps[-1]
        ways: dict[str, Callable[[], Any]] = {
            **{f"{rung}": partial(batch, rung) for rung in steps},
            "long, most": partial(long_task, most),
            "long, least": partial(long_task, least),
        }
        times = interleave(ways, rounds=5)
        median = {name: timing.median for name, timing in times.items()}
        slots = {rung: sum(w.threads for w in workers[:rung]) for rung in steps}
        floor = {rung: n_tasks * seconds / slots[rung] for rung in steps}
        efficiency = {rung: floor[rung] / median[f"{rung}"] for rung in steps}
        lesson.table(
            ["workers", "slots", "floor", "median", "efficiency"],
            [
                (
                    rung,
                    slots[rung],
                    f"{floor[rung]:.2f} s",
                    f"{median[f'{rung}']:.2f} s",
                    f"{efficiency[rung]:.2f}x",
                )
                for rung in steps
            ],
        )
        lesson.check(
            "workers= keeps a batch on the workers that it names, and uses all of them",
            all(used[rung] == set(addresses[:rung]) for rung in steps),
            f"ran on {', '.join(str(len(names)) for names in used.values())}",
        )
        slower = median[f"{least}"] / median[f"{most}"]
        lesson.check(
            "a batch takes longer on fewer slots, and never less than its floor",
            slower > 1.2 and max(efficiency.values()) <= 1,
            f"{slower:.1f}x as long on {slots[least]} slots as on {slots[most]}",
            needs="two workers",
        )
        # The quickest of five: what the machine does beside it only adds.
        at_most, at_least = (
            min(times[f"long, {n}"].seconds) for n in ("most", "least")
        )
        same = at_least / at_most
        lesson.check(
            "one long task does not care how many there are",
            1 / 1.5 < same < 1.5,
            f"{at_most:.2f} s on {slots[most]} slots, "
            f"{at_least:.2f} s on {slots[least]}; the quickest of five",
            needs="two workers",
        )

        need: Need = "docker" if len(workers) > 1 else "two workers"
        lesson.section("A worker retires")
        leaver, retired, end, left = addresses[-1], Departure(), "runs", len(workers)
        if lesson.can(need):
            print(f"{leaver} holds {N_TILES} results and a scattered tile, only there,")
            print("and is told to leave. So is its nanny, which restarts dead workers.")
            host = client.run(socket.gethostname, workers=[leaver])[leaver]
            restarts = container(host).restarts
            undo.callback(restart, container(host))  # in case that we do not get there
            retired = depart(lesson, leaver, lambda: client.retire_workers([leaver]))
            if ended(host):
                restarts = container(host).restarts - restarts
                end = f"ended with {container(host).exit_status}, {restarts} restarts"
            left = len(session.workers())
        lesson.check(
            "every key moved: nothing is lost, nothing computed again",
            retired == Departure(N_TILES + 1, N_TILES, 0, True, "kept"),
            str(retired),
            needs=need,
        )
        lesson.check(
            "its container stays down: capacity that retires does not come back",
            end == "ended with 0, 0 restarts" and left == len(workers) - 1,
            f"{end}; {left} of {len(workers)} workers left",
            needs=need,
        )

        lesson.section("It comes back, into a batch that is running")
        n_ran = n_new = 0
        if lesson.can(need):
            print("Each task that ends is followed by another, and meanwhile:")
            print(f"$ docker start {container(host).name}")
            known, keys, began = set(addresses) - {leaver}, [], time.monotonic()
            retired.since = client.run_on_scheduler(time.time)
            with get_task_stream(client) as stream:
                tasks = client.map(nap, range(n_tasks), pure=False)
                start(container(host))
                running = as_completed(tasks, with_results=True)
                for future, place in running:
                    keys.append(future.key)
                    if place not in known or time.monotonic() - began > 60:
                        break
                    running.add(client.submit(nap, 0, pure=False))
            undo.pop_all()  # it is back
            retired.back_after = client.run_on_scheduler(joined_after, retired.since)
            ran = [span.worker for span in computes(records_of(stream.data, keys))]
            n_ran, n_new = len(ran), len([place for place in ran if place not in known])
        lesson.check(
            "the newcomer takes work from the batch, by the task stream",
            n_new > 0 and whole(),
            f"~{n_new} of ~{n_ran} tasks; registered {retired.back_after:.1f} s after "
            "its start",
            needs=need,
        )

        lesson.section("A worker is killed, and the two compared")
        killed, untouched = Departure(), False
        if lesson.can(need):
            before = worker_containers(session)
            victim = session.workers()[0].address
            killed = depart(
                lesson, victim, lambda: client.run(os._exit, 1, workers=[victim])
            )
            lesson.until(whole, "a new worker", 60)
            killed.back_after = client.run_on_scheduler(joined_after, killed.since)
            untouched = worker_containers(session) == before
            both = (retired, killed)
            lesson.table(
                ["", "retired", "killed"],
                [
                    ("results kept", *(f"{d.kept} of {N_TILES}" for d in both)),
                    ("computed again", *(d.again for d in both)),
                    ("the scattered tile", *(d.scattered for d in both)),
                    ("comes back by itself", left == len(workers), untouched),
                    (
                        "registered again",
                        f"{retired.back_after:.1f} s after docker start",
                        f"{killed.back_after:.1f} s after the kill",
                    ),
                ],
            )
        lesson.check(
            "what it held is lost: results are computed again, scattered data is gone",
            killed == Departure(N_TILES + 1, 0, N_TILES, True, "FutureCancelledError"),
            str(killed),
            needs=need,
        )
        lesson.check(
            "its nanny starts another; no container stopped or started",
            untouched and whole(),
            f"{len(session.workers())} workers, containers "
            + ("as before" if untouched else "not as before"),
            needs=need,
        )

        lesson.section("Who asks for capacity? adapt(), on a small cluster in here")
        with (
            tempfile.TemporaryDirectory() as scratch,
            dask.config.set({"temporary-directory": scratch}),
            LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                processes=False,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            ) as small,
            Client(small, set_as_default=False) as its,
        ):
            only = list(its.nthreads())
            number = its.scatter(7, hash=False)
            refused = its.retire_workers(only)
            lesson.check(
                "the last worker that holds data refuses to retire",
                not refused and list(its.nthreads()) == only and number.result() == 7,
                f"{len(refused)} retired, {number.result()} can still be read",
            )
            small.adapt(maximum=MOST, interval="50ms", target_duration="100ms")
            waiting = its.map(nap, range(1_000), pure=False)
            grown = lesson.until(lambda: len(its.nthreads()) == MOST, "all workers")
            most_workers = len(its.nthreads())
            its.cancel([number, *waiting])
            shrunk = lesson.until(lambda: not its.nthreads(), "them to leave")
            lesson.check(
                f"with work to do it grows to its maximum, {MOST}; without, to none",
                grown and shrunk,
                f"{most_workers} workers with work, {len(its.nthreads())} in the end",
            )
        print(
            "adapt() asks its cluster object, as those for Kubernetes or Slurm. A fixed"
        )
        print(
            "list of hosts cannot grow. Compose has no such object: 'make scale N=5'."
        )


if __name__ == "__main__":
    run(main)
