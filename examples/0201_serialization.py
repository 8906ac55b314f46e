"""What does an argument cost?

What:  sends nothing, 8 MB, a million numbers and a closure to the workers while a meter
       on the wire counts the bytes; then tries what cannot be sent at all.
Why:   an argument is not handed over. It is written down, sent and built up again, and
       that can cost far more than the work itself.
Needs: any cluster; runs some 1,300 tiny tasks; leaves nothing behind.
Run:   make run EXAMPLE=0201_serialization
"""

import math
import os
import pickle
import statistics
import tempfile
import threading
import time
import timeit
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import cloudpickle
import numpy as np
from dask.sizeof import sizeof
from distributed import wait
from distributed.protocol import serialize

from dask_cluster_lab import Lesson, connect, interleave, run
from dask_cluster_lab.lesson import say
from dask_cluster_lab.logs import captured_log

SHAPE = (4_000, 250)  # rows x columns of float64: 8 MB
SEED = 0


def same(value: Any) -> Any:
    """Give back ``value``: as little work as a task can do."""
    return value


def make_survey(rows: int, columns: int, seed: int) -> np.ndarray:
    """Made depths in metres (rows x columns); the same wherever it is called."""
    return np.random.default_rng(seed).random((rows, columns))


def mean_depth(depths: Any) -> float:
    """Mean of an array or a list of depths, metres."""
    return float(np.mean(depths))


def mean_depth_of_made(rows: int, columns: int, seed: int) -> float:
    """The same, of an array that is made where the task runs."""
    return mean_depth(make_survey(rows, columns, seed))


def mean_depth_of_file(path: str) -> float:
    """The same, of an array in a ``.npy`` file."""
    return mean_depth(np.load(path))


def column_reader(survey: np.ndarray) -> Callable[[int], float]:
    """Make a function that knows ``survey``, although no argument of it says so."""

    def column_mean(column: int) -> float:
        return float(survey[:, column].mean())

    return column_mean


def make(what: str) -> Any:
    """Make one of the things that belong to the process that made them."""
    if what == "a lock":
        return threading.Lock()
    if what == "a generator":
        return (depth for depth in [1.5, 2.5])
    return open(os.devnull, "rb")


def read_text(file: TextIO) -> tuple[str, int]:
    """Type of an open text file as it arrived, and how many characters it holds."""
    return type(file).__name__, len(file.read())


def attempt(function: Callable[..., Any], *args: Any) -> tuple[str, str]:
    """What the error of a call says at first sight, and what its innermost cause says.

    An error that was raised from another one keeps that as its cause, or as its
    context. An error from a worker carries all of that as text: then the last line is
    the innermost. Two empty texts if there was no error.
    """
    innermost: BaseException | None = None
    first = last = ""
    try:
        function(*args)
    except TypeError as error:
        first, innermost = str(error.args[0]).partition("\n")[0], error
    while innermost:
        text = "".join(traceback.format_exception_only(innermost))
        last = text.strip().splitlines()[-1]
        innermost = innermost.__cause__ or innermost.__context__
    return first, last


