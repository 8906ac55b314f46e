"""Does compute go to the data?

What:  puts tiles of a survey on the workers, runs a task on each tile and reads from
       the task stream where it ran and what had to move; then runs the same tasks on
       one chosen worker; then finds out which ways of choosing a worker last.
Why:   moving a task costs a kilobyte, moving its data costs the data. Left alone, the
       scheduler sends tasks to data. A pin overrules it, and can wait for ever.
Needs: any cluster; holds 4 MB for each thread; holds back the scheduler's trimming of
       copies for a moment and restarts one worker, twice; leaves nothing behind.
Run:   make run EXAMPLE=0203_locality
"""

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from distributed import get_task_stream, get_worker, wait

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.lesson import Need
from dask_cluster_lab.task_stream import computes, records_of, transfers

if TYPE_CHECKING:
    from distributed import Nanny, Scheduler, Worker

SHAPE = (1_000, 500)  # rows x columns of float64
TILE_MB = 4.0
NOBODY = "tcp://203.0.113.1:40000"  # of a network that is reserved for documentation
LICENCE = {"LICENCE": 1.0}


def make_tile(number: int) -> np.ndarray:
    """One tile of a made survey, depths in metres (rows x columns)."""
    return np.random.default_rng(number).random(SHAPE)


def mean_depth(tile: np.ndarray) -> float:
    """Mean depth of one tile, metres."""
    return float(tile.mean())


def where_am_i(_: object = None) -> str:
    """Address of the worker that runs this task; the argument is only carried along."""
    return get_worker().address


def keys_held(dask_worker: "Worker") -> set[Any]:
    """The keys of all values that this worker holds, asked of the worker itself."""
    return set(dask_worker.data)


def arrivals(dask_worker: "Worker") -> dict[Any, int]:
    """Bytes of each value that this worker fetched from another, from its own log."""
    log = dask_worker.transfer_incoming_log
    return {key: size for message in log for key, size in message["keys"].items()}


def state_of(key: str, dask_scheduler: "Scheduler") -> str:
    """What the scheduler calls the state of a task."""
    task = dask_scheduler.tasks.get(key)
    return task.state if task else "forgotten"


