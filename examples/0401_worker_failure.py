"""What is left after a worker, or the client, has died?

What:  ends worker processes, as a crash would, under persisted data, a running batch
       and scattered data, and by a task that kills; then a client. Counts what is lost
       and what is done again.
Why:   workers die: out of memory, evicted, crashed. What Dask repairs by itself, and
       what it cannot, decides how you hand your data to a cluster.
Needs: a cluster whose workers may die and have nannies: seven deaths in all, and as
       many workers at the end as before. Elsewhere it shows the client's end only.
Run:   make run EXAMPLE=0401_worker_failure
"""

import contextlib
import gc
import multiprocessing
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, KilledWorker, get_task_stream, get_worker, wait
from distributed.client import FutureCancelledError, futures_of

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.lesson import Need, say
from dask_cluster_lab.task_stream import computes, records_of

if TYPE_CHECKING:
    from distributed import Scheduler

ALLOWED = "distributed.scheduler.allowed-failures"
SECONDS = 0.3
SILT = np.arange(1_000.0)


def survey_tile(tile: int, topic: str) -> int:
    """Report the start to the scheduler's event log, sleep, return the tile."""
    worker = get_worker()
    start = {"started": worker.get_current_task(), "on": worker.address}
    worker.log_event(topic, start)
    time.sleep(SECONDS)
    return tile


def fall_over() -> None:
    """End the process, as a segmentation fault or the kernel's memory killer does."""
    time.sleep(SECONDS)
    os._exit(1)


def mean_depth(depths: np.ndarray) -> float:
    """Mean of depths in metres."""
    return float(depths.mean())


