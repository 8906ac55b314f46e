"""The exporter in front of a real Dagster that has faults all the time.

    cd tests && uv run python -m exporter.soak 30

runs for 30 minutes: runs of every outcome begin and end, Dagster freezes and restarts,
a code location breaks, runs are tagged, and the exporter is scraped all along. It ends
with 1 if a counter or a histogram's count ever dropped, if exporter and Dagster do not
agree at the end, or if the exporter needed more memory than it may.
"""

import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import eventually

from dask_cluster_lab.errors import LabError

from .process import Process, exporter
from .real_dagster import RealDagster, install
from .samples import Samples

TOTAL = "dagster_completed_runs_total"
OUTCOMES = ("SUCCESS", "FAILURE", "CANCELED")
JOBS = ("moor", "dredge", "good", "failing", "killed", "survey")
SEED = 7
PAUSE = 3.0
"""Seconds between two things that happen."""

MOST_MEMORY = 48e6
"""Bytes that the exporter may have in memory at any time."""

Labels = frozenset[tuple[str, str]]


def only_grow(samples: Samples) -> dict[tuple[str, Labels], float]:
    """All series that must never drop, with their values."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", samples.text, flags=re.M))
    names = [name for name, kind in kinds.items() if kind == "counter"]
    for name, kind in kinds.items():
        if kind == "histogram":
            names += [name + part for part in ("_count", "_sum", "_bucket")]
    return {
        (name, labels): value
        for name in names
        for labels, value in samples.series(name).items()
    }


def most_memory(pid: int) -> int:
    """Bytes that the process had in memory at the height of it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, flags=re.M)[0])


class Soak:
    """One Dagster, one exporter, and what happens to them."""

    def __init__(self, dagster: RealDagster, watch: Process) -> None:
        self.dagster = dagster
        self.watch = watch
        self.chance = random.Random(SEED)
        self.happened: dict[str, int] = {}
        self.highest: dict[tuple[str, Labels], float] = {}
        self.drops: list[str] = []
        self.scrapes = 0
        self.ended: list[str] = []

    def scrape(self) -> None:
        """Look at all that only grows; note what dropped or is gone."""
        now = only_grow(self.watch.samples())
        self.scrapes += 1
        for (name, labels), before in self.highest.items():
            value = now.get((name, labels), -1)
            if value < before:
                self.drops.append(f"{name}{dict(labels)}: {before:g}, then {value:g}")
        self.highest = now

    def wait(self, seconds: float) -> None:
        """Let time pass, and go on scraping."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.scrape()
            time.sleep(0.25)

    def some_runs_end(self) -> None:
        """In Dagster's storage: what would take long to run."""
        outcome = self.chance.choice(OUTCOMES)
        self.ended += self.dagster.make(outcome, times=self.chance.randint(1, 20))

    def a_job_runs(self) -> None:
        """For real, in a process of its own."""
        self.dagster.dagster.launch(self.chance.choice(JOBS[2:]))

    def an_old_run_is_tagged(self) -> None:
        """Which changes it, and must not count it again."""
        if self.ended:
            self.dagster.tag(self.chance.choice(self.ended))

    def the_webserver_freezes(self) -> None:
        """And runs end meanwhile, or afterwards if it holds the storage's lock."""
        with ThreadPoolExecutor(1) as beside:
            with self.dagster.frozen(self.dagster.web):
                ends = beside.submit(self.some_runs_end)
                self.wait(self.chance.uniform(2, 20))
            ends.result()

    def the_webserver_restarts(self) -> None:
        """And runs end meanwhile."""
        self.dagster.stop(self.dagster.web)
        self.some_runs_end()
        self.wait(self.chance.uniform(1, 10))
        self.dagster.start_web()

    def the_daemon_freezes(self) -> None:
        """What was queued stays there."""
        with self.dagster.frozen(self.dagster.daemon):
            self.a_job_runs()
            self.wait(self.chance.uniform(2, 20))

    def a_location_breaks(self) -> None:
        """And runs of it end meanwhile."""
        good = self.dagster.harbour.read_text()
        self.dagster.harbour.write_text("this is no Python\n")
        self.dagster.reload("harbour")
        self.some_runs_end()
        self.wait(self.chance.uniform(2, 10))
        self.dagster.harbour.write_text(good)
        self.dagster.reload("harbour")

    def happen(self) -> None:
        """One thing, by chance: runs more often than faults."""
        often = [self.some_runs_end, self.a_job_runs, self.an_old_run_is_tagged]
        rare: list[Callable[[], None]] = [
            self.the_webserver_freezes,
            self.the_webserver_restarts,
            self.the_daemon_freezes,
            self.a_location_breaks,
        ]
        one = self.chance.choice(often * 2 + rare)
        self.happened[one.__name__] = self.happened.get(one.__name__, 0) + 1
        one()
        self.wait(PAUSE)

    def disagreements(self) -> list[str]:
        """Where exporter and Dagster count differently."""
        samples = self.watch.samples()
        return [
            f"{job} {outcome}: {counted:.0f}, and {truth} in Dagster"
            for job in JOBS
            for outcome in OUTCOMES
            if (counted := samples.total(TOTAL, job_name=job, status=outcome.lower()))
            != (truth := self.dagster.dagster.count(job, outcome))
        ]


def missing(reason: str, remedy: str) -> None:
    """What ``install`` calls if it cannot."""
    raise LabError(f"{reason}; {remedy}.")


def main(minutes: float) -> int:
    """Soak; 0 if nothing dropped and both agree."""
    install(missing)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "watch").mkdir()
        dagster = RealDagster(folder)
        try:
            dagster.start()
            arguments = ("--interval=1", "--timeout=5", "--page-size=50")
            with exporter(
                folder / "watch", dagster.dagster.endpoint, *arguments
            ) as watch:
                watch.ready()
                soak = Soak(dagster, watch)
                deadline = time.monotonic() + 60 * minutes
                while time.monotonic() < deadline:
                    soak.happen()
                at_rest = "runsOrError(filter:{statuses:[QUEUED,STARTING,STARTED]})"
                query = "{" + at_rest + "{...on Runs{count}}}"
                eventually(
                    lambda: dagster.dagster.ask(query)["runsOrError"]["count"] == 0,
                    "all runs to end",
                    300,
                )
                eventually(lambda: not soak.disagreements(), "agreement", 120)
                watch.poll_again("completed_runs")
                soak.scrape()
                memory = most_memory(watch.process.pid)
                wrong = [*soak.drops, *soak.disagreements()]
                if memory > MOST_MEMORY:
                    wrong.append(f"{memory / 1e6:.1f} MB of memory")
        finally:
            dagster.close()
    total = sum(n for (name, _), n in soak.highest.items() if name == TOTAL)
    print(f"{minutes:g} minutes, {soak.scrapes} scrapes, {total:.0f} runs counted")
    print(f"{len(soak.highest)} series that only grow, at most {memory / 1e6:.1f} MB")
    for what, times in sorted(soak.happened.items()):
        print(f"{times:4} {what.replace('_', ' ')}")
    print("\n".join(wrong) or "no counter dropped, and both count the same")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
