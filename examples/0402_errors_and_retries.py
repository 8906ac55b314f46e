"""How does an exception come home, and what does a retry remember?

What:  lets tasks fail on the workers: reads what arrives here, repeats them with
       retries= while four places keep the count, and follows what depends on them.
Why:   the error is raised on another machine. Its type, its attributes and the line
       are worth having here, and a retry helps only if the next attempt differs.
Needs: any cluster, for about four seconds; writes one small file to the shared volume
       of the Compose cluster; leaves nothing behind.
Run:   make run EXAMPLE=0402_errors_and_retries
"""

import contextlib
import fcntl
import linecache
import os
import sys
import threading
import time
import traceback
import types
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import Future, get_worker, wait

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.logs import captured_log

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

RETRIES = 2
NEEDED = RETRIES + 1  # the attempt that works
BUG_RETRIES = 3
MOMENT = 0.5  # seconds
NOWHERE = "tcp://127.0.0.1:1"  # no worker is there, so what is pinned to it never runs
DRIVER = "echo_driver"  # a module that exists on workers only

attempts_so_far = 0


class ShoalError(Exception):
    """Too shallow: carries the tile, and the process that found it."""

    def __init__(self, text: str, tile: int) -> None:
        super().__init__(text)
        self.tile = tile
        self.pid = os.getpid()


def depth_of(tile: int, survey: str = "", seconds: float = 0) -> float:
    """Made depth of a tile, metres; negative tiles are shoals. ``survey`` is a name."""
    time.sleep(seconds)
    return sound(tile)


def sound(tile: int) -> float:
    """What depth_of() calls; the frame in which it fails."""
    if tile < 0:
        raise ShoalError(f"tile {tile} is a shoal", tile)
    return 10.0 + tile


def in_fathoms(depth: float) -> float:
    """A depth of ``depth`` metres."""
    return depth / 1.8288


def fail_with_lock() -> None:
    """Raise an error that holds what cannot be pickled."""
    error = ShoalError("tile -1 is a shoal", -1)
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    raise error


def fail_with_driver() -> None:
    """Raise an error of a class that can be imported on this worker only."""
    module = sys.modules[DRIVER] = types.ModuleType(DRIVER)
    exec("class EchoError(Exception): tile = -1", vars(module))
    raise module.EchoError("no echo from tile -1")


def forget_driver() -> None:
    """Remove that module again."""
    sys.modules.pop(DRIVER, None)


def survive(attempt: int) -> int:
    """Fail as a connection does, until the attempt that is needed."""
    if attempt < NEEDED:
        raise ConnectionError(f"attempt {attempt} of {NEEDED}")
    return attempt


def count_in_global() -> int:
    """Count attempts in a global variable of this file."""
    global attempts_so_far
    attempts_so_far += 1
    return survive(attempts_so_far)


def count_on_worker() -> int:
    """Count them on the object that is this worker."""
    worker: Any = get_worker()
    worker.attempts = getattr(worker, "attempts", 0) + 1
    wait_for_company()
    return survive(worker.attempts)


def take_count(dask_worker: "Worker") -> int:
    """What count_on_worker() left there, which this removes."""
    return vars(dask_worker).pop("attempts", 0)


def count_in_file(path: str) -> int:
    """Count them in a file, the worker's address on a line each, under a lock."""
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        file.write(f"{get_worker().address}\n")
        file.seek(0)
        attempt = len(file.readlines())
    wait_for_company()
    return survive(attempt)


def lines_of(path: str) -> list[str]:
    """What is written there."""
    return Path(path).read_text().splitlines()


def wait_for_company() -> None:
    """Return once a keep_busy() has been sent to the worker that runs this."""
    worker, deadline = get_worker(), time.monotonic() + 20
    company = f"keep_busy-{worker.get_current_task()}"
    while time.monotonic() < deadline:
        if any(str(key).startswith(company) for key in list(worker.state.tasks)):
            return
        time.sleep(0.01)


def keep_busy() -> None:
    """Occupy a worker until the attempt beside it is over."""
    state, deadline = get_worker().state, time.monotonic() + 20
    while time.monotonic() < deadline:
        running = [t.key for t in list(state.tasks.values()) if t.state == "executing"]
        if all(str(key).startswith("keep_busy") for key in running):
            return
        time.sleep(0.01)


