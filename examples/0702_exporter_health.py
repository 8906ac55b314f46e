"""Who watches the watcher, when what it watches is down?

What:  freezes Dagster's webserver, ends it, lets another server answer in its place,
       and brings it back; then freezes the daemon only. Scrapes the exporter meanwhile.
Why:   the day on which Dagster hangs is the day on which you look at the dashboard.
       An exporter must then answer as fast as ever, keep what it knew, and say how old
       that is.
Needs: Dagster: `make up PROFILE=orchestrator`, or without Docker `uv sync --project
       monitoring/dagster`. Disturbs that Dagster, and leaves the Dask cluster alone.
Run:   make run EXAMPLE=0702_exporter_health
"""

import contextlib
import itertools
import math
import statistics
import time
from dataclasses import dataclass

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.orchestrator.watched import Exporter, Watched, watched

SCRAPES = 30
JOB = "slow"  # of monitoring/dagster/sample_jobs.py
RUNS, RUN_SECONDS = 2, 20.0  # they end while nobody can ask Dagster
TROUBLES = {  # what is done to the webserver: how the exporter calls it
    "frozen": "timeout",
    "gone": "unreachable",
    "another server": "http_status",
}
COLLECTOR = "completed_runs"
COMPLETED = "dagster_completed_runs_total"
ACTIVE = "dagster_active_runs"
SUCCESS = "dagster_exporter_last_scrape_success"
GOOD_AT = "dagster_exporter_last_success_timestamp_seconds"
DURATION = "dagster_exporter_scrape_duration_seconds"
AGE = "dagster_exporter_seconds_since_success"
FAILURES = "dagster_exporter_poll_failures_total"
HEALTHY = "dagster_daemon_healthy"
HEARTBEAT = "dagster_daemon_last_heartbeat_timestamp_seconds"
USUAL = 30.0  # seconds between two heartbeats: Dagster's own constant
PATIENCE = 90  # seconds
LESSON_SECONDS = 420  # on a busy machine, with Dagster's own start


@dataclass
class Look:
    """What the exporter says in one state of Dagster."""

    state: str
    answered: int
    """Of ``SCRAPES``."""
    milliseconds: float
    """Median of what a scrape took."""
    total: float
    """Runs of the job counted so far."""
    good: float
    """Whether the last poll was."""
    age: float
    """Seconds since the last good one."""
    poll_seconds: float
    """What the last poll took."""
    troubles: dict[str, float]
    """Polls that failed so far, by reason."""


def look(exporter: Exporter, state: str) -> Look:
    """Scrape many times, then read what is said."""
    took = []
    for _ in range(SCRAPES):
        start = time.perf_counter()
        with contextlib.suppress(LabError):  # a check counts those that were answered
            exporter.scrape()
            took.append(time.perf_counter() - start)
    return Look(
        state,
        len(took),
        1000 * statistics.median(took or [math.inf]),
        exporter.value(COMPLETED, job_name=JOB),
        exporter.value(SUCCESS, collector=COLLECTOR),
        exporter.value(AGE, collector=COLLECTOR),
        exporter.value(DURATION, collector=COLLECTOR),
        {
            reason: exporter.value(FAILURES, collector=COLLECTOR, reason=reason)
            for reason in TROUBLES.values()
        },
    )


def look_in_trouble(lesson: Lesson, exporter: Exporter, state: str) -> Look:
    """Wait for a poll that fails as it must in this state; then look."""
    labels = {"collector": COLLECTOR, "reason": TROUBLES[state]}
    before = exporter.value(FAILURES, **labels)
    lesson.until(
        lambda: exporter.value(FAILURES, **labels) > before,
        f"a poll that fails ({TROUBLES[state]})",
        PATIENCE,
    )
    return look(exporter, state)


