"""Which number is behind each panel of the dashboard?

What:  runs a job that moves data, opens the dashboard's pages over HTTP and asks the
       scheduler for the number behind each; then says where the job's time went, and
       why a short job says nothing.
Why:   a panel shows what the scheduler knows. A program can ask for the same, and
       write it down, compare it, or raise an alarm.
Needs: any cluster; its slots for about two seconds; holds 4 MB for each thread; leaves
       nothing behind.
Run:   make run EXAMPLE=0501_dashboard_tour
"""

import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import numpy as np
from distributed import Future, get_task_stream, wait

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.diagnosis import Diagnosis, diagnose
from dask_cluster_lab.task_stream import Record, records_of, transfers

if TYPE_CHECKING:
    from distributed import Scheduler

TASKS_PER_THREAD = 2
SECONDS = 0.6  # of each task, so that the job takes over a second on any cluster
TILE = 250_000  # float64: 2 MB, since transfers below 1 MB give no bandwidth
PAGES = {  # and the method of Client, or the attribute of Scheduler, that knows
    "individual-workers": "Scheduler.identity",
    "individual-nprocessing": "processing",
    "individual-task-stream": "get_task_stream",
    "individual-progress": "task_prefixes",
    "individual-cluster-memory": "memory",
    "individual-bandwidth-workers": "bandwidth_workers",
    "events": "get_events",
}
ACTIONS = ("compute", "transfer", "deserialize", "disk-read", "disk-write")


def survey_tile(number: int) -> np.ndarray:
    """A made tile; the sleep is the work."""
    time.sleep(SECONDS)
    return np.full(TILE, float(number))


def step_between(tile: np.ndarray, neighbour: np.ndarray) -> float:
    """Difference of two tiles' mean depths; its worker must have both."""
    return float(neighbour.mean() - tile.mean())


def arrivals_of(client: str, dask_scheduler: "Scheduler") -> int:
    """How often the scheduler has logged that this client connected.

    Asked there: ``client.get_events("all")`` fails once anybody has called
    ``replicate``, whose event holds objects that cannot travel.
    """
    event = {"action": "add-client", "client": client}
    return sum(logged == event for _, logged in dask_scheduler.get_events("all"))


def states_by_prefix(dask_scheduler: "Scheduler") -> dict[str, dict[str, int]]:
    """How many tasks of each prefix are in which state now: the panel Progress."""
    return {
        name: {state: count for state, count in prefix.states.items() if count}
        for name, prefix in dask_scheduler.task_prefixes.items()
    }


def memory_by_category(dask_scheduler: "Scheduler") -> dict[str, int]:
    """Bytes on all workers by category, as of their last heartbeats."""
    memory = dask_scheduler.memory
    names = ("managed", "unmanaged_old", "unmanaged_recent", "spilled")
    return {name: getattr(memory, name) for name in names}


def bandwidth_by_pair(dask_scheduler: "Scheduler") -> dict[tuple[str, str], float]:
    """Bytes a second from one worker to another: (receiver, sender) to a mean."""
    return dict(dask_scheduler.bandwidth_workers)


