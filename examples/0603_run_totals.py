"""Where did the tiles of dead workers go?

What:  surveys 400 tiles, takes workers away midway, once by killing and once by
       retiring, and counts what was done in five ways; then retries, computes again,
       gathers and scatters, and writes the run's manifest.
Why:   a number that lives on a worker dies with it. A sum over workers, and a count of
       executions, are both wrong after a death, one too low and one too high.
Needs: any cluster whose workers have this package; to take workers away, the Compose
       cluster and its docker command. Adds three workers, which are gone at the end.
       Leaves the manifest in reports/, the same one each time.
Run:   make run EXAMPLE=0603_run_totals
"""

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from distributed import Future, get_worker, wait

from dask_cluster_lab import Lesson, connect, interleave, run
from dask_cluster_lab.containers import add_worker, remove
from dask_cluster_lab.logs import captured_log
from dask_cluster_lab.metrics.labels import OUTCOMES
from dask_cluster_lab.metrics.manifest import write_manifest
from dask_cluster_lab.metrics.prometheus import value_here
from dask_cluster_lab.metrics.survey import (
    TILES,
    Tile,
    expected,
    published,
    survey_tile,
)
from dask_cluster_lab.metrics.totals import RunReader, RunTotals, Totals, run_totals
from dask_cluster_lab.metrics.work import WorkerMetrics, worker_metrics
from dask_cluster_lab.reports import reports_folder

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

EXTRA = 3  # workers that are added and go away again
SECONDS = 0.05  # of work a tile
MIDWAY = TILES // 4
STAGE = "ingest"  # every tile goes through it, whatever becomes of it later
AGAIN = 5  # tiles that are computed a second time, and as many that are retried


def retried_tile(number: int) -> Tile:
    """A tile that its worker can read at the second try only."""
    tried = vars(get_worker()).setdefault("tried_tiles", set())
    first = number not in tried
    tried.add(number)
    return survey_tile(number, unreadable=first)


def forget_tries(dask_worker: "Worker") -> None:
    """Take away what ``retried_tile`` left on a worker."""
    vars(dask_worker).pop("tried_tiles", None)