def main() -> None:
    """Tell the story."""
    with connect(meter_wire=True) as session, Lesson(session) as lesson:
        client, wire = session.client, session.wire
        survey = make_survey(*SHAPE, SEED)
        size = survey.nbytes

        lesson.section("The floor: a task that does nothing")
        client.gather(client.map(same, range(50), pure=False))  # a warm-up
        trips, shares = [], []
        with wire.count() as one_by_one:
            for i in range(250):
                start = time.perf_counter()
                client.submit(same, i, pure=False).result()
                trips.append(time.perf_counter() - start)
        with wire.count() as in_maps:
            for _ in range(5):
                start = time.perf_counter()
                client.gather(client.map(same, range(200), pure=False))
                shares.append((time.perf_counter() - start) / 200)
        floor, share = statistics.median(trips), statistics.median(shares)
        lesson.table(
            ["trivial tasks", "median, a task", "rate", "bytes up", "bytes down"],
            [
                (
                    name,
                    milliseconds(seconds),
                    f"{1 / seconds:.0f} tasks/s",
                    about(traffic.sent / count),
                    about(traffic.received / count),
                )
                for name, seconds, traffic, count in [
                    ("250 one after the other", floor, one_by_one, 250),
                    ("5 maps of 200", share, in_maps, 1_000),
                ]
            ],
        )
        say(
            f"So this scheduler took {1 / share:.0f} tasks/s from one client. A task "
            f"shorter than {milliseconds(share)} takes longer to send than to run."
        )
        here = min(timeit.repeat(lambda: same(0), number=1000, repeat=5)) / 1000
        lesson.check(
            "the round trip is all overhead",
            floor > 100 * here,
            f"{milliseconds(floor)} for a call that takes {here * 1e9:.0f} ns here",
        )
        pickled = len(pickle.dumps(49))
        lesson.check(
            "the message outweighs the argument",
            one_by_one.sent / 250 > 100 * pickled,
            f"{about(one_by_one.sent / 250)} bytes up for {pickled} bytes of integer",
            needs="wire",
        )
        lesson.check(
            "the tasks of one map share a message",
            in_maps.sent / 1_000 < one_by_one.sent / 250 / 2,
            f"{about(in_maps.sent / 1_000)} bytes up for each of 200",
            needs="wire",
        )

        lesson.section(f"{size / 1e6:.2f} MB, or the three integers behind it")
        ways: dict[str, Callable[[], float]] = {
            "the array": lambda: client.submit(mean_depth, survey, pure=False).result(),
            "three integers": lambda: client.submit(
                mean_depth_of_made, *SHAPE, SEED, pure=False
            ).result(),
        }
        sent = {}
        for name, send in ways.items():
            with wire.count() as traffic:
                send()
            sent[name] = traffic.sent
        timings = interleave(ways, rounds=5)
        lesson.table(
            ["the argument", "bytes up", "median of five", "mean depth, m"],
            [
                (
                    name,
                    about(sent[name]),
                    milliseconds(timing.median),
                    f"{timing.result:.6f}",
                )
                for name, timing in timings.items()
            ],
        )
        lesson.check(
            "an array as an argument is sent in full",
            1 <= sent["the array"] / size < 1.01,
            f"{sent['the array'] / size:.2f} times its size",
            needs="wire",
        )
        lesson.check(
            "the recipe costs less than a hundredth of that",
            sent["three integers"] < sent["the array"] / 100,
            f"{about(sent['three integers'])} bytes",
            needs="wire",
        )
        lesson.check(
            "both give the same mean, to 1e-12",
            math.isclose(
                *(t.result for t in timings.values()), rel_tol=0, abs_tol=1e-12
            ),
            " and ".join(f"{t.result:.6f}" for t in timings.values()),
        )

        lesson.section("A million numbers: as a list, as an array")
        kinds: dict[str, Any] = {"list": survey.ravel().tolist(), "array": survey}
        payload = {}
        for name, depths in kinds.items():
            _, frames = serialize(depths)
            payload[name] = sum(memoryview(frame).nbytes for frame in frames)
            with wire.count() as traffic:
                client.submit(mean_depth, depths, pure=False).result()
            sent[name] = traffic.sent
        lesson.table(
            ["as", "MB in memory", "MB serialized", "MB up"],
            [
                (
                    name,
                    round(sizeof(depths) / 1e6, 1),
                    round(payload[name] / 1e6, 2),
                    f"~{sent[name] / 1e6:.2f}" if wire.present else "n/a",
                )
                for name, depths in kinds.items()
            ],
        )
        a_number = {name: payload[name] / survey.size for name in kinds}
        lesson.check(
            "on the wire, a float in a list costs one byte more than in an array",
            0.99 < a_number["list"] - a_number["array"] < 1.01,
            f"{a_number['list']:.2f} bytes serialized against {a_number['array']:.2f}",
        )
        tenth = {"list": kinds["list"][:100_000], "array": survey.ravel()[:100_000]}
        submitting: dict[str, list[float]] = {"list": [], "array": []}
        for _ in range(5):
            for name, depths in tenth.items():
                start = time.perf_counter()
                future = client.submit(mean_depth, depths, pure=False)
                submitting[name].append(time.perf_counter() - start)
                future.result()
        median = {name: statistics.median(submitting[name]) for name in tenth}
        lesson.check(
            "submit() goes through a list before anything is sent, and that takes long",
            median["list"] > 5 * median["array"],
            f"{milliseconds(median['list'])} for a tenth of the numbers, against "
            f"{milliseconds(median['array'])} (medians of five)",
        )
        future = client.submit(same, 2.0, pure=False)
        found = client.submit(sum, [1.0, future], pure=False).result()
        lesson.check(
            "it is looking for futures, to put their values in place",
            found == 3.0,
            f"the sum of [1.0, a future of 2.0] is {found}",
        )

        lesson.section("The accidental closure")
        column_mean = column_reader(survey)
        with wire.count() as closure:
            client.gather([client.submit(column_mean, i, pure=False) for i in range(3)])
        lesson.check(
            "a function that captures an array takes it along, every time",
            3 <= closure.sent / size < 3.05,
            f"{closure.sent / size:.2f} arrays for 3 tasks with an integer each",
            needs="wire",
        )
        heavy, light = len(cloudpickle.dumps(column_mean)), len(cloudpickle.dumps(same))
        lesson.check(
            "weigh a function before you submit it, with cloudpickle",
            heavy > size > 1000 * light,
            f"{about(heavy)} bytes; one that captures nothing has {about(light)}",
        )

        lesson.section("What cannot cross")
        things = ["a lock", "a generator", "an open file"]
        with captured_log() as log:
            at_submit = {
                what: attempt(client.submit, same, make(what)) for what in things
            }
        logged = sum("Failed to serialize" in r.getMessage() for r in log)
        lesson.table(
            ["an argument", "the innermost cause of the error at submit"],
            [(what, cause) for what, (_, cause) in at_submit.items()],
        )
        failed = [(seen, cause) for seen, cause in at_submit.values() if seen]
        lesson.check(
            "as an argument, each is an error at submit",
            len(failed) == len(things),
            f"{len(failed)} of {len(things)}",
        )
        lesson.check(
            "the error that you see says what, only the innermost cause says why",
            all("pickle" in cause and "pickle" not in seen for seen, cause in failed),
            f"you see '{failed[0][0] if failed else 'no error'}'",
        )
        lesson.check(
            "Dask also logs each failure, with tracebacks (kept from your screen here)",
            logged == len(things),
            f"{logged} records",
        )
        futures = {what: client.submit(make, what, pure=False) for what in things}
        wait(list(futures.values()), timeout=30)
        finished = sum(future.status == "finished" for future in futures.values())
        with captured_log():
            at_gather = {what: attempt(f.result) for what, f in futures.items()}
        same_cause = sum(at_gather[what][1] == at_submit[what][1] for what in things)
        lesson.check(
            "as a result, each is made by a task that finishes; the error is at gather",
            finished == same_cause == len(things),
            f"{finished} finished, {same_cause} failed with the cause in the table",
            needs="processes",
        )
        del futures

        lesson.section("Send the path instead")
        with tempfile.TemporaryDirectory() as folder:
            notes, tiles = Path(folder, "notes.txt"), Path(folder, "survey.npy")
            notes.write_text("depths in metres\n" * 100)
            np.save(tiles, survey)
            with notes.open() as file:
                kind, characters = client.submit(read_text, file, pure=False).result()
            with wire.count() as by_path:
                future = client.submit(mean_depth_of_file, str(tiles), pure=False)
                error = future.exception()
            on_disk = tiles.stat().st_size
        lesson.check(
            "a text file open for reading does cross, as a copy of all its text",
            (kind, characters) == ("StringIO", 1_700),
            f"it arrives as a {kind} of {characters:,} characters",
        )
        lesson.check(
            "a path costs its message, not the file",
            by_path.sent < on_disk / 100,
            f"{about(by_path.sent)} bytes up for a file of {on_disk:,} bytes",
            needs="wire",
        )
        lesson.check(
            "but a path means what the worker's own file system says",
            isinstance(error, FileNotFoundError),
            f"{type(error).__name__} on the worker, of a file that exists here",
            needs="containers",
        )
        print("A path needs a file system that both sides share.")


def about(count: float) -> str:
    """A count of bytes that may vary a little from run to run."""
    return "n/a" if math.isnan(count) else f"~{count:,.0f}"


def milliseconds(seconds: float) -> str:
    """A time for a table."""
    return f"{seconds * 1e3:.1f} ms"


if __name__ == "__main__":
    run(main)
