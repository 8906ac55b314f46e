"""The short code on the pages of the site runs, and does what the pages say."""

import gc
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from compose_cluster import ROOT
from distributed import Client, Future, LocalCluster
from support import eventually

DOCS = ROOT / "docs"
SNIPPETS = sorted((DOCS / "snippets").glob("*.py"))
SHOWN = re.compile(
    r"\{literalinclude\} /snippets/(\w+\.py)\n"
    r':start-after: "# (\[\w+\])"\n:end-before: "# \["\n'
)


@pytest.fixture(scope="module")
def threads() -> Iterator[str]:
    """Address of a cluster in this process, as the fallback is."""
    with LocalCluster(
        processes=False,
        n_workers=2,
        threads_per_worker=1,
        memory_limit="1GiB",
        dashboard_address="127.0.0.1:0",
    ) as running:
        yield running.scheduler_address


@pytest.mark.parametrize("path", SNIPPETS, ids=lambda path: path.stem)
def test_snippets_run(path: Path, threads: str) -> None:
    with Client(threads, timeout=30) as client:
        runpy.run_path(str(path))["main"](client)


def test_an_argument_that_a_task_changes_over_tcp(cluster: LocalCluster) -> None:
    path = DOCS / "snippets" / "localcluster.py"
    with Client(cluster.scheduler_address, timeout=30) as client:
        runpy.run_path(str(path))["main"](client)


def test_every_snippet_is_shown_and_nothing_else() -> None:
    there = {
        (path.name, name)
        for path in SNIPPETS
        for name in re.findall(r"# (\[\w+\])$", path.read_text("utf-8"), re.MULTILINE)
        if name != "[end]"
    }
    text = "".join(page.read_text("utf-8") for page in DOCS.rglob("*.md"))
    assert set(SHOWN.findall(text)) == there
    included = re.findall(r"^```\{literalinclude\} /snippets/", text, re.MULTILINE)
    assert len(SHOWN.findall(text)) == len(included)


runs: list[int] = []


def fails(number: int) -> None:
    runs.append(number)
    raise OSError("a read error")


def test_a_failure_that_was_raised_is_held_until_release(threads: str) -> None:
    """What the page of 0103 says: letting go of the names is not enough."""
    runs.clear()  # the workers are threads of this process

    def submit(client: Client) -> Future[None]:
        future = client.submit(fails, 1)
        with pytest.raises(OSError, match="a read error"):
            future.result(timeout=30)
        return future

    def forgotten() -> bool:
        return client.run_on_scheduler(lambda dask_scheduler: not dask_scheduler.tasks)

    with Client(threads, timeout=30) as client:
        first, second = submit(client), submit(client)
        assert runs == [1], "the second is the first"
        first.release()
        second.release()
        eventually(forgotten, "the task is forgotten", 30)
        third = submit(client)
        assert runs == [1, 1]
        del first, second, third
        gc.collect()
        submit(client).release()
        assert runs == [1, 1], "it is held"
