"""Where do tasks land, and how many run at once?

What:  runs two tasks per slot and finds out where and when each ran; then counts the
       messages of submit and map, the executions of equal calls, and who comes first.
Why:   a cluster runs as many tasks at once as it has slots, whichever workers these are
       in. What you submit is known by its key, and the key decides whether it runs.
Needs: any cluster; its slots for about seven seconds; leaves nothing behind.
Run:   make run EXAMPLE=0103_submit_across_workers
"""

import os
import socket
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import dask
from distributed import Client, Future, as_completed

from dask_cluster_lab import Lesson, connect, interleave, run
from dask_cluster_lab.task_stream import peak_overlap

TASKS_PER_SLOT = 2
SECONDS = 0.4
N_CALLS = 1_000
ROUNDS = 5
NOWHERE = "tcp://127.0.0.1:1"  # no worker is there, so what is pinned to it never runs

Visit = tuple[str, int, float, float]


def survey_tile(tile: int, after: object = None) -> Visit:
    """Host, process id, and when this started and stopped; the sleep is the work.

    ``after`` is a result of another task, which therefore has to finish first.
    """
    start = time.time()
    time.sleep(SECONDS)
    return socket.gethostname(), os.getpid(), start, time.time()


def stamp(tile: int) -> str:
    """A text that no other execution returns: as many texts, as many executions."""
    return uuid.uuid4().hex