def outage(lesson: Lesson, lab: Watched) -> list[Look]:
    """Look at the exporter while Dagster is well, frozen, gone, not itself, back."""
    exporter = lab.exporter
    looks = [look(exporter, "well")]
    counted = looks[0].total + RUNS
    for _ in range(RUNS):
        lab.dagster.launch(JOB, {"take_time": {"seconds": RUN_SECONDS}})

    def begun() -> float:
        started = exporter.value(ACTIVE, job_name=JOB, status="started")
        return started + exporter.value(COMPLETED, job_name=JOB) - looks[0].total

    lesson.until(lambda: begun() >= RUNS, "the runs to start", PATIENCE)
    with lab.frozen_web():
        looks.append(look_in_trouble(lesson, exporter, "frozen"))
    with lab.stopped_web():
        looks.append(look_in_trouble(lesson, exporter, "gone"))
        with lab.other_server():
            looks.append(look_in_trouble(lesson, exporter, "another server"))
    lesson.until(
        lambda: exporter.value(COMPLETED, job_name=JOB) >= counted,
        "the runs to be counted",
        PATIENCE,
    )
    counted_at = exporter.value(GOOD_AT, collector=COLLECTOR)
    lesson.until(
        lambda: exporter.value(GOOD_AT, collector=COLLECTOR) > counted_at,
        "another poll, which must not count them again",
        PATIENCE,
    )
    looks.append(look(exporter, "back"))
    return looks


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session, LESSON_SECONDS) as lesson,
        contextlib.ExitStack() as undo,
    ):
        lab = undo.enter_context(watched(session)) if lesson.can("dagster") else None
        looks: list[Look] = []
        if lab:
            print(lab.label)

        lesson.section("Dagster cannot be asked")
        if lab:
            looks = outage(lesson, lab)
            lesson.table(
                ["Dagster is", "scrapes", "median", "runs counted", "last good poll"],
                [
                    (one.state, one.answered, f"{one.milliseconds:.1f} ms",
                     f"~{one.total:.0f}", f"{one.age:.1f} s ago")
                    for one in looks
                ],
            )  # fmt: skip
        down = looks[1:4]
        lesson.check(
            "every scrape was answered, whatever Dagster did",
            [one.answered for one in looks] == [SCRAPES] * 5,
            f"{sum(one.answered for one in looks)} of {5 * SCRAPES}",
            needs="dagster",
        )
        usual = looks[0].milliseconds if looks else 1.0
        slowest = max((one.milliseconds for one in looks), default=0.0)
        frozen_poll = looks[1].poll_seconds if looks else 0.0
        lesson.check(
            "and in the usual time: no scrape waits for Dagster",
            0 < slowest < min(5 * usual, 1000 * frozen_poll),
            f"at worst {slowest / usual:.1f}x the median of when it was well; polling "
            f"a frozen Dagster took {frozen_poll:.1f} s",
            needs="dagster",
        )
        totals = [one.total for one in looks]
        lesson.check(
            "what was known stays, and is not taken for new",
            len(down) == 3
            and totals == sorted(totals)
            and not any(one.good for one in down),
            "no count drops; last_scrape_success is 0 in all three",
            needs="dagster",
        )
        told = {
            after.state: after.troubles[reason] > before.troubles[reason]
            for before, after in itertools.pairwise(looks[:4])
            for reason in [TROUBLES[after.state]]
        }
        lesson.check(
            "each kind of trouble has a name of its own",
            told == dict.fromkeys(TROUBLES, True),
            ", ".join(f"{state}: {TROUBLES[state]}" for state in told if told[state]),
            needs="dagster",
        )
        lesson.check(
            "the age of what is shown grows, until Dagster is back",
            len(looks) == 5 and looks[2].age < looks[3].age > looks[4].age,
            ", ".join(f"{one.age:.1f} s" for one in looks),
            needs="dagster",
        )
        lesson.check(
            "then the runs that ended meanwhile are counted, each once",
            len(looks) == 5 and totals[-1] == totals[0] + RUNS,
            f"{totals[-1] - totals[0] if totals else 0:.0f} more than before; "
            f"{RUNS} were started",
            needs="dagster",
        )

        lesson.section("Only the daemon is frozen")
        silent = polls = healthy = waiting = 0.0
        if lab:
            exporter = lab.exporter

            def heartbeat() -> float:
                return exporter.value(HEARTBEAT, daemon_type="SCHEDULER")

            def waits() -> float:
                return exporter.value(ACTIVE, job_name="good", status="queued")

            with lab.frozen_daemon():
                one = lab.dagster.launch("good")
                lesson.until(waits, "the run to be seen in the queue", PATIENCE)
                lesson.until(
                    lambda: time.time() - heartbeat() > USUAL + 5,
                    "a heartbeat that does not come",
                    PATIENCE,
                )
                lesson.until(lambda: exporter.value(SUCCESS) == 7, "good polls")
                last = heartbeat()
                silent = time.time() - last
                polls = exporter.value(SUCCESS)
                healthy = exporter.value(HEALTHY, daemon_type="SCHEDULER")
                waiting = waits()
            lesson.until(lambda: heartbeat() > last, "a heartbeat", PATIENCE)
            lesson.until(lambda: lab.dagster.ended(one), "the run", PATIENCE)
        lesson.check(
            "Dagster answers, each poll is good, and the daemon is called healthy",
            (polls, healthy) == (7, 1),
            f"{polls:.0f} of 7 collectors, daemon_healthy {healthy:.0f}",
            needs="dagster",
        )
        lesson.check(
            "its heartbeats alone say otherwise",
            silent > USUAL,
            f"the last is {silent:.0f} s old",
            needs="dagster",
        )
        lesson.check(
            "and whoever waits in the queue, without a limit in the way",
            waiting == 1,
            f"{waiting:.0f} run",
            needs="dagster",
        )


if __name__ == "__main__":
    run(main)
