"""What limits this run, and would more hardware help?

What:  runs 40 short tasks and a few long ones, reads the bottleneck from the records
       of the task stream, and proves the reading: on fewer slots, with the long
       tasks split, and with the long tasks first and last.
Why:   when a run is slow, adding workers is the expensive guess. One comparison says
       beforehand whether it can help: the longest task against the floor.
Needs: any cluster with two slots or more; its slots for about twelve seconds; leaves a
       page in reports/ and nothing else, the same one each time.
Run:   make run EXAMPLE=0503_task_stream
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence

from distributed import get_task_stream, wait

from dask_cluster_lab import Lesson, connect, interleave, run
from dask_cluster_lab.diagnosis import Diagnosis, diagnose
from dask_cluster_lab.lesson import Need
from dask_cluster_lab.reports import (
    bokeh_objects,
    fetched_from_outside,
    pages_of,
    reports_folder,
    save_facts,
)
from dask_cluster_lab.stream_plot import save_stream
from dask_cluster_lab.task_stream import prefix_of, records_of

N_SHORT = 40
SHORT, LONG = 0.015, 1.5  # seconds of the tasks; all short ones take less than one long
# Where runs take turns: at least as long as this, half as many short ones, five rounds.
LONG_IN_TURNS = 0.6
LONGEST_IN_TURNS = 2.0
PARTS = 6
ROUNDS = 5


def survey_tile(seconds: float) -> None:
    """A short task; the sleep is the work."""
    time.sleep(seconds)


def survey_region(seconds: float) -> None:
    """A long task; the sleep is the work."""
    time.sleep(seconds)


def process() -> tuple[str, int]:
    """Host name and process id: what tells processes apart."""
    return socket.gethostname(), os.getpid()


def half_of(threads: Mapping[str, int]) -> list[str]:
    """The first workers that together have half of the slots, and two at least."""
    wanted, chosen = max(2, sum(threads.values()) / 2), list[str]()
    for address in sorted(threads):
        if sum(threads[worker] for worker in chosen) < wanted:
            chosen.append(address)
    return chosen


def long_tasks(slots: int, slots_of_half: int) -> int:
    """How many long tasks: so few that a slot is left for the short ones on either.

    The short ones together are shorter than a long one. So all tasks would fit into
    the time of one long task, and the longest is longer than the floor.
    """
    return max(1, min(slots_of_half - 1, slots // 2))


def long_enough(overhead: float) -> float:
    """Seconds of a long task that let ``overhead`` seconds a run decide nothing.

    Four times as long, within limits: a busy machine gets longer tasks, since there it
    takes long to send them, and the comparison is one of the tasks.
    """
    return min(max(LONG_IN_TURNS, 4 * overhead), LONGEST_IN_TURNS)


def main() -> None:
    """Tell the story."""
    with connect() as session, Lesson(session) as lesson:
        client = session.client
        threads = {worker.address: worker.threads for worker in session.workers()}
        slots, everywhere = sum(threads.values()), list(threads)
        half = half_of(threads)
        slots_of_half = sum(threads[address] for address in half)
        n_long = long_tasks(slots, slots_of_half)
        enough: Need | None = "two workers" if slots < 2 else None
        folder = reports_folder(__file__)

        def batch(
            regions: Sequence[float], tiles: Sequence[float], on: Sequence[str]
        ) -> list[str]:
            """Run long and short tasks on these workers; the keys of the long ones."""
            long = client.map(survey_region, regions, workers=on, pure=False)
            wait(long + client.map(survey_tile, tiles, workers=on, pure=False))
            return [str(future.key) for future in long]

        lesson.section(f"{N_SHORT} short tasks and {n_long} long, on {slots} slots")
        with get_task_stream(client) as stream:
            long_keys = batch([LONG] * n_long, [SHORT] * N_SHORT, everywhere)
        ours = {"survey_region", "survey_tile"}
        keys = {r["key"] for r in stream.data if prefix_of(r["key"]) in ours}
        records = records_of(stream.data, keys)
        job = diagnose(records, threads)
        show(lesson, job)
        processes = set(client.run(process).values())
        lesson.check(
            "each worker is a process of its own",
            len(processes) == len(threads),
            f"{len(threads)} workers, {len(processes)} processes",
            needs="processes",
        )
        print("Stragglers, the worst of them first:")
        worst = job.stragglers[:n_long]
        lesson.table(
            ["prefix", "worker", "took"],
            [(prefix_of(s.key), s.worker, f"{s.seconds:.2f} s") for s in worst],
        )
        slowest = {span.key for span in worst}
        lesson.check(
            "the worst stragglers, over three times the median, are the long tasks",
            slowest == set(long_keys),
            f"{len(slowest & set(long_keys))} of {n_long} on top of the ranking",
        )

        lesson.section("The decisive comparison")
        print("The floor is the compute time of all tasks over the slots: what the run")
        print("would take if no slot ever stood still. No run is shorter than its")
        print("floor, and none is shorter than its longest task.")
        lesson.table(
            ["floor", "longest task", "duration", "efficiency"],
            [
                (
                    f"{job.floor:.2f} s",
                    f"{job.longest:.2f} s",
                    f"{job.duration:.2f} s",
                    f"~{job.efficiency:.2f}",
                )
            ],
        )
        lesson.check(
            "the longest task is longer than the floor: more slots cannot help",
            job.longest > job.floor and job.verdict == "one long task",
            f"{job.longest:.2f} s against {job.floor:.2f} s; {job.verdict}: "
            f"{job.advice}",
            needs=enough,
        )

        lesson.section("The proof: other slots, other tasks")
        tiles = [SHORT] * (N_SHORT // 2)
        trial = interleave(
            {"all": lambda: batch([LONG_IN_TURNS] * n_long, tiles, everywhere)},
            rounds=3,
        )["all"]
        long = long_enough(max(trial.seconds) - LONG_IN_TURNS)
        regions, parts = [long] * n_long, [long / PARTS] * (PARTS * n_long)
        print(f"The same in small, with {len(tiles)} short tasks and long ones of")
        print(f"{long:.1f} s; medians of {ROUNDS} runs in turns.")
        ways: dict[str, Callable[[], object]] = {
            f"{slots} slots": lambda: batch(regions, tiles, everywhere)
        }
        if len(half) < len(threads):  # one worker has no half
            ways[f"{slots_of_half} slots"] = lambda: batch(regions, tiles, half)
        ways[f"{slots} slots, long tasks split in {PARTS}"] = lambda: batch(
            parts, tiles, everywhere
        )
        times = interleave(ways, rounds=ROUNDS, warm_up=0)
        medians = {way: timing.median for way, timing in times.items()}
        whole, split = medians[f"{slots} slots"], list(medians.values())[-1]
        on_half = medians.get(f"{slots_of_half} slots", whole)
        lesson.table(
            ["on", "median time", "against the first"],
            [(way, f"{t:.2f} s", f"{t / whole:.2f}x") for way, t in medians.items()],
        )
        ratio = slots / slots_of_half
        lesson.check(
            "on fewer slots it takes nearly as long",
            on_half / whole < (1 + ratio) / 2,
            f"{on_half / whole:.2f}x the time; work that fills all slots would take "
            f"{ratio:.2f}x",
            needs="two workers",
        )
        lesson.check(
            f"with the long tasks split in {PARTS}, the same work takes less time",
            split < whole,
            f"{split / whole:.2f}x the time on the same {slots} slots",
            needs=enough,
        )

        lesson.section("The order: long tasks first, or last")
        print(
            "One map runs its list in order. Here the short tasks are longer, and keep"
        )
        print("all slots busy for 0.4 of the time of a long one.")
        many = max(len(tiles), 2 * slots)
        longer = [0.4 * long * slots / many] * many

        def in_order(seconds: list[float]) -> None:
            wait(client.map(survey_region, seconds, workers=everywhere, pure=False))

        order = interleave(
            {
                "long ones first": lambda: in_order(regions + longer),
                "long ones last": lambda: in_order(longer + regions),
            },
            rounds=ROUNDS,
            warm_up=0,
        )
        first, last = (timing.median for timing in order.values())
        lesson.table(
            ["order of the list", "median time"],
            [(name, f"{timing.median:.2f} s") for name, timing in order.items()],
        )
        lesson.check(
            "submitted last, long tasks keep everybody waiting at the end",
            last > 1.1 * first,
            f"{last:.2f} s, and {first:.2f} s with the long ones first",
            needs=enough,
        )

        lesson.section("The stream as a picture")
        page = folder / "0503_task_stream.html"
        title = f"0503: {N_SHORT} short tasks and {n_long} long on {slots} slots"
        save_stream(records, title, page, threads, marks={"the floor": job.floor})
        totals = {
            "tasks": job.tasks,
            "floor seconds": round(job.floor, 3),
            "longest seconds": round(job.longest, 3),
            "duration seconds": round(job.duration, 3),
            "verdict": job.verdict,
        }
        save_facts(page, title, session, totals)
        text = page.read_text(encoding="utf-8")
        drawn = sum(
            len(thing["attributes"]["data"]["entries"][0][1])
            for thing in bokeh_objects(text)
            if thing.get("name") == "ColumnDataSource"
        )
        outside = fetched_from_outside(text)
        listed = {facts["page"] for facts in pages_of(folder)}
        print(f"Open reports/{page.name} in a browser, or reports/index.html.")
        lesson.check(
            "every stretch of every task is drawn, on a page that opens offline",
            drawn == sum(len(r["startstops"]) for r in records) and not outside,
            f"~{drawn} bars for {len(records)} tasks; {len(outside)} addresses outside",
        )
        lesson.check(
            "the index lists it",
            page.name in listed,
            f"reports/{page.name}" if page.name in listed else "it is missing",
        )


def show(lesson: Lesson, job: Diagnosis) -> None:
    """Time by prefix of the keys, and the load of each worker."""
    lesson.table(
        ["prefix", "tasks", "time", "longest"],
        [
            (p.name, p.tasks, f"{p.seconds:.2f} s", f"{p.longest:.3f} s")
            for p in job.by_prefix
        ],
    )
    print("Computing on each worker; the busiest has", end=" ")
    print(f"{job.spread:.2f}x the mean:")
    lesson.bars(sorted(job.by_worker.items()), "s")


if __name__ == "__main__":
    run(main)
