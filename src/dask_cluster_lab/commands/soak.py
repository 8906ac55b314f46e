"""Does a lesson ever fail by chance? Run it many times while all cores are busy."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from dask_cluster_lab.commands.catalogue import find_lesson
from dask_cluster_lab.commands.runner import run_lesson
from dask_cluster_lab.commands.transcripts import difference
from dask_cluster_lab.errors import ChecksFailed


@contextlib.contextmanager
def busy_cores() -> Iterator[list[subprocess.Popen[bytes]]]:
    """One process for each core that does nothing but compute."""
    # Each looks for its parent, which may be killed and have no time to end it.
    burn = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100_000))"
    processes = [  # in sessions of their own, where Ctrl-C does not reach them
        subprocess.Popen([sys.executable, "-c", burn], start_new_session=True)
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def soak(example: str, runs: int) -> None:
    """Run a lesson ``runs`` times on busy cores; a failure or other output counts."""
    lesson = find_lesson(example)
    first, bad = "", 0
    with busy_cores():
        for number in range(1, runs + 1):
            outcome = run_lesson(lesson)
            first = first or outcome.stdout
            changed = difference(first, outcome.stdout)
            failed = outcome.status != 0 or bool(outcome.stderr) or bool(changed)
            bad += failed
            print(
                f"{lesson.name} run {number:>2}: {'FAIL' if failed else 'ok'} "
                f"{outcome.seconds:5.1f} s",
                flush=True,
            )
            if failed:
                print(outcome.stdout if outcome.status else changed, outcome.stderr)
    print(f"{lesson.name}: {bad} of {runs} runs on busy cores failed")
    if bad:
        raise ChecksFailed(f"{lesson.name} failed in {bad} of {runs} runs.")
