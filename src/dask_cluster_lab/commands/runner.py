"""Run lessons the way a person does: each in a process of its own."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass

from dask_cluster_lab.commands.catalogue import LessonFile, lessons
from dask_cluster_lab.errors import ChecksFailed

LESSON_TIMEOUT = 480
_SCORE = re.compile(r"^\d+ checks: (\d+) ok, (\d+) failed, (\d+) n/a$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What one run of a lesson left behind."""

    lesson: LessonFile
    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def score(self) -> tuple[int, int, int] | None:
        """Checks that were ok, failed, n/a; ``None`` if there was no summary."""
        match = _SCORE.search(self.stdout)
        return (int(match[1]), int(match[2]), int(match[3])) if match else None


def run_lesson(
    lesson: LessonFile, environment: dict[str, str] | None = None
) -> Outcome:
    """Run ``lesson`` and collect its output; a run that does not end is killed."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, str(lesson.path)],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LESSON_TIMEOUT,
            check=False,
        )
        status, stdout, stderr = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as expired:
        status, stderr = 1, f"killed after {LESSON_TIMEOUT} s"
        stdout = (expired.stdout or b"").decode() if expired.stdout else ""
    return Outcome(lesson, status, stdout, stderr, time.monotonic() - start)


def run_all(keep_going: bool = False) -> None:
    """Run all lessons in order, a line each; stop at a failure, or ``keep_going``."""
    chosen = lessons()
    width = max((len(lesson.name) for lesson in chosen), default=0)
    outcomes = []
    for lesson in chosen:
        print(f"{lesson.name:<{width}}  ", end="", flush=True)
        outcome = run_lesson(lesson)
        outcomes.append(outcome)
        print(_line(outcome), flush=True)
        if outcome.status != 0:
            print(outcome.stdout + outcome.stderr)
            if not keep_going:
                break
        elif outcome.stderr:  # a good run writes nothing there
            print(outcome.stderr)
    _summary(outcomes, len(chosen))
    failed = [outcome.lesson.name for outcome in outcomes if outcome.status != 0]
    if failed:
        raise ChecksFailed(f"{', '.join(failed)} did not pass.")


def _line(outcome: Outcome) -> str:
    verdict = "ok  " if outcome.status == 0 else "FAIL"
    score = outcome.score
    checks = (
        f"{score[0]} ok, {score[1]} failed, {score[2]} n/a" if score else "no summary"
    )
    return f"{verdict}  {outcome.seconds:5.1f} s  {checks}"


def _summary(outcomes: list[Outcome], chosen: int) -> None:
    scores = [outcome.score for outcome in outcomes if outcome.score]
    ok, failed, absent = (
        (sum(column) for column in zip(*scores, strict=True)) if scores else (0, 0, 0)
    )
    passed = sum(outcome.status == 0 for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"\n{passed} of {chosen} lessons passed in {seconds:.1f} s")
    print(f"checks: {ok} ok, {failed} failed, {absent} n/a")
    if len(outcomes) < chosen:
        print(f"{chosen - len(outcomes)} lessons not run; KEEP_GOING=1 runs them all")
