"""What hears of a run that cannot speak?

What:  starts runs that push their numbers when they are done, and kills one; queues
       some behind a limit, and cancels them; asks Pushgateway and exporter each time.
Why:   a run that pushes tells of its success. What you want to hear of is a run that
       was killed, and one that waits; in neither is there code that could tell.
Needs: Dagster: `make up PROFILE=orchestrator`, or without Docker `uv sync --project
       monitoring/dagster`. Runs jobs there, and leaves the Dask cluster alone.
Run:   make run EXAMPLE=0701_poll_not_push
"""

import contextlib
from dataclasses import dataclass, field

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.lesson import Need
from dask_cluster_lab.metrics.prometheus import Prometheus
from dask_cluster_lab.metrics.push import Group, groups
from dask_cluster_lab.orchestrator.api import Dagster
from dask_cluster_lab.orchestrator.watched import Exporter, Watched, watched

JOB = "pushing"  # of monitoring/dagster/sample_jobs.py
OP = "measure_and_push"  # in it
LIMITED = {"lab/instrument": "multibeam"}  # dagster.yaml lets one of these run at once
COMPLETED = "dagster_completed_runs_total"
ACTIVE = "dagster_active_runs"
BACKLOG = "dagster_run_queue_tag_backlog"
OLDEST = "dagster_run_queue_tag_oldest_seconds"
PATIENCE = 90  # seconds; Dagster starts a process for each run
LESSON_SECONDS = 420  # on a busy machine, with Dagster's own start


@dataclass
class Heard:
    """What became of some runs, as Dagster, exporter and gateway say."""

    runs: int = 0
    statuses: list[str] = field(default_factory=list)
    """Dagster's own word."""
    counted: dict[str, float] = field(default_factory=dict)
    """By how much the exporter's counters went up, by outcome."""
    pushed: int = 0
    """How many of them have a group in the gateway."""

    @property
    def by_dagster(self) -> str:
        """What Dagster says, as text."""
        return f"Dagster says {', '.join(sorted(set(self.statuses)))}"

    @property
    def by_exporter(self) -> str:
        """What the exporter counted, as text."""
        return ", ".join(f"{n:.0f} {what}" for what, n in self.counted.items() if n)


def outcomes(exporter: Exporter) -> dict[str, float]:
    """The exporter's counters of the job, by outcome."""
    return {
        outcome: exporter.value(COMPLETED, job_name=JOB, status=outcome)
        for outcome in ("success", "failure", "canceled")
    }


def groups_of(gateway: str, runs: list[str]) -> int:
    """How many of these runs the gateway has a group of."""
    return sum(key.get("run") in runs for key in groups(gateway)) if gateway else 0


def give_up(dagster: Dagster, run: str) -> None:
    """Cancel a run that has not ended, if Dagster still answers: for the way out."""
    with contextlib.suppress(LabError):
        if not dagster.ended(run):
            dagster.cancel(run)


