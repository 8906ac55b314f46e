"""What does a performance report keep of a run?

What:  freezes the same work, well and badly chunked, into two files that open offline,
       reads from the files what is inside, and compares their numbers.
Why:   the dashboard forgets. A report is what you attach to a question, keep beside a
       result, or compare with last month's. It must still open then.
Needs: any cluster; runs some 700 small tasks; leaves pages in reports/ and nothing
       else, the same ones each time.
Run:   make run EXAMPLE=0502_performance_report
"""

import math
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import dask.array as da
from distributed import Client, get_task_stream, performance_report

from dask_cluster_lab import ClusterSession, Lesson, connect, run
from dask_cluster_lab.diagnosis import Diagnosis, diagnose
from dask_cluster_lab.lesson import say
from dask_cluster_lab.reports import (
    fetched_from_outside,
    pages_of,
    reports_folder,
    save_facts,
    tab_titles,
)

N = 4_000_000
CHUNKS = {"good": 500_000, "bad": 16_000}  # elements, so 8 chunks and 250
OTHER_TASKS = 5
PAUSE = 0.5  # seconds
ICON = re.compile(r'<link rel="shortcut icon"[^>]*>')
WANTED = {"Summary", "Task Stream", "System", "Scheduler Logs", "Bandwidth (Workers)"}


@dataclass
class Run:
    """One run, its report and its figures."""

    page: Path
    as_made: str
    """The page as ``performance_report`` writes it; without its icon it is kept."""
    answer: int
    job: Diagnosis
    kilobytes_sent: float

    @property
    def text(self) -> str:
        return self.page.read_text(encoding="utf-8")

    @property
    def megabytes(self) -> float:
        return self.page.stat().st_size / 1e6


def remainders(chunk: int) -> da.Array:
    """Sum of the remainders modulo 97 of ``N`` numbers, ``chunk`` of them a task."""
    return (da.arange(N, chunks=chunk) % 97).sum()


def frozen(session: ClusterSession, chunk: int, page: Path) -> Run:
    """Run the work once, inside of a report.

    A report picks tasks by time, and workers' clocks agree only roughly with it: so no
    task runs shortly before or after its start.
    """
    threads = {worker.address: worker.threads for worker in session.workers()}
    time.sleep(PAUSE)
    with (
        performance_report(str(page), mode="inline"),
        get_task_stream() as stream,
        session.wire.count() as wire,
    ):
        time.sleep(PAUSE)
        answer = int(remainders(chunk).compute())
    made = page.read_text(encoding="utf-8")
    page.write_text(ICON.sub("", made), encoding="utf-8")
    return Run(page, made, answer, diagnose(stream.data, threads), wire.sent / 1e3)


def tasks_reported(page: str) -> int:
    """The number of tasks that a report states on its first tab; -1 if it does not."""
    found = re.search(r"number of tasks: (\d+)", page)
    return int(found[1]) if found else -1


def about(number: float) -> str:
    """A number that differs a little from run to run."""
    return "n/a" if math.isnan(number) else f"~{number:.0f}"


