"""Running lessons in processes of their own: outcome, score, summary."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import eventually

from dask_cluster_lab.commands import runner
from dask_cluster_lab.commands.catalogue import LessonFile, find_lesson
from dask_cluster_lab.commands.runner import Outcome, run_all, run_lesson
from dask_cluster_lab.errors import ChecksFailed

Capture = pytest.CaptureFixture[str]
LESSON = LessonFile(Path("examples/0101_first.py"), "Title.", {})


def add_code(project: Path, name: str, code: str) -> LessonFile:
    path = project / "examples" / f"{name}.py"
    path.write_text(path.read_text() + code + "\n")
    return find_lesson(name)


@pytest.mark.parametrize(
    ("stdout", "score"),
    [
        ("3 checks: 1 ok, 0 failed, 2 n/a\n", (1, 0, 2)),
        ("lines\n\n12 checks: 10 ok, 1 failed, 1 n/a\n", (10, 1, 1)),
        ("", None),
        ("3 checks: 1 ok\n", None),
        ("see 3 checks: 1 ok, 0 failed, 2 n/a\n", None),
    ],
)
def test_score(stdout: str, score: tuple[int, int, int] | None) -> None:
    assert Outcome(LESSON, 0, stdout, "", 1.0).score == score


def test_a_lesson_runs_in_its_own_process(project: Path) -> None:
    lesson = add_code(
        project,
        "0101_first",
        "import os, sys\n"
        "print(os.environ['A'], os.environ['B'], repr(sys.stdin.read()))\n"
        "print('to stderr', file=sys.stderr)\n"
        "sys.exit(7)",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A", "outer")
        patch.setenv("B", "outer")
        outcome = run_lesson(lesson, {"B": "inner"})
    assert outcome.lesson == lesson
    assert outcome.status == 7
    assert outcome.stdout == "first\nouter inner ''\n"
    assert outcome.stderr == "to stderr\n"
    assert 0 < outcome.seconds < 60


def test_a_lesson_that_does_not_end_is_killed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lesson = add_code(
        project,
        "0101_first",
        "import sys, threading\nsys.stdout.flush()\nthreading.Event().wait(300)",
    )
    monkeypatch.setattr(runner, "LESSON_TIMEOUT", 0.5)
    outcome = run_lesson(lesson)
    assert (outcome.status, outcome.stderr) == (1, "killed after 0.5 s")
    assert 0.5 <= outcome.seconds < 60
    assert outcome.stdout in ("first\n", "")  # empty if it did not even get started


def good(project: Path, *names: str) -> None:
    for name in names:
        add_code(project, name, "print('2 checks: 1 ok, 0 failed, 1 n/a')")


def seconds_masked(text: str) -> str:
    return re.sub(r" +\d+\.\d s", " T s", text)


def test_run_all_stops_at_a_failure(project: Path, capsys: Capture) -> None:
    good(project, "0101_first", "0201_third")
    with pytest.raises(ChecksFailed, match=r"^0102_second did not pass\.$") as caught:
        run_all()
    assert caught.value.exit_status == 1
    assert seconds_masked(capsys.readouterr().out) == (
        "0101_first   ok T s  1 ok, 0 failed, 1 n/a\n"
        "0102_second  FAIL T s  no summary\n"
        "\n"
        "\n1 of 3 lessons passed in T s\n"
        "checks: 1 ok, 0 failed, 1 n/a\n"
        "1 lessons not run; KEEP_GOING=1 runs them all\n"
    )


def test_run_all_keeps_going(project: Path, capsys: Capture) -> None:
    good(project, "0101_first", "0201_third")
    with pytest.raises(ChecksFailed, match=r"^0102_second did not pass\.$"):
        run_all(keep_going=True)
    out = seconds_masked(capsys.readouterr().out)
    assert "0201_third   ok T s  1 ok, 0 failed, 1 n/a\n" in out
    assert out.endswith(
        "\n2 of 3 lessons passed in T s\nchecks: 2 ok, 0 failed, 2 n/a\n"
    )


def test_run_all_shows_the_output_of_a_failure(project: Path, capsys: Capture) -> None:
    (project / "examples" / "0102_second.py").unlink()
    add_code(
        project,
        "0201_third",
        "print('1 checks: 0 ok, 1 failed, 0 n/a')\nraise SystemExit('error: so it is')",
    )
    with pytest.raises(ChecksFailed, match=r"^0201_third did not pass\.$"):
        run_all()
    out = seconds_masked(capsys.readouterr().out)
    assert out.startswith(
        "0101_first  ok T s  no summary\n"
        "0201_third  FAIL T s  0 ok, 1 failed, 0 n/a\n"
        "third\n1 checks: 0 ok, 1 failed, 0 n/a\nerror: so it is\n"
    )


def test_burners_do_not_outlive_a_soak_that_is_killed() -> None:
    """Not even one that has no time to end them."""
    code = (
        "import subprocess, sys\n"
        "from dask_cluster_lab.commands.soak import busy_cores\n"
        "with busy_cores() as burners:\n"
        "    print(*(burner.pid for burner in burners), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as soak:
        assert soak.stdout
        pids = [int(pid) for pid in soak.stdout.readline().split()]
        assert len(pids) == os.cpu_count()
        soak.kill()

    def computes(pid: int) -> bool:
        with contextlib.suppress(OSError):  # what has ended has no command line
            return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
        return False

    eventually(lambda: not any(map(computes, pids)), "the burners end", 20)