def start_with(
    resources: Mapping[str, float] | None, dask_worker: "Nanny"
) -> Mapping[str, float] | None:
    """Set what a nanny declares when it starts its worker; what it was before.

    This is where ``dask worker --resources LICENCE=1`` puts it. Dask hands the nanny
    over under the name ``dask_worker``.
    """
    assert dask_worker.process is not None
    arguments = dask_worker.process.worker_kwargs
    before, arguments["resources"] = arguments["resources"], resources
    return before


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session) as lesson,
        contextlib.ExitStack() as undo,
    ):
        client = session.client
        workers = session.workers()
        slots = sum(worker.threads for worker in workers)
        # What some checks need: a worker to move data from, and leave to disturb it.
        disturb: Need = "processes" if session.kind == "local" else "disruption"
        move: Need = "processes" if len(workers) > 1 else "two workers"
        copy: Need = disturb if len(workers) > 1 else "two workers"

        lesson.section("A tile for every slot")
        tiles = client.map(make_tile, range(slots), pure=False)
        wait(tiles)  # map() returned at once; now they are really there
        ours = {tile.key for tile in tiles}
        home = {key: holders[0] for key, holders in client.who_has(tiles).items()}
        held = {
            address: ours & set(keys) for address, keys in client.has_what().items()
        }
        lesson.table(
            ["worker", "tiles", "MB"],
            [(a, len(keys), TILE_MB * len(keys)) for a, keys in sorted(held.items())],
        )
        in_memory = client.run(keys_held)
        lesson.check(
            "every tile is there: the scheduler lists what the workers really hold",
            sum(len(keys) for keys in held.values()) == len(home) == slots
            and all(in_memory[address] & ours == held[address] for address in held),
            f"{len(home)} tiles, {sum(len(ours & k) for k in in_memory.values())} in "
            "the workers' memory",
        )

        def moved() -> dict[str, int]:
            """Bytes of each tile that any worker has fetched from another so far."""
            logs = client.run(arrivals).values()
            return {
                key: size for log in logs for key, size in log.items() if key in ours
            }

        lesson.section("Left alone, each task runs where its tile is")
        # As many tasks as slots: none has to wait. Of a queue, an idle worker may steal
        # a task, and then its tile would move after all.
        with get_task_stream(client) as stream:
            alone = client.map(mean_depth, tiles, pure=False)
            wait(alone)
        tile_of = {task.key: tile.key for task, tile in zip(alone, tiles, strict=True)}
        records = records_of(stream.data, tile_of)
        ran_on = {span.key: span.worker for span in computes(records)}
        moved_alone = moved()
        lesson.table(
            ["tile", "who_has", "its task ran on"],
            [
                (number, home[tile_of[task.key]], ran_on.get(task.key, "nowhere"))
                for number, task in enumerate(alone)
            ],
        )
        at_home = sum(home[tile_of[key]] == worker for key, worker in ran_on.items())
        lesson.check(
            "each task ran on the worker that held its tile",
            at_home == slots,
            f"{at_home} of {slots}, from the task stream",
            needs="two workers",
        )
        lesson.check(
            "no tile was transferred",
            not transfers(records) and not moved_alone,
            f"{len(transfers(records))} transfers in {len(records)} records, "
            f"{len(moved_alone)} tiles in the workers' own logs",
            needs="two workers",
        )

        lesson.section("Pinned to one worker, the data has to come")
        target = workers[0].address
        away = {key for key in ours if home[key] != target}
        trimming = client.amm.running()
        hold = trimming and lesson.can("disruption")
        if hold:  # or the copies might be gone before we look
            client.amm.stop()
            undo.callback(client.amm.start)
        with get_task_stream(client) as stream:
            pinned = client.map(mean_depth, tiles, workers=[target], pure=False)
            wait(pinned)
        copies = sum(len(holders) for holders in client.who_has(tiles).values())
        undo.close()
        records = records_of(stream.data, {task.key for task in pinned})
        places = {span.worker for span in computes(records)}
        moved_pinned = moved()
        megabytes = sum(moved_pinned.values()) / 1e6
        lesson.table(
            ["tasks", "how many", "workers", "tiles moved", "MB moved"],
            [
                (
                    "left alone",
                    len(ran_on),
                    len(set(ran_on.values())),
                    len(moved_alone),
                    sum(moved_alone.values()) / 1e6,
                ),
                ("pinned", len(records), len(places), len(moved_pinned), megabytes),
            ],
        )
        lesson.check(
            "all of the same tasks ran on the one worker",
            places == {target} and len(records) == len(ran_on) == slots,
            f"{len(records)} tasks, {len(places)} worker",
            needs="two workers",
        )
        lesson.check(
            "every tile that was elsewhere had to move, and no other",
            set(moved_pinned) == away and megabytes == TILE_MB * len(away),
            f"{len(moved_pinned)} of {slots} tiles, {megabytes:.1f} MB; "
            f"{len(away)} were elsewhere",
            needs=move,
        )
        sources = {span.source for span in transfers(records)}
        lesson.check(
            "the task stream shows transfers from each worker that held one",
            sources == {home[key] for key in away},
            f"from {len(sources)} workers",
            needs="two workers",
        )
        lesson.check(
            "a tile that moved is copied: it is now in two places",
            copies == slots + len(away) > slots,
            f"{copies} copies of {slots} tiles",
            needs=copy,
        )

        def one_copy_each() -> bool:
            return all(len(holders) == 1 for holders in client.who_has(tiles).values())

        lesson.check(
            "copies do not last: the scheduler's memory manager trims them",
            lesson.until(one_copy_each, "the trimming") if trimming else False,
            f"{copies} copies became {sum(map(len, client.who_has(tiles).values()))}",
            needs=copy,
        )
        del alone, pinned
        tiles.clear()

        lesson.section("A preference: allow_other_workers=True")
        here, there = workers[0].address, workers[-1].address
        tile = client.submit(make_tile, 0, workers=[here], pure=False)
        wait(tile)
        preferred = client.submit(
            where_am_i, tile, workers=[there], allow_other_workers=True, pure=False
        ).result()
        lesson.check(
            "while its worker is there, a preference works like a pin",
            preferred == there != here,
            f"the tile was on {here}, the task ran on {preferred}, as preferred",
            needs="two workers",
        )
        del tile

        lesson.section("An address does not outlive its worker")
        gone = NOBODY
        if lesson.can("disruption"):
            print("One worker is restarted and told to declare a resource, LICENCE, as")
            print("`dask worker --resources LICENCE=1` would.")
            gone = here
            told = client.run(start_with, LICENCE, workers=[gone], nanny=True)
            client.restart_workers([gone], timeout=60)
        before = {worker.address for worker in workers}
        now = {worker.address for worker in session.workers()}
        heir = min(now - before, default="")
        if heir:
            client.run(start_with, told[gone], workers=[heir], nanny=True)
            undo.callback(client.restart_workers, [heir], timeout=60)
        lesson.check(
            "a restarted worker has a new address",
            gone not in now and len(now - before) == 1 and len(now) == len(before),
            f"{gone} became {heir}",
            needs=disturb,
        )
        by_address = client.submit(where_am_i, workers=[gone], pure=False)
        by_preference = client.submit(
            where_am_i, workers=[gone], allow_other_workers=True, pure=False
        )
        by_resource = client.submit(where_am_i, resources=LICENCE, pure=False)
        with contextlib.suppress(TimeoutError):
            wait([by_preference, by_resource] if heir else by_preference, timeout=30)
        with contextlib.suppress(TimeoutError):
            wait(by_address, timeout=2)  # without a deadline, this would be the end
        ways = {
            "its address": by_address,
            "its address, as a preference": by_preference,
            "a resource": by_resource,
        }
        states = {
            way: client.run_on_scheduler(state_of, future.key)
            for way, future in ways.items()
        }
        ran = {
            way: future.result() if future.status == "finished" else "nowhere"
            for way, future in ways.items()
        }
        lesson.table(
            ["chosen by", "state", "ran on"],
            [(way, states[way], ran[way]) for way in ways],
        )
        lesson.check(
            "a pin to an address that no worker has waits, and raises nothing",
            (by_address.status, states["its address"]) == ("pending", "no-worker"),
            f"after 2 s it is {by_address.status} here, {states['its address']} there",
        )
        setting = "distributed.scheduler.no-workers-timeout"
        limit = client.run_on_scheduler(dask.config.get, setting)
        print(f"Dask's own limit, {setting}, is {limit}.")
        by_address.cancel()

        def cancelled() -> bool:
            states["its address"] = client.run_on_scheduler(state_of, by_address.key)
            return states["its address"] == "forgotten"

        lesson.check(
            "it can be cancelled",
            lesson.until(cancelled, "the scheduler to forget it"),
            f"the future is {by_address.status}, the task {states['its address']}",
        )
        lesson.check(
            "a preference for that address runs elsewhere",
            ran["its address, as a preference"] in now,
            f"on {ran['its address, as a preference']}",
        )
        lesson.check(
            "a resource is declared again by the worker that was restarted",
            ran["a resource"] == heir != "",
            f"the task ran on {ran['a resource']}",
            needs=disturb,
        )
        by_resource.cancel()
        if heir:
            print("Restarted once more, without the resource:")
        undo.close()
        left = session.workers()
        declare = sum("LICENCE" in worker.resources for worker in left)
        lesson.check(
            "as many workers as before, and the resource is gone",
            len(left) == len(workers) and declare == 0,
            f"{len(left)} workers, {declare} of them declare it",
            needs=disturb,
        )


if __name__ == "__main__":
    run(main)