def http_status(url: str) -> str:
    """The status of an HTTP GET, or what went wrong."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return type(error).__name__


def main() -> None:
    """Tell the story."""
    with connect() as session, Lesson(session) as lesson:
        client = session.client
        workers = session.workers()
        threads = {worker.address: worker.threads for worker in workers}
        slots = sum(threads.values())

        lesson.section("A job of over a second, on every slot")
        print("Tiles are made on each worker; then each is compared with one of the")
        print("next worker, so that every comparison has to fetch a tile.")
        before = client.run_on_scheduler(bandwidth_by_pair)
        with get_task_stream(client) as stream:
            tiles = [
                tile
                for worker, number in threads.items()
                for tile in client.map(
                    survey_tile,
                    range(TASKS_PER_THREAD * number),
                    workers=[worker],
                    pure=False,
                )
            ]
            processing = dict.fromkeys(threads, 0)

            def all_are_busy() -> bool:
                for worker, keys in client.processing().items():
                    processing[worker] = max(processing.get(worker, 0), len(keys))
                return all(processing.values())

            lesson.until(all_are_busy, "every worker to have tasks", seconds=5)
            wait(tiles)
            shift = TASKS_PER_THREAD * workers[0].threads
            steps = client.map(
                step_between, tiles, tiles[shift:] + tiles[:shift], pure=False
            )
            wait(steps)
        keys = {future.key for future in tiles + steps}
        records = records_of(stream.data, keys)

        lesson.section("Each panel as a page, and as a number")
        megabytes = TILE * 8 * len(tiles) / 1e6
        memory: dict[str, int] = {}

        def memory_has_arrived() -> bool:
            memory.update(client.run_on_scheduler(memory_by_category))
            return memory["managed"] >= megabytes * 1e6

        lesson.until(memory_has_arrived, "heartbeats that tell of the tiles")
        copies = sum(map(len, client.who_has(tiles).values()))
        moved = {(span.worker, span.source) for span in transfers(records)}
        measured: dict[tuple[str, str], float] = {}

        def bandwidth_has_arrived() -> bool:
            now = client.run_on_scheduler(bandwidth_by_pair)
            new = (pair for pair in moved & set(now) if now[pair] != before.get(pair))
            measured.update({pair: now[pair] for pair in new})
            return bool(measured)

        lesson.until(bandwidth_has_arrived, "heartbeats that tell of the transfers")
        states = client.run_on_scheduler(states_by_prefix)
        progress = states["survey_tile"].get("memory", 0)
        arrivals = client.run_on_scheduler(arrivals_of, client.id)
        status = {page: http_status(f"{session.dashboard}/{page}") for page in PAGES}
        fastest = max(measured.values(), default=0)
        answers = [
            f"{len(workers)} workers, {slots} threads",
            f"~{sum(processing.values())} tasks while it ran",
            f"{len(records)} tasks ended",
            f"{progress} tiles in memory",
            f"~{memory['managed'] / 1e6:.0f} MB managed",
            f"~{len(measured)} pairs, at most ~{fastest / 1e6:.0f} MB/s",
            f"{arrivals} arrival of this client",
        ]
        print(f"All pages are below {session.dashboard}/; beside each is the method of")
        print("Client, or the attribute of Scheduler, that knows the number.")
        lesson.table(
            ["page", "ask", "answer"],
            [
                (page, ask, answer)
                for (page, ask), answer in zip(PAGES.items(), answers, strict=True)
            ],
        )
        print("Memory has more to it than what is managed, on all workers together:")
        lesson.table(
            ["category", "MB"],
            [(kind, f"~{size / 1e6:.0f}") for kind, size in memory.items()],
        )
        nowhere = http_status(f"{session.dashboard}/no-such-page")
        lesson.check(
            "every page answers over HTTP, and only pages that exist do",
            set(status.values()) == {"200"} and nowhere == "404",
            f"{', '.join(status.values())}; a page that does not exist: {nowhere}",
        )
        lesson.check(
            "while the job ran, every worker had tasks to process",
            all(processing.values()),
            f"the most that one had were ~{max(processing.values())}, the least "
            f"~{min(processing.values())}",
        )
        lesson.check(
            "the task stream has a record of every task that ended",
            len(records) == len(keys),
            f"{len(records)} records, {len(keys)} tasks",
        )
        lesson.check(
            "the tiles are managed memory: Dask knows them, and could spill them",
            progress == len(tiles) and memory["managed"] >= megabytes * 1e6,
            f"{progress} tiles of {TILE * 8 / 1e6:.0f} MB in memory, with copies for "
            f"the comparisons ~{copies}; ~{memory['managed'] / 1e6:.0f} MB managed",
        )
        lesson.check(
            "pairs of workers that move data get a bandwidth",
            measured,
            # Not always all: after each heartbeat a worker forgets what it measured,
            # with what came in while that was under way.
            f"~{len(measured)} of ~{len(moved)} pairs",
            # Within one process nothing is sent: a transfer hands over a pointer.
            needs="processes" if session.kind == "local" else "two workers",
        )
        lesson.check(
            "the scheduler's log of events knows when this client came",
            arrivals == 1,
            f"{arrivals} event of it",
        )

        lesson.section("Where the job's time went")
        job = diagnose(records, threads)
        show(lesson, job)
        could = job.slots * job.duration
        lesson.check(
            "efficiency is compute time over slots x duration, so it is at most 1",
            0 < job.compute <= could * 1.02,  # workers' clocks agree to milliseconds
            f"{job.compute:.2f} s of the {could:.2f} s that {slots} slots had: "
            f"~{job.efficiency:.2f}",
        )
        lesson.check(
            "this job is long enough to be judged",
            job.verdict != "too short to judge",
            f"it took {job.duration:.2f} s",
        )

        lesson.section("A short job says nothing")
        del tiles, steps
        short = min(
            (diagnose(tiny_job(lesson, slots), threads) for _ in range(3)),
            key=lambda run: run.duration,
        )
        print("Below a second, start-up and the clocks decide, whatever the efficiency")
        print(f"is (~{short.efficiency:.2f} here, in the shortest of three).")
        lesson.check(
            "a job of less than a second gets no verdict",
            short.verdict == "too short to judge",
            f"{short.duration * 1e3:.0f} ms: {short.verdict}, {short.advice}",
        )


def show(lesson: Lesson, job: Diagnosis) -> None:
    """The job's time by action, and by the prefix of its tasks' keys."""
    lesson.table(
        ["action", "time"],
        [(action, f"{job.by_action.get(action, 0):.3f} s") for action in ACTIONS],
    )
    lesson.table(
        ["prefix", "tasks", "time", "longest"],
        [
            (prefix.name, prefix.tasks, f"{prefix.seconds:.3f} s",
             f"{prefix.longest:.3f} s")
            for prefix in job.by_prefix
        ],
    )  # fmt: skip


def tiny_job(lesson: Lesson, slots: int) -> list[Record]:
    """Records of a task of 10 ms for each slot."""
    client = lesson.session.client
    with get_task_stream(client) as stream:
        futures: list[Future[None]] = client.map(time.sleep, [0.01] * slots, pure=False)
        wait(futures)
    return records_of(stream.data, {future.key for future in futures})


if __name__ == "__main__":
    run(main)