def times_run(key: str, dask_scheduler: "Scheduler") -> int:
    """How often the scheduler has sent a task to a worker, from its transition log."""
    return sum(step[2] == "processing" for step in dask_scheduler.story(key))


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session) as lesson,
        contextlib.ExitStack() as undo,
    ):
        client = session.client
        # What Dask logs in this process: on the fallback, that is also its workers.
        log = undo.enter_context(captured_log())

        def runs_of(future: Future[Any]) -> int:
            return client.run_on_scheduler(times_run, future.key)

        lesson.section("The status of a future, without asking in a loop")
        good = client.submit(depth_of, 7, pure=False)
        bad = client.submit(depth_of, -1, pure=False)
        stuck = client.submit(depth_of, 8, workers=[NOWHERE], pure=False)
        told: list[str] = []
        for future in (good, bad, stuck):
            future.add_done_callback(lambda future: told.append(future.status))
        wait([good, bad], timeout=30)
        with contextlib.suppress(TimeoutError):
            wait(stuck, timeout=0.2)
        before = stuck.status
        stuck.cancel()
        lesson.until(lambda: len(told) == 3, "the callbacks")
        lesson.check(
            "wait() returns when all are done, failed or not; a callback learns how",
            sorted(told) == ["cancelled", "error", "finished"],
            f"callbacks were told {', '.join(sorted(told))}",
        )
        lesson.check(
            "one that no worker may run is pending, until it is cancelled",
            (before, stuck.status) == ("pending", "cancelled"),
            f"{before}, then {stuck.status}",
        )

        lesson.section("What arrives of an exception")
        error = bad.exception()
        assert isinstance(error, ShoalError)
        *outer, where = traceback.extract_tb(bad.traceback())
        source = linecache.getline(__file__, where.lineno or 0).strip()
        print(f"{type(error).__name__}: {error}")
        print(f"  line {where.lineno} of this file, {where.name}: {source}")
        lesson.check(
            "the traceback has the worker's frames, and the last one raised it",
            where.name == "sound" and source.startswith("raise ShoalError"),
            f"{' > '.join(frame.name for frame in [*outer, where])}",
        )
        lesson.check(
            "type and attributes survive",
            type(error) is ShoalError and error.tile == -1,
            f"{type(error).__name__} with tile {error.tile}",
        )
        locked = client.submit(fail_with_lock, pure=False).exception()
        lesson.check(
            "one that cannot be pickled, for it holds a lock, arrives as its text",
            type(locked) is Exception and locked.args == (repr(error),),
            f"{locked!r}",
        )
        undo.callback(client.run, forget_driver)
        log.clear()
        unknown = client.submit(fail_with_driver, pure=False).exception()
        pickled = unknown.args[0] if unknown else None
        reasons = {str(record.exc_info[1]) for record in log if record.exc_info}
        reason = min((text for text in reasons if DRIVER in text), default="no reason")
        lesson.check(
            "one of a class that is unknown here arrives as its pickle; the client's "
            "own log has the reason",
            type(unknown) is Exception
            and isinstance(pickled, bytes)
            and reason.startswith("No module named"),
            f"{type(unknown).__name__} of {type(pickled).__name__}; {reason}",
            needs="processes",
        )

        lesson.section(f"Fails {RETRIES} times, then works: retries={RETRIES}")
        print("Each attempt counts itself. What differs is where the count is kept.")

        def attempts(
            function: Callable[..., int], *arguments: Any, **pin: Any
        ) -> Future[int]:
            """Submit it; where an attempt ran is busy when the next one is placed."""
            future = client.submit(
                function, *arguments, retries=RETRIES, pure=False, **pin
            )
            company: dict[str, Future[None]] = {}

            def ended() -> bool:
                for address, keys in client.processing().items():
                    if future.key in keys and address not in company:
                        name = f"keep_busy-{future.key}-{len(company)}"
                        company[address] = client.submit(
                            keep_busy, key=name, workers=[address]
                        )
                return future.done()

            lesson.until(ended, "all attempts", seconds=60)
            return future

        one = session.workers()[0].address
        kept = {"a global variable": (in_global := attempts(count_in_global))}
        undo.callback(client.run, take_count)
        kept["the worker object"] = on_worker = attempts(count_on_worker)
        spread = [count for count in client.run(take_count).values() if count]
        pinned = attempts(count_on_worker, workers=[one])
        kept["the worker object, the task pinned"] = pinned
        together = client.run(take_count)[one]
        in_file: Future[int] | None = None
        places = [""]
        if lesson.can("containers"):
            path = f"/data/attempts-{uuid.uuid4().hex}"
            undo.callback(client.run, os.remove, path, workers=[one])
            kept["a file that all workers share"] = in_file = attempts(
                count_in_file, path
            )
            places = client.run(lines_of, path, workers=[one])[one]
        runs = {where: runs_of(future) for where, future in kept.items()}
        lesson.table(
            ["where the count is", "runs", "the last"],
            [(where, runs[where], future.status) for where, future in kept.items()],
        )
        lesson.check(
            "a global is new in every attempt: the function travels with a copy of it",
            str(in_global.exception()) == f"attempt 1 of {NEEDED}"
            and runs["a global variable"] == NEEDED,
            f"run {runs['a global variable']} says {in_global.exception()}",
            needs="processes",
        )
        lesson.check(
            "on the worker object it is split up: an attempt goes to an idle worker",
            on_worker.status == "error" and max(spread) < sum(spread) == NEEDED,
            f"{sum(spread)} runs, ~{max(spread)} at most on one worker",
            needs="two workers",
        )
        lesson.check(
            "unless the task is pinned to one worker",
            pinned.status == "finished" and together == NEEDED,
            f"{together} runs on that worker, {pinned.status}",
        )
        done = in_file is not None and in_file.status == "finished"
        worked = in_file.result() if in_file and done else None
        hosts = len(set(places))
        lesson.check(
            "outside the workers it is safe, wherever the next attempt runs",
            worked == NEEDED and (hosts > 1 or len(session.workers()) == 1),
            f"run {worked} worked; the runs were on ~{hosts} workers",
            needs="containers",
        )

        lesson.section("A bug stays a bug")
        survey = uuid.uuid4().hex  # a name that no other run of this lesson has used
        # It takes a moment to fail: retry() forgets an error that is there before the
        # scheduler has answered.
        call = (depth_of, -1, survey, MOMENT)
        bug = client.submit(*call, retries=BUG_RETRIES)
        wait(bug, timeout=30)
        bug_runs = runs_of(bug)
        lesson.check(
            f"with retries={BUG_RETRIES} it runs {BUG_RETRIES + 1} times, and fails",
            bug_runs == BUG_RETRIES + 1 and bug.status == "error",
            f"{bug_runs} runs in the scheduler's transition log, {bug.status}",
        )
        logs = client.get_worker_logs().values()
        logged = sum(bug.key in text for log in logs for _, text in log)
        lesson.check(
            "the last error comes home; the workers' logs have all of them",
            logged == bug_runs,
            f"{logged} errors in their logs",
            needs="processes",
        )
        again = client.submit(*call, retries=BUG_RETRIES)
        wait(again, timeout=30)
        more = runs_of(again) - bug_runs
        lesson.check(
            "submitting the same call again returns the old error; nothing runs",
            again.key == bug.key and again.status == "error" and more == 0,
            f"{again.status} after {more} more runs",
        )
        again.retry()
        with contextlib.suppress(TimeoutError):
            wait(again, timeout=30)
        more = runs_of(again) - bug_runs
        lesson.check(
            "the future's own retry() runs it, once: its retries are used up",
            again.status == "error" and more == 1,
            f"{again.status} after {more} more run",
        )

        lesson.section("One failure in a batch, and what depends on it")
        tiles = [1, 2, -3, 4, 5, 6]
        batch = client.map(depth_of, tiles, pure=False)
        converted = client.map(in_fathoms, batch, pure=False)
        wait(converted, timeout=30)
        ends = Counter(future.status for future in batch)
        lesson.check(
            "the others finish",
            ends == {"finished": len(tiles) - 1, "error": 1},
            ", ".join(f"{n} {status}" for status, n in sorted(ends.items())),
        )
        raised: object = None
        try:
            client.gather(batch)
        except ShoalError as error:
            raised = error
        lesson.check(
            "gather() raises the error and returns none of the results",
            raised is not None,
            f"{raised!r}",
        )
        kept = client.gather(batch, errors="skip")
        failed = [t for t, f in zip(tiles, batch, strict=True) if f.status == "error"]
        lesson.check(
            "errors='skip' drops it silently; only its status says which is missing",
            len(kept) == len(tiles) - 1 and failed == [-3],
            f"{len(kept)} results of {len(tiles)} tasks, without tile {failed[0]}",
        )
        never = converted[tiles.index(-3)]
        dependents = [runs_of(future) for future in converted]
        lesson.check(
            "what depends on it has the same error, and never runs",
            repr(never.exception()) == repr(raised)
            and dependents == [int(tile > 0) for tile in tiles],
            f"{never.exception()!r} after {runs_of(never)} runs; "
            f"{sum(dependents)} siblings ran",
        )


if __name__ == "__main__":
    run(main)