def main() -> None:
    """Tell the story."""
    with connect() as session, Lesson(session) as lesson:
        client = session.client
        workers = session.workers()
        slots = sum(worker.threads for worker in workers)
        n_tasks = TASKS_PER_SLOT * slots
        visits: list[Visit] = []

        def run_batch() -> None:
            futures = client.map(survey_tile, range(n_tasks), pure=False)
            visits.extend(client.gather(futures))

        lesson.section(f"{n_tasks} tasks of {SECONDS} s into {slots} slots")
        batch = interleave({"batch": run_batch}, rounds=ROUNDS)["batch"]
        spans = defaultdict(list)
        for host, pid, start, stop in visits:
            spans[host, pid].append((start, stop))
        print(f"{1 + ROUNDS} such batches, the first of them to warm up, ran here:")
        lesson.table(
            ["host", "process", "tasks", "at once"],
            [
                (host, f"pid {pid}", f"~{len(ran)}", peak_overlap(ran))
                for (host, pid), ran in sorted(spans.items())
            ],
        )
        hosts, pids = {host for host, _ in spans}, {pid for _, pid in spans}
        lesson.check(
            "every worker took part, told apart by host and pid",
            len(spans) == len(workers),
            f"{len(workers)} workers, {len(spans)} pairs of {len(hosts)} hosts and "
            f"~{len(pids)} pids",
            needs="processes",
        )
        peak = peak_overlap((start, stop) for *_, start, stop in visits)
        lesson.check(
            "as many tasks run at once as there are slots, not workers",
            peak == slots,
            f"{peak} ran at one moment; {slots} slots, {len(workers)} workers",
        )
        work = n_tasks * SECONDS
        lesson.check(
            "the speed-up is above 1, and below the slots for overhead and waiting",
            max(1, slots / 8) < work / batch.median <= slots,
            f"{work:.1f} s of work in {batch.median:.2f} s (median of {ROUNDS}) is "
            f"{work / batch.median:.2f}x; the ideal is {slots}",
        )

        lesson.section(f"{N_CALLS:,} calls: a message each, or one for all")
        print("All are pinned to an address where no worker is: it is the sending that")
        print("counts. They go through a client of their own, which has no heartbeat.")
        messages, seconds = defaultdict(set), defaultdict(list)
        with Client(
            session.address, timeout=10, set_as_default=False, heartbeat_interval="1h"
        ) as sender:
            ways: dict[str, Callable[[], list[Future[str]]]] = {
                "submit in a loop": lambda: [
                    sender.submit(stamp, tile, pure=False, workers=NOWHERE)
                    for tile in range(N_CALLS)
                ],
                "one map": lambda: sender.map(
                    stamp, range(N_CALLS), pure=False, workers=NOWHERE
                ),
            }
            for _ in range(ROUNDS):
                for name, submit_all in ways.items():
                    sent, taken = count_messages(lesson, sender, submit_all)
                    messages[name].add(sent)
                    seconds[name].append(taken)
        lesson.table(
            ["how", "messages", "median time to submit"],
            [
                (
                    name,
                    " or ".join(f"{count:,}" for count in sorted(messages[name])),
                    f"{statistics.median(seconds[name]) * 1e3:.0f} ms",
                )
                for name in ways
            ],
        )
        lesson.check(
            "a loop of submits sends a message per call, map one for all of them",
            list(messages.values()) == [{N_CALLS}, {1}],
            f"most and least in {ROUNDS} runs: "
            + ", ".join(f"{max(n):,} and {min(n):,}" for n in messages.values()),
        )

        lesson.section("The key decides whether a call runs")
        print("Each execution of stamp() returns another text, so equal texts from two")
        print("calls mean that there was one execution.")
        first = client.submit(stamp, 7)
        stamps = [first.result()]  # fetched before the others are submitted
        second = client.submit(stamp, 7)
        stamps.append(second.result())
        with Client(session.address, timeout=10, set_as_default=False) as other:
            third = other.submit(stamp, 7)
            stamps.append(third.result())
            keys = {first.key, second.key, third.key}
        lesson.check(
            "an equal call is the same key and runs once, even from another client",
            len(keys) == len(set(stamps)) == 1,
            f"{len(stamps)} calls, {len(keys)} key, {len(set(stamps))} execution",
        )
        key = first.key
        del first, second, third
        freed = lesson.until(lambda: key not in client.who_has(), "the release")
        again = client.submit(stamp, 7)
        stamps.append(again.result())
        lesson.check(
            "once nobody holds the result, an equal call runs anew under the old key",
            freed and again.key == key and len(set(stamps)) == 2,
            f"{len(stamps)} calls, {len({key, again.key})} key, "
            f"{len(set(stamps))} executions",
        )
        impure = [client.submit(stamp, 7, pure=False) for _ in range(2)]
        impure_keys = {future.key for future in impure}
        impure_stamps = set(client.gather(impure))
        lesson.check(
            "with pure=False every call is a key of its own and runs",
            len(impure_keys) == len(impure_stamps) == len(impure),
            f"{len(impure)} calls, {len(impure_keys)} keys, "
            f"{len(impure_stamps)} executions",
        )

        lesson.section("Order of results: as listed, or as they come")
        survey = dask.delayed(survey_tile, pure=False)
        one = survey(1)
        two = survey(2, after=one)
        three = survey(3, after=two)
        futures = client.compute([three, two, one])  # the chain goes as one message
        listed = ["three", "two", "one"]
        name_of = dict(zip(futures, listed, strict=True))
        came = [name_of[future] for future in as_completed(futures)]
        result_of = {future.result(): name for future, name in name_of.items()}
        gathered = [result_of[result] for result in client.gather(futures)]
        lesson.table(
            ["what", "order"],
            [
                ("the list", ", ".join(listed)),
                ("gather", ", ".join(gathered)),
                ("as_completed", ", ".join(came)),
            ],
        )
        lesson.check(
            "gather keeps the order of the list that it is given",
            gathered == listed,
            f"{gathered[0]} is first, {listed[0]} is first in the list",
        )
        lesson.check(
            "as_completed yields in the order of completion, here forced by 'after'",
            came == ["one", "two", "three"],
            f"{came[0]} is first, {listed[-1]} is last in the list",
        )


def count_messages(
    lesson: Lesson, sender: Client, submit_all: Callable[[], list[Future[str]]]
) -> tuple[int, float]:
    """Messages that ``submit_all`` makes ``sender`` send, and the seconds it takes."""
    stream: Any = sender.scheduler_comm  # it counts the messages that are put into it
    before, start = stream.message_count, time.perf_counter()
    futures = submit_all()
    taken = time.perf_counter() - start
    sender.nthreads()  # a round trip: what was queued before it has been sent
    sent = stream.message_count - before
    del futures  # which sends messages as well, and these are not to be counted
    lesson.until(lambda: not sender.futures, "the release of the futures", seconds=60)
    sender.nthreads()
    return sent, taken


if __name__ == "__main__":
    run(main)