def main() -> None:
    """Tell the story."""
    with connect(meter_wire=True) as session, Lesson(session) as lesson:
        folder = reports_folder(__file__)
        remainders(CHUNKS["good"]).compute()  # warm up: imports on the workers

        lesson.section("A file that opens offline")
        with tempfile.TemporaryDirectory() as scratch:
            page = Path(scratch) / "usual.html"
            time.sleep(PAUSE)
            with performance_report(str(page)):
                time.sleep(PAUSE)
                with Client(session.address, timeout=10, set_as_default=False) as other:
                    other.gather(other.map(str, range(OTHER_TASKS), pure=False))
                with get_task_stream() as stream:
                    remainders(CHUNKS["good"]).compute()
            usual = page.read_text(encoding="utf-8")
        good = frozen(session, CHUNKS["good"], folder / "0502_good.html")
        outside, icon, inside = map(
            fetched_from_outside, (usual, good.as_made, good.text)
        )
        print("Usually a report loads the library that draws it, Bokeh, from the web:")
        print("without a network, or once that version is gone there, it stays blank.")
        print(
            "Inline, it brings Bokeh along. What is left is the icon of the browser's"
        )
        print("tab, from Dask's own site; the pages kept here have it cut out.")
        lesson.table(
            ["performance_report(...)", "size", "fetches from outside"],
            [
                ("as usual", f"~{len(usual) / 1e6:.1f} MB", len(outside)),
                ('mode="inline"', f"~{len(good.as_made) / 1e6:.1f} MB", len(icon)),
                (
                    "the same, without the icon",
                    f"~{good.megabytes:.1f} MB",
                    len(inside),
                ),
            ],
        )
        lesson.check(
            "a page kept here fetches nothing when it is opened; a usual one does",
            not inside and len(outside) > len(icon) == 1,
            f"{len(inside)} addresses, usually {len(outside)}, as {min(outside)}",
        )
        lesson.check(
            'mode="inline" alone leaves one address, and that is a picture',
            all(address.endswith(".ico") for address in icon),
            f"{', '.join(icon)}",
        )
        titles = tab_titles(good.text)
        say(f"Its tabs, as the document itself has them: {', '.join(titles)}.")
        lesson.check(
            "tasks, machine, log and bandwidth are all in it",
            set(titles) >= WANTED,
            f"{len(titles)} tabs, {len(WANTED & set(titles))} of the {len(WANTED)}",
        )

        lesson.section("It records what the scheduler sees, not only what you did")
        print(
            f"While the first report was made, another client ran {OTHER_TASKS} tasks."
        )
        lesson.check(
            "another client's tasks are in it as well",
            tasks_reported(usual) == len(stream.data) + OTHER_TASKS,
            f"{tasks_reported(usual)} tasks: {len(stream.data)} of this client, "
            f"{OTHER_TASKS} of another",
        )

        lesson.section("The same work, well and badly chunked")
        bad = frozen(session, CHUNKS["bad"], folder / "0502_bad.html")
        both = {"good": good, "bad": bad}
        rows = {
            "elements a chunk": [f"{CHUNKS[name]:,}" for name in both],
            "tasks": [f"{r.job.tasks:,}" for r in both.values()],
            "computing, of each": [
                f"{r.job.compute / r.job.tasks * 1e3:.3f} ms" for r in both.values()
            ],
            "from first to last": [f"{r.job.duration:.2f} s" for r in both.values()],
            "share of it computing": [
                f"~{r.job.efficiency:.2f}" for r in both.values()
            ],
            "sent to the scheduler, kB": [
                about(r.kilobytes_sent) for r in both.values()
            ],
            "the report, MB": [f"~{r.megabytes:.2f}" for r in both.values()],
        }
        lesson.table(["", *both], [(what, *values) for what, values in rows.items()])
        lesson.check(
            "both give the same sum",
            good.answer == bad.answer,
            f"{good.answer:,} and {bad.answer:,}",
        )
        lesson.check(
            "each report states as many tasks as the task stream recorded",
            all(tasks_reported(r.text) == r.job.tasks for r in both.values()),
            f"{tasks_reported(good.text)} and {tasks_reported(bad.text):,}",
        )
        lesson.check(
            "badly chunked, the same sum takes many more tasks",
            bad.job.tasks > 20 * good.job.tasks,
            f"{bad.job.tasks:,} instead of {good.job.tasks}",
        )
        lesson.check(
            "each task costs bytes on the way to the scheduler",
            bad.kilobytes_sent > 4 * good.kilobytes_sent,
            f"{about(bad.kilobytes_sent)} kB for {bad.job.tasks:,}, "
            f"{about(good.kilobytes_sent)} kB for {good.job.tasks}",
            needs="wire",
        )
        more = (bad.job.tasks - good.job.tasks) / 1e3
        growth = (bad.megabytes - good.megabytes) / more
        lesson.check(
            "a report grows with the tasks in it; Bokeh itself is most of a small one",
            0 < growth < good.megabytes and len(usual) < len(good.as_made) / 5,
            f"~{growth:.2f} MB for each 1,000 tasks, on top of "
            f"~{good.megabytes:.1f} MB; without Bokeh, ~{len(usual) / 1e6:.1f} MB",
        )

        lesson.section("Kept in reports/, with the facts beside it")
        for name, r in both.items():
            totals = {
                "tasks": r.job.tasks,
                "compute seconds": round(r.job.compute, 3),
                "duration seconds": round(r.job.duration, 3),
            }
            save_facts(r.page, f"0502: the same work, {name} chunks", session, totals)
        listed = {
            facts["page"]: facts["totals"].get("tasks") for facts in pages_of(folder)
        }
        index = (folder / "index.html").read_text(encoding="utf-8")
        links = [r.page.name for r in both.values() if f'"{r.page.name}"' in index]
        print("Open reports/index.html in a browser. A report also holds the code that")
        print(
            "called compute() and addresses of the cluster: look before you share it."
        )
        lesson.check(
            "the index links both, and the facts hold the totals",
            len(links) == len(both)
            and all(listed[r.page.name] == r.job.tasks for r in both.values()),
            f"{', '.join(links)}: {listed['0502_good.html']} and "
            f"{listed['0502_bad.html']:,} tasks",
        )


if __name__ == "__main__":
    run(main)