def container_start() -> float:
    """Seconds from the machine's boot to the start of this container's first process.

    Field 22 of ``/proc/1/stat``; the second one, a name in brackets, can hold spaces.
    """
    fields = Path("/proc/1/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def submit_and_publish(client: Client, mine: str, shared: str) -> list[Any]:
    """Submit a task under each of these keys, publish the second; futures of both."""
    futures = [client.submit(sum, range(10), key=key) for key in (mine, shared)]
    wait(futures)
    client.publish_dataset(futures[1], name=shared)
    return futures


def another_program(address: str, mine: str, shared: str) -> None:
    """Do the same in a process of its own, which then holds its client open."""
    with Client(address, timeout=20) as client:
        held = submit_and_publish(client, mine, shared)
        parent = multiprocessing.parent_process()
        assert parent
        parent.join()  # until it is killed, or nobody waits for it any more
        del held


def events_of(
    action: str, since: float, dask_scheduler: "Scheduler"
) -> list[tuple[float, dict[str, Any]]]:
    """Time and facts of the scheduler's events of one kind, read where they are kept.

    ``client.get_events("all")`` fetches every event, and fails once somebody has called
    ``replicate``: the scheduler logs that with objects of its own, which cannot travel.
    """
    log = dask_scheduler.get_events("all")
    return [(when, e) for when, e in log if when > since and e["action"] == action]


def ran_twice(starts: Collection[Mapping[str, str]]) -> set[str]:
    """Keys of the tasks that started exactly twice, from their reports."""
    counts = Counter(start["started"] for start in starts)
    return {key for key, count in counts.items() if count == 2}


def what_comes_home(future: Any) -> tuple[str, str, str]:
    """Status, and name and reason of the error that ``result()`` raises, if any."""
    try:
        future.result(timeout=30)
    except FutureCancelledError as error:
        # The client keeps this error; its traceback would keep our futures alive.
        error.__traceback__ = None
        return future.status, type(error).__name__, error.reason
    return future.status, "nothing", ""


class Crashes:
    """Ends workers, waits for the next ones, and reads the scheduler's log of it."""

    def __init__(self, lesson: Lesson) -> None:
        self.lesson, self.client = lesson, lesson.session.client
        self.size, self.caused = len(self.addresses()), 0
        self.began = self.client.run_on_scheduler(time.time)

    def addresses(self) -> set[str]:
        """Of the workers that the scheduler has now."""
        return {worker.address for worker in self.lesson.session.workers()}

    def kill(self, address: str) -> None:
        """End a worker's process; return once the scheduler has noticed."""
        self.caused += 1
        with contextlib.suppress(OSError):  # who should answer is gone
            self.client.run(os._exit, 1, workers=[address])
        self.lesson.until(lambda: address not in self.addresses(), "its removal")

    def heal(self) -> None:
        """Wait until there are as many workers as at the start."""
        if not self.lesson.until(
            lambda: len(self.addresses()) == self.size, "the new worker", seconds=60
        ):
            raise LabError("a worker did not come back; 'make up' starts it again.")

    def log(self, action: str) -> list[tuple[float, dict[str, Any]]]:
        """The scheduler's events of this kind since the start, with their times."""
        found = self.client.run_on_scheduler(events_of, action, self.began)
        return list(found)

    def death(self, address: str) -> dict[str, Any]:
        """The scheduler's event for the death of this worker."""
        deaths = (event for _, event in self.log("remove-worker"))
        return next(event for event in deaths if event["worker"] == address)

    def portrait(self, address: str) -> dict[str, str]:
        """Of a worker: its process, and what could outlive it."""
        run: Any = self.client.run
        only = {"workers": [address]}
        found = {
            "address": address,
            "worker": f"pid {run(os.getpid, **only)[address]}",
            "its nanny": f"pid {run(os.getpid, nanny=True, **only)[address]}",
            "host": run(socket.gethostname, **only)[address],
        }
        if self.lesson.can("containers"):
            began = run(container_start, **only)[address]
            found["container"] = f"began {began:.2f} s after boot"
        return found


def persisted_data(lesson: Lesson, crashes: Crashes) -> None:
    """Lost results that have a recipe are computed again, and no others."""
    client, workers = lesson.session.client, lesson.session.workers()
    slots = sum(worker.threads for worker in workers)
    rng = da.random.default_rng(seed=0)
    survey = rng.random((slots * 1_000, 100), chunks=(500, 100)).persist()
    wait(survey)
    keys = {future.key for future in futures_of(survey)}
    victim, others = workers[0].address, {worker.address for worker in workers[1:]}
    before, sum_before = crashes.portrait(victim), float(survey.sum().compute())
    held = keys & set(client.has_what()[victim])
    print("Each worker has a nanny: a process that starts it, and starts it again.")
    start = time.perf_counter()
    with get_task_stream(client) as stream:
        crashes.kill(victim)
        crashes.heal()
        seconds = time.perf_counter() - start
        lesson.until(lambda: all(client.who_has(survey).values()), "the chunks", 30)
    lost = keys & set(crashes.death(victim)["lost-computed-tasks"])
    again = [span.key for span in computes(records_of(stream.data, keys))]
    sum_after = float(survey.sum().compute())
    after = crashes.portrait(min(crashes.addresses() - others))
    lesson.table(
        ["", "before", "after"], [(what, before[what], after[what]) for what in before]
    )
    print(f"From the death to full capacity it took {seconds:.1f} s.")
    same = {what for what in before if before[what] == after[what]}
    lesson.check(
        "another process with another address has taken its place",
        not same & {"address", "worker"} and victim not in crashes.addresses(),
        f"{before['worker']} at {victim} is now {after['worker']} at "
        f"{after['address']}",
    )
    lesson.check(
        "neither its container nor its nanny restarted",
        same >= {"host", "its nanny", "container"},
        f"unchanged: {', '.join(sorted(same))}",
        needs="containers",
    )
    lesson.check(
        "exactly the chunks that were lost with it were computed again, once each",
        lost and lost <= held and Counter(again) == Counter(lost),
        f"it held ~{len(held)} of {len(keys)}, ~{len(lost)} of them without a copy "
        f"elsewhere; the task stream has ~{len(again)}",
    )
    lesson.check(
        "the sum is the same, to 1e-9",
        abs(sum_after - sum_before) <= 1e-9 * sum_before,
        f"{sum_before:,.3f} before, {sum_after:,.3f} after",
    )


def running_batch(lesson: Lesson, crashes: Crashes) -> None:
    """A kill in flight: what ran there runs twice, what counts is there once."""
    client, workers = lesson.session.client, lesson.session.workers()
    victim, threads = workers[0].address, workers[0].threads
    tiles = range(8 * sum(worker.threads for worker in workers))

    def starts() -> list[dict[str, str]]:
        log = (event for _, event in client.get_events(client.id))
        return [event for event in log if "started" in event]

    def started_there() -> set[str]:
        return {start["started"] for start in starts() if start["on"] == victim}

    print("Each task reports its start to the scheduler's event log before it works.")
    batch = client.map(survey_tile, tiles, topic=client.id, pure=False)
    lesson.until(lambda: len(started_there()) > threads, "the second round of tasks")
    crashes.kill(victim)
    results = client.gather(batch)
    crashes.heal()
    reports, begun = starts(), started_there()
    twice = ran_twice(reports)
    death, ours = crashes.death(victim), {task.key for task in batch}
    finished = ours & set(death["lost-computed-tasks"])
    there = ours & set(death["processing-tasks"])
    fates = {
        "finished there": finished,
        "running there": there & begun,
        "waiting there": there - begun,
    }
    lesson.table(
        ["when it died", "tasks", "ran twice"],
        [(f, f"~{len(keys)}", f"~{len(keys & twice)}") for f, keys in fates.items()],
    )
    lesson.check(
        "it died in flight, with tasks that ran and with results",
        finished and there & begun,
        f"~{len(there & begun)} ran, ~{len(finished)} had finished",
    )
    lesson.check(
        "every task is in the result exactly once",
        results == list(tiles),
        f"{len(results)} results of {len(tiles)} tasks, {len(set(results))} different",
    )
    lesson.check(
        "what had begun on it ran twice, and nothing else: a task must stand that",
        twice == begun == finished | (there & begun)
        and len(reports) == len(tiles) + len(twice),
        f"~{len(begun)} had begun on it, ~{len(twice)} ran twice: ~{len(reports)} "
        f"starts of {len(tiles)} tasks",
    )


def scattered_data(lesson: Lesson, crashes: Crashes) -> None:
    """Data from the client has no recipe: one copy is lost, of two one is left."""
    client, victim = lesson.session.client, lesson.session.workers()[0].address
    single = client.scatter(SILT, workers=[victim], hash=False)
    double = client.scatter(SILT, workers=[victim], hash=False)
    derived = client.submit(mean_depth, single, pure=False)
    wait(derived)

    def copies() -> int:
        return len(client.who_has().get(double.key, []))

    print("Two arrays are scattered, and the second is replicated to another worker.")
    client.amm.stop()  # the last check of this section shows why
    try:
        client.replicate([double], n=2)
        before = copies()
        crashes.kill(victim)
        futures = {
            "the array": single,
            "a result made of it before": derived,
            "a task submitted after": client.submit(mean_depth, single, pure=False),
        }
        said = [(what, *what_comes_home(futures[what])) for what in futures]
        after = copies()
        equal = after > 0 and np.array_equal(double.result(timeout=30), SILT)
        crashes.heal()
        if after:
            client.replicate([double], n=2)
        doubled = copies()
    finally:
        client.amm.start()
    lesson.table(["of the first", "status", "result() raises", "reason"], said)
    raised = sum(name == FutureCancelledError.__name__ for _, _, name, _ in said)
    lesson.check(
        "scattered data is gone, and with it whatever was or will be made of it",
        raised == len(said),
        f"{raised} of {len(said)} raise {FutureCancelledError.__name__}",
    )
    lesson.check(
        "replicated, it is still there",
        (before, after) == (2, 1) and equal,
        f"{before} copies before the death, {after} after; it equals the original",
        needs="two workers",
    )
    trimmed = False
    if lesson.can("two workers"):
        print(
            "That took client.amm.stop(): to the scheduler's Active Memory Manager, a"
        )
        print("second copy is waste. Replicated again, with the manager running:")
        trimmed = lesson.until(lambda: copies() == 1, "the trimming")
    lesson.check(
        "by default, copies do not last and insure nothing",
        doubled == 2 and trimmed,
        f"{doubled} copies became {copies()}",
        needs="two workers",
    )


def poison(lesson: Lesson, crashes: Crashes) -> None:
    """A task that kills is stopped after so many deaths."""
    client, retries = lesson.session.client, 10
    limit = client.run_on_scheduler(dask.config.get, ALLOWED)
    print(f"{ALLOWED} is {limit} on this scheduler.")
    tides = [SILT + tide for tide in range(10)]
    neighbours = client.map(mean_depth, tides, pure=False)
    expected = client.gather(neighbours)
    key = f"fall_over-{uuid.uuid4().hex}"
    killer = client.submit(fall_over, key=key, retries=retries)
    done = lesson.until(killer.done, "the end of the task", seconds=90)
    error = killer.exception() if done else None
    say(f"{type(error).__name__}: {str(error).partition('. ')[0]}.")
    deaths = [
        e for _, e in crashes.log("remove-worker") if key in e["processing-tasks"]
    ]
    lesson.check(
        "KilledWorker ends it after allowed-failures + 1 deaths; retries do not count",
        isinstance(error, KilledWorker) and len(deaths) == limit + 1,
        f"{len(deaths)} deaths, allowed-failures is {limit}, retries is {retries}",
    )
    ours = {task.key for task in neighbours}
    lost = {key for e in deaths for key in e["lost-computed-tasks"]} & ours
    after = client.gather(neighbours)
    lesson.check(
        "results of others that were lost on the way are computed again, unharmed",
        after == expected and lost,
        f"{len(after)} of {len(expected)} are equal, ~{len(lost)} of them were lost",
    )
    crashes.caused += len(deaths)
    crashes.heal()


def clients_death(lesson: Lesson, _: Crashes) -> None:
    """Results live as long as a client wants them, unless they are published."""
    client, address = lesson.session.client, lesson.session.address
    mine, shared = f"mine-{uuid.uuid4().hex}", f"shared-{uuid.uuid4().hex}"

    def there() -> list[str]:
        """Which of the two the cluster holds."""
        return [name for name in (mine, shared) if client.who_has().get(name)]

    with contextlib.ExitStack() as undo:
        undo.callback(client.unpublish_dataset, shared)
        if lesson.can("processes"):
            print("Another program submits two tasks, publishes one result, is killed.")
            program = multiprocessing.get_context("spawn").Process(
                target=another_program, args=(address, mine, shared), daemon=True
            )
            program.start()
            undo.callback(program.kill)
            lesson.until(lambda: shared in client.list_datasets(), "its work", 40)
            before = there()
            program.kill()  # SIGKILL: it has no chance to say goodbye
        else:
            print("No other process can come here: a second client is closed instead.")
            with Client(address, timeout=10, set_as_default=False) as other:
                held = submit_and_publish(other, mine, shared)
                before = there()
            del held
        lesson.until(lambda: mine not in there(), "the release")
        after = there()
        listed, value = shared in client.list_datasets(), None
        if lesson.can("processes"):  # in one process, a future stays its first client's
            value = client.get_dataset(shared).result(timeout=30)
    lesson.until(lambda: not there(), "the release")
    lesson.check(
        "a client's keys vanish with it",
        before == [mine, shared] and mine not in after,
        f"{len(before)} results while it lived, {len(after)} after",
    )
    lesson.check(
        "what it had published is still there",
        after == [shared] and listed,
        f"{len(after)} result; in the list of datasets: {listed}",
    )
    lesson.check(
        "any client can have it",
        value == sum(range(10)),
        f"get_dataset() gives a future of {value}",
        needs="processes",
    )
    lesson.check(
        "that stays until somebody unpublishes it",
        after == [shared] and not there(),
        f"{len(after)} before unpublish_dataset(), {len(there())} after",
    )


def log_of_deaths(lesson: Lesson, crashes: Crashes) -> None:
    """What the scheduler wrote down."""
    deaths, joined = crashes.log("remove-worker"), crashes.log("add-worker")
    kinds = ["processing-tasks", "lost-computed-tasks", "lost-scattered-tasks"]
    lesson.table(
        ["after", "worker", "was processing", "lost results", "lost for good"],
        [
            (
                f"{when - deaths[0][0]:.1f} s",
                event["worker"],
                *(f"~{len(event[kind])}" for kind in kinds),
            )
            for when, event in deaths
        ],
    )
    unexpected = sum(not event["expected"] for _, event in deaths)
    lesson.check(
        "the scheduler's event log has every death, none of them expected",
        unexpected == len(deaths) == crashes.caused,
        f"{len(deaths)} deaths, {unexpected} unexpected; {crashes.caused} caused here",
    )
    lesson.check(
        "as many workers joined as died, and all are there",
        len(joined) == len(deaths) and len(crashes.addresses()) == crashes.size,
        f"{len(joined)} joined; {len(crashes.addresses())} workers, "
        f"{crashes.size} at the start",
    )


SECTIONS: list[tuple[str, Callable[[Lesson, Crashes], None], str]] = [
    (
        "A worker dies under persisted chunks",
        persisted_data,
        "exactly the chunks that were lost are computed again",
    ),
    (
        "A worker dies in the middle of a batch",
        running_batch,
        "every task is in the result exactly once",
    ),
    (
        "A worker dies with scattered data",
        scattered_data,
        "it is lost for good, unless there is a second copy",
    ),
    (
        "A task that kills every worker it touches",
        poison,
        "it is stopped after allowed-failures + 1 deaths",
    ),
    ("The client dies", clients_death, ""),
    (
        "The scheduler's own log of the deaths",
        log_of_deaths,
        "its event log has every one of them",
    ),
]
"""Title, story, and what is claimed where no worker may die and none is told."""


def main() -> None:
    """Tell the story."""
    with connect() as session, Lesson(session) as lesson:
        crashes = Crashes(lesson)
        need: Need = "processes" if session.kind == "local" else "disruption"
        for title, tell, claim in SECTIONS:
            lesson.section(title)
            if lesson.can("disruption") or tell is clients_death:
                tell(lesson, crashes)
            else:
                lesson.check(claim, False, needs=need)
            gc.collect()  # what the story held: a traceback may hold its variables


if __name__ == "__main__":
    run(main)