def until_ended(
    lesson: Lesson, lab: Watched, runs: list[str], before: dict[str, float]
) -> Heard:
    """Wait until Dagster says that the runs ended, and the exporter has polled it."""

    def counted() -> dict[str, float]:
        now = outcomes(lab.exporter)
        return {outcome: now[outcome] - before[outcome] for outcome in now}

    lesson.until(lambda: lab.dagster.ended(*runs), "the runs to end", PATIENCE)
    lesson.until(lambda: sum(counted().values()) >= len(runs), "a poll", PATIENCE)
    return Heard(
        len(runs),
        [lab.dagster.status(one) for one in runs],
        counted(),
        groups_of(lesson.session.pushgateway, runs),
    )


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session, LESSON_SECONDS) as lesson,
        contextlib.ExitStack() as undo,
    ):
        gateway = session.pushgateway
        lab = undo.enter_context(watched(session)) if lesson.can("dagster") else None
        if lab and session.kind == "compose" and not gateway:
            raise LabError(
                "the jobs of this lesson push to a Pushgateway, which is not up; "
                "'make up PROFILE=orchestrator' starts it."
            )
        # A Pushgateway comes with the containers, and not without.
        pushes: Need = "pushgateway" if lab else "dagster"
        scrapes: Need = "prometheus" if lab else "dagster"
        if lab:
            print(lab.label)

        def launch(**config: float | bool) -> str:
            """Put a run into the queue; its group in the gateway goes at the end."""
            assert lab
            tags = LIMITED if "seconds" in config else {}
            one = lab.dagster.launch(JOB, {OP: config}, tags)
            if gateway:
                undo.callback(Group(gateway, "dagster", {"run": one}).give_up)
            undo.callback(give_up, lab.dagster, one)
            return one

        if lab and (left := lab.dagster.active(JOB)):
            print(f"Runs of {JOB} that were there before are cancelled: {len(left)}.")
            before = outcomes(lab.exporter)
            for one in left:
                lab.dagster.cancel(one)
            until_ended(lesson, lab, left, before)

        lesson.section("A run that ends well")
        well, scraped = Heard(), float("nan")
        failures = f'sum({COMPLETED}{{job_name="{JOB}",status="failure"}})'
        if lab:
            before = outcomes(lab.exporter)
            well = until_ended(lesson, lab, [launch()], before)
        lesson.check(
            "the exporter counts a success, as Dagster does",
            well.statuses == ["SUCCESS"] and well.counted["success"] == 1,
            f"{well.by_dagster}, the exporter counted {well.by_exporter}",
            needs="dagster",
        )
        lesson.check(
            "the run has told the gateway, too",
            well.pushed == 1,
            f"{well.pushed} group of {well.runs} run",
            needs=pushes,
        )

        lesson.section("A run that is killed")
        killed = Heard()
        if lab:
            server = Prometheus(session.prometheus)
            failed_before = server.value(failures, 0) if session.prometheus else 0
            killed = until_ended(
                lesson, lab, [launch(dies=True)], outcomes(lab.exporter)
            )
            if session.prometheus:

                def seen() -> float:
                    return server.value(failures, 0) - failed_before

                lesson.until(lambda: seen() >= 1, "a scrape", PATIENCE)
                scraped = seen()
        lesson.check(
            "Dagster knows that it failed, and so does the exporter",
            killed.statuses == ["FAILURE"] and killed.counted["failure"] == 1,
            f"{killed.by_dagster}, the exporter counted {killed.by_exporter}",
            needs="dagster",
        )
        lesson.check(
            "the gateway never hears of it: what should have told it was killed",
            killed.pushed == 0 and well.pushed == 1,
            f"{killed.pushed} groups of {killed.runs} run",
            needs=pushes,
        )
        lesson.check(
            "Prometheus has the failure from the exporter: an alert can rest on that",
            scraped == 1,
            f"{scraped:.0f} failure more than before",
            needs=scrapes,
        )

        lesson.section("Runs that wait")
        queued = started = waiting = heard = 0.0
        ages = [0.0, 0.0]
        cancelled = Heard()
        if lab:
            exporter, before = lab.exporter, outcomes(lab.exporter)
            runs = [launch(seconds=600.0) for _ in range(3)]

            def active(status: str) -> float:
                return exporter.value(ACTIVE, job_name=JOB, status=status)

            lesson.until(
                lambda: (active("started"), active("queued")) == (1, 2),
                "the exporter to see one that runs and two that wait",
                PATIENCE,
            )
            started, queued = active("started"), active("queued")
            waiting = exporter.value(BACKLOG, tag="lab/instrument")
            ages[0] = exporter.value(OLDEST, tag="lab/instrument")
            lesson.until(
                lambda: exporter.value(OLDEST, tag="lab/instrument") > ages[0] + 1,
                "another poll",
                PATIENCE,
            )
            ages[1] = exporter.value(OLDEST, tag="lab/instrument")
            heard = groups_of(gateway, runs)
            for one in reversed(runs):  # else the next would take the place
                lab.dagster.cancel(one)
            cancelled = until_ended(lesson, lab, runs, before)
        lesson.check(
            "the exporter shows who waits, and behind which limit",
            (started, queued, waiting) == (1, 2, 2),
            f"{started:.0f} runs, {queued:.0f} wait, {waiting:.0f} of them behind the "
            "tag that dagster.yaml limits",
            needs="dagster",
        )
        lesson.check(
            "and how long: it grows from poll to poll, although nothing happens",
            ages[1] > ages[0] + 1 > 1,
            f"the oldest has waited ~{ages[0]:.0f} s, then ~{ages[1]:.0f} s",
            needs="dagster",
        )
        lesson.check(
            "no code of theirs runs that could push, so the gateway has none of them",
            heard == 0 and queued == 2,
            f"{heard:.0f} groups",
            needs=pushes,
        )
        lesson.check(
            "a cancelled run is neither a success nor a failure",
            cancelled.statuses == ["CANCELED"] * 3
            and cancelled.counted == {"success": 0, "failure": 0, "canceled": 3},
            f"{cancelled.by_dagster}, the exporter counted {cancelled.by_exporter}",
            needs="dagster",
        )
        lesson.check(
            "and it does not push either",
            cancelled.pushed == 0 and cancelled.runs == 3,
            f"{cancelled.pushed} groups of {cancelled.runs} runs",
            needs=pushes,
        )
        if lab:
            known = (lambda groups: groups) if gateway else (lambda groups: "n/a")
            lesson.table(
                ["what became of it", "runs", "the exporter", "groups pushed"],
                [
                    ("ended well", well.runs, well.by_exporter, known(well.pushed)),
                    ("killed", killed.runs, killed.by_exporter, known(killed.pushed)),
                    ("wait", int(queued), f"{waiting:.0f} queued", known(int(heard))),
                    ("cancelled", cancelled.runs, cancelled.by_exporter,
                     known(cancelled.pushed)),
                ],
            )  # fmt: skip


if __name__ == "__main__":
    run(main)
