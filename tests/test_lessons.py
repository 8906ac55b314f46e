"""Every lesson, as a person runs it, on every kind of session.

What a lesson says of itself is only half: the cluster is looked at by a client of the
test's own, before and after, and the facts of key lessons are counted a second way.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from compose_cluster import ROOT, ComposeCluster
from lesson_runs import assert_passed, passes_on_the_cluster

from dask_cluster_lab.cluster import Kind
from dask_cluster_lab.commands.catalogue import LessonFile, lessons
from dask_cluster_lab.commands.runner import run_lesson
from dask_cluster_lab.commands.transcripts import (
    KINDS,
    NO_SCHEDULER,
    compare_outcome,
    transcript_path,
)
from dask_cluster_lab.wire import WireMeter

ALL = lessons()
compose = pytest.mark.compose
each_lesson = pytest.mark.parametrize("lesson", ALL, ids=lambda lesson: lesson.name)
# Phase 7 watches a Dagster: test_orchestrator.py has that.
each_on_dask = pytest.mark.parametrize(
    "lesson",
    [lesson for lesson in ALL if lesson.name < "07"],
    ids=lambda lesson: lesson.name,
)


def observed() -> set[str]:
    """The lessons whose run on the cluster is part of a test that looks at more."""
    sources = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    return set(re.findall(r'passes_on_the_cluster\(\s*"(\d{4})"', " ".join(sources)))


@compose
@pytest.mark.parametrize(
    "number",
    sorted({lesson.name[:4] for lesson in ALL if lesson.name < "07"} - observed()),
)
def test_on_the_cluster(number: str, shared_cluster: ComposeCluster) -> None:
    passes_on_the_cluster(number, shared_cluster)


def copied(lesson: LessonFile, folder: Path) -> LessonFile:
    """The lesson in a folder of its own: its ``reports/`` are not those of others."""
    path = folder / "examples" / lesson.path.name
    path.parent.mkdir()
    return replace(lesson, path=Path(shutil.copy(lesson.path, path)))


@each_on_dask
def test_on_the_fallback(lesson: LessonFile, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    outcome = run_lesson(
        copied(lesson, tmp_path),
        {"DASK_SCHEDULER_ADDRESS": NO_SCHEDULER, "TMPDIR": str(temporary)},
    )
    assert_passed(outcome)
    # Dask leaves its folder for all workers of a machine, with two locks in it.
    left = {path.name for path in temporary.rglob("*")}
    assert left <= {"dask-scratch-space", "global.lock", "purge.lock"}
    assert outcome.stdout.startswith("LocalCluster, in this process, as a fallback: ")
    assert "\nn/a " in outcome.stdout, "the fallback cannot show everything"
    assert compare_outcome(outcome, "local") == ""


@pytest.fixture(scope="module")
def plain_scheduler() -> Iterator[str]:
    """Address of a scheduler with two workers that is not this project's."""
    code = (
        "import sys\nfrom distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=2, threads_per_worker=2, protocol='tcp',\n"
        "            dashboard_address='127.0.0.1:0') as cluster:\n"
        "        print(cluster.scheduler_address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.communicate(timeout=60)


@each_on_dask
def test_on_a_remote_scheduler(
    lesson: LessonFile, plain_scheduler: str, tmp_path: Path
) -> None:
    outcome = run_lesson(
        copied(lesson, tmp_path), {"DASK_SCHEDULER_ADDRESS": plain_scheduler}
    )
    assert_passed(outcome)
    assert outcome.stdout.splitlines()[:2] == [
        f"Remote scheduler at {plain_scheduler}",
        "2 workers on 1 host, 4 threads",
    ]


@compose
@pytest.mark.parametrize(("workers", "phases"), [(8, "12"), (5, "345"), (1, "12345")])
def test_second_run_in_reverse_order_with_other_numbers_of_workers(
    workers: int, phases: str, shared_cluster: ComposeCluster
) -> None:
    """In another order, on a cluster that ran everything before."""
    some = [lesson for lesson in reversed(ALL) if lesson.name[1] in phases]
    shared_cluster.make("scale", f"N={workers}")
    try:
        outcomes = [run_lesson(lesson, shared_cluster.environment) for lesson in some]
    finally:
        shared_cluster.make("scale", "N=3")
    for outcome in outcomes:
        assert_passed(outcome)
        assert outcome.stdout.splitlines()[1] == (
            "1 worker on 1 host, 2 threads"
            if workers == 1
            else f"{workers} workers on {workers} hosts, {2 * workers} threads"
        )


@compose
def test_0101_connect_names_the_containers(shared_cluster: ComposeCluster) -> None:
    """The host names that the lesson prints are those of the worker containers."""
    outcome = passes_on_the_cluster("0101", shared_cluster)
    with shared_cluster.client() as client:
        hosts = set(client.run(os.uname).values())
    assert len(hosts) == 3
    for host in hosts:
        assert host.nodename in outcome.stdout


@compose
def test_0202_bytes_counted_by_another_meter(shared_cluster: ComposeCluster) -> None:
    """The whole lesson through a second relay, which counts what it sends in all."""
    meter = WireMeter("127.0.0.1", shared_cluster.scheduler_port)
    try:
        address = f"tcp://127.0.0.1:{meter.local_port}"
        passes_on_the_cluster("0202", shared_cluster, DASK_SCHEDULER_ADDRESS=address)
        array = 4_000 * 160 * 8
        # Seven runs of each way (12 + 1 + 1 + 0 arrays), 12 in the loop, 1 held,
        # 2 used once, 3 broadcast, and the table of 12.8 MB in the graph.
        expected = (7 * 14 + 12 + 1 + 2 + 3) * array + 12_800_000
        assert expected <= meter.sent < 1.02 * expected
    finally:
        meter.close()


def test_transcripts_are_those_of_the_lessons() -> None:
    for kind in KINDS:
        folder = transcript_path("x", kind).parent
        assert sorted(path.stem for path in folder.iterdir()) == [
            lesson.name for lesson in ALL
        ]


@pytest.mark.parametrize("kind", KINDS)
@each_lesson
def test_transcript_says_where_it_comes_from(lesson: LessonFile, kind: Kind) -> None:
    text = transcript_path(lesson.name, kind).read_text(encoding="utf-8")
    header, _, body = text.partition("\n\n")
    fields = dict(line[2:].split(": ", 1) for line in header.splitlines())
    assert fields["lesson"] == lesson.name
    assert fields["session"] == kind
    assert set(fields) == {"lesson", "session", "date", "versions", "machine"}
    assert "\nFAIL " not in f"\n{body}"


def test_readme_lists_the_lessons() -> None:
    from dask_cluster_lab.commands.catalogue import readme_with_lessons

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == readme_with_lessons(readme), "run 'make readme'"


@pytest.mark.parametrize("lesson", ["zzz", "", "01", "0101_connect.pyy"])
def test_wrong_example_lists_the_lessons(lesson: str) -> None:
    done = subprocess.run(
        ["make", "run", f"EXAMPLE={lesson}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "0101_connect" in done.stderr