def memory_transitions(prefix: str, dask_scheduler: "Scheduler") -> int:
    """Dask's own count: how often a task with this prefix came to memory."""
    known = dask_scheduler.task_prefixes.get(prefix)
    return 0 if known is None else int(known.state_counts["memory"])


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session) as lesson,
        contextlib.ExitStack() as undo,
    ):
        client = session.client
        undo.enter_context(captured_log())  # of tiles that fail on purpose
        shared = session.kind == "compose"
        store = Path("/data" if shared else tempfile.gettempdir()) / uuid.uuid4().hex
        everyone = [worker.address for worker in session.workers()]
        undo.callback(client.run, shutil.rmtree, str(store), True, workers=everyone[:1])
        undo.enter_context(worker_metrics(client))
        truth = expected()
        ways: dict[str, dict[str, float]] = {}

        def survey(folder: Path) -> list[Future[Tile]]:
            return client.map(
                survey_tile, range(TILES), folder=str(folder), seconds=SECONDS,
                pure=False,
            )  # fmt: skip

        def done_on_each(reader: RunReader, those: list[str]) -> Callable[[], bool]:
            """Whether a quarter is done, and something by each of those workers."""

            def there() -> bool:
                totals = reader.read()
                return totals.tasks >= MIDWAY and set(those) <= set(totals.by_worker)

            return there

        def count(how: str, totals: Totals, before: int, folder: Path) -> None:
            """Five ways of counting the tiles of one run."""
            ways[how] = {
                "sum over live workers": sum(live(lesson).values()),
                "Dask's transitions to memory": client.run_on_scheduler(
                    memory_transitions, "survey_tile"
                )
                - before,
                "executions reported": totals.executions,
                "distinct units": totals.stage(STAGE),
                "files published": client.submit(
                    published, str(folder), pure=False
                ).result(),
            }

        killed, retired = Totals(""), Totals("")
        gone: list[str] = []
        left: dict[str, float] = {}
        if lesson.can("docker"):
            lesson.section(f"{EXTRA} workers more, killed midway")
            for _ in range(EXTRA):
                undo.callback(remove, add_worker(session))
            lesson.until_workers(len(everyone) + EXTRA)
            extra = sorted({w.address for w in session.workers()} - set(everyone))
            before = client.run_on_scheduler(memory_transitions, "survey_tile")
            with run_totals(client, "0603-killed") as reader:
                tiles = survey(store / "killed")
                lesson.until(done_on_each(reader, extra), "some of the work", 60)
                for victim in extra:
                    with contextlib.suppress(OSError):  # it ends with the worker
                        client.run(os._exit, 1, workers=[victim])
                wait(tiles)
                killed = reader.read()
                count("killed", killed, before, store / "killed")
                del tiles
            print(f"{len(extra)} of {len(everyone) + EXTRA} workers were killed; their")
            print("nannies start them again, and each counts from zero.")

            lesson.section(f"{EXTRA} workers, told to leave midway")
            lesson.until_workers(len(everyone) + EXTRA, without=extra)
            reset(lesson)
            gone = sorted({w.address for w in session.workers()} - set(everyone))
            before = client.run_on_scheduler(memory_transitions, "survey_tile")
            with run_totals(client, "survey-0603") as reader:
                tiles = survey(store / "retired")
                lesson.until(done_on_each(reader, gone), "some of the work", 60)
                client.retire_workers(gone)
                wait(tiles)
                lesson.until_workers(len(everyone))
                retired = reader.read()
                left = live(lesson)
                count("retired", retired, before, store / "retired")
                del tiles
            print(f"{len(gone)} of {len(everyone) + EXTRA} workers retired, with their")
            print("results moved to the others, and their counters gone.")
            lesson.table(
                ["counted as", *(f"tiles when {how}" for how in ways)],
                [
                    (way, *(f"~{of[way]:.0f}" for of in ways.values()))
                    for way in next(iter(ways.values()))
                ],
            )
        else:
            lesson.section("Workers that go midway")
        lesson.check(
            "after kills, executions are too many: what was lost is computed again",
            killed.executions > TILES,
            f"~{killed.executions} executions of {TILES} tiles",
            needs="docker",
        )
        of_live = sum(retired.by_worker.get(address, 0) for address in left)
        lost = sum(retired.by_worker.get(address, 0) for address in gone)
        lesson.check(
            "after retiring, the sum over workers lacks just what the gone ones did",
            0 < lost == TILES - sum(left.values()) and of_live == sum(left.values()),
            f"~{sum(left.values()):.0f} and ~{lost} make {TILES}",
            needs="docker",
        )
        lesson.check(
            f"distinct units are {TILES} of {TILES} both times",
            killed.stage(STAGE) == retired.stage(STAGE) == TILES,
            f"{killed.stage(STAGE)} and {retired.stage(STAGE)}",
            needs="docker",
        )
        files = [of["files published"] for of in ways.values()]
        passed = [t.units.get(("publish", "ok")) for t in (killed, retired)]
        lesson.check(
            "an independent count agrees: a file for each tile that passed",
            files == passed == [truth["ok"]] * 2,
            f"{' and '.join(f'{n:.0f}' for n in files)} files, "
            f"{truth['ok']} tiles pass",
            needs="docker",
        )

        lesson.section("Retries, computing again, gathering, scattering")
        with run_totals(client, "survey-0603") as reader:
            tiles = client.map(survey_tile, range(TILES), pure=False)
            wait(tiles)
            first = reader.read()
            client.register_plugin(RunTotals("survey-0603"))
            registered = reader.read()
            undo.callback(client.run, forget_tries)
            retried = client.map(
                retried_tile, range(TILES, TILES + AGAIN), workers=everyone[:1],
                retries=1, pure=False,
            )  # fmt: skip
            wait(retried)
            retries = reader.read()
            again = client.map(survey_tile, range(AGAIN), pure=False)
            wait(again)
            computed_again = reader.read()
            client.scatter(client.gather(tiles), hash=False)
            scattered = reader.read()
            broken = client.submit(
                survey_tile, TILES + AGAIN, unreadable=True, pure=False
            )
            wait(broken)
            totals = reader.read()
            times = interleave(
                {
                    "client.run, all workers": lambda: client.run(value_here, "none"),
                    "the scheduler's totals": reader.read,
                    "a counter, here": lambda: totals.stage(STAGE),
                },
                rounds=9,
            )
            del tiles, again, retried, broken
        lesson.table(
            ["after", "executions", "distinct units"],
            [
                (f"{TILES} tiles", first.executions, first.stage(STAGE)),
                (
                    f"{AGAIN} more, each at the second try",
                    retries.executions,
                    retries.stage(STAGE),
                ),
                (
                    f"{AGAIN} of the first again",
                    computed_again.executions,
                    computed_again.stage(STAGE),
                ),
                (
                    f"{TILES} results gathered and scattered",
                    scattered.executions,
                    scattered.stage(STAGE),
                ),
                ("1 that fails for good", totals.executions, totals.stage(STAGE)),
            ],
        )
        lesson.check(
            "registering the plugin again keeps what it has",
            registered.executions == first.executions == TILES,
            f"{registered.executions} before and after",
        )
        lesson.check(
            "a retried tile is one unit, with the outcome of its last try",
            retries.stage(STAGE) - first.stage(STAGE) == AGAIN and retries.erred == 0,
            f"{retries.stage(STAGE) - first.stage(STAGE)} units more for {AGAIN} "
            f"tiles, {retries.erred} failed tasks",
        )
        lesson.check(
            "a tile that is computed again is an execution more and no unit more",
            computed_again.executions - retries.executions == AGAIN
            and computed_again.stage(STAGE) == retries.stage(STAGE),
            f"{computed_again.executions - retries.executions} executions, "
            f"{computed_again.stage(STAGE) - retries.stage(STAGE)} units",
        )
        lesson.check(
            "what passes through memory without being computed counts for nothing",
            scattered.executions == computed_again.executions,
            f"{TILES} results scattered, "
            f"{scattered.executions - computed_again.executions} executions",
        )
        lesson.check(
            "a task that fails for good is a failed task and no unit",
            totals.erred - scattered.erred == 1
            and totals.stage(STAGE) == scattered.stage(STAGE),
            f"{totals.erred} failed, {totals.stage(STAGE)} units before and after",
        )

        lesson.section("The manifest")
        path = write_manifest(totals, reports_folder(__file__))
        written = json.loads(path.read_text(encoding="utf-8"))
        lesson.table(
            ["stage", *OUTCOMES, "rows in", "rows out"],
            [(stage, *counts.values()) for stage, counts in written["stages"].items()],
        )
        quantiles = written["residual metres"]
        print(f"reports/{path.name}; residuals in metres:", end=" ")
        print(", ".join(f"{name} {value:.4f}" for name, value in quantiles.items()))
        gate = written["stages"]["validate"]
        failed = written["tasks"]["failed"]
        lesson.check(
            "the file has every tile, says that the count is exact, and what failed",
            gate["ok"] + gate["rejected"] == TILES + AGAIN
            and written["exact"]
            and failed == 1,
            f"{gate['ok']} passed and {gate['rejected']} rejected, of {TILES + AGAIN}; "
            f"{failed} task failed",
        )

        lesson.section("What reading costs")
        answers = client.run(value_here, "none")
        lesson.table(
            ["read by", "median time"],
            [(name, f"{t.median * 1e3:.3f} ms") for name, t in times.items()],
        )
        print("Medians of 9 readings in turns, while the run was counted.")
        lesson.check(
            "asking all workers waits for an answer of each; the scheduler is one",
            set(answers) == {worker.address for worker in session.workers()},
            f"{len(answers)} answers of {len(session.workers())} workers",
        )


def live(lesson: Lesson) -> dict[str, float]:
    """Tiles that each live worker counts, by its own metrics; some may just come up."""
    found: dict[str, float] = defaultdict(float)
    for outcome in OUTCOMES:
        labels = {"stage": STAGE, "outcome": outcome}
        counts = lesson.session.client.run(value_here, "survey_units_total", labels)
        for address, value in counts.items():
            found[address] += value or 0
    return found


def reset(lesson: Lesson) -> None:
    """Let all workers count from zero: a plugin takes its metrics along."""
    lesson.session.client.unregister_worker_plugin(WorkerMetrics.name)
    lesson.session.client.register_plugin(WorkerMetrics())


if __name__ == "__main__":
    run(main)
