"""Who can open the store: client, workers or both?

What:  opens on the client a store that only the workers can see; then computes the
       monthly climatology of one small made field in four shapes, from a job pushed to
       one worker to a URL that both sides can open, and counts what each one costs.
Why:   xarray opens a store twice: for its metadata where you call open_zarr, for its
       chunks where the tasks run. A path must mean the same thing in both places.
Needs: any cluster whose workers have xarray and zarr; for the last shape an object
       store: `make up PROFILE=storage`, or elsewhere AWS_ENDPOINT_URL and keys on both
       sides. Writes about 50 MB and removes all of it.
Run:   make run EXAMPLE=0303_distributed_xarray
"""

import contextlib
import importlib
import math
import os
import re
import resource
import shutil
import socket
import tempfile
import time
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import dask
import dask.array as da
import fsspec
import numpy as np
import pandas as pd
import xarray as xr
from distributed import get_task_stream, wait

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.task_stream import computes

if TYPE_CHECKING:
    from distributed import Worker

MONTHS, ROWS, COLUMNS = 120, 96, 180  # time, y, x
STRIP = 4  # rows in a chunk: 24 chunks of 0.69 MB, each of all times
CHUNKS = ((MONTHS,), (STRIP,) * (ROWS // STRIP), (COLUMNS,))
CLIENT_LIMIT = 400e6  # bytes


@dataclass
class Cost:
    """What one shape of the job took; nothing so far."""

    tasks: int = 0
    workers: set[str] = field(default_factory=set)
    """Addresses of those that ran them."""
    sent: float = math.nan
    """Bytes from the client to the scheduler; then those back, and the time."""
    received: float = math.nan
    seconds: float = math.nan


def make_strip(block_id: tuple[int, ...]) -> np.ndarray:
    """Made temperatures of one strip of rows (time, y, x); the same wherever made."""
    first = block_id[1] * STRIP
    season = 15 - 10 * np.cos(2 * np.pi * np.arange(MONTHS) / 12)
    noise = [
        np.random.default_rng(row).normal(size=(MONTHS, COLUMNS))
        for row in range(first, first + STRIP)
    ]
    return season[:, None, None] + np.stack(noise, axis=1)


def as_field(array: Any) -> xr.DataArray:
    """An array (time, y, x), of numpy or dask, with names and months."""
    months = pd.date_range("2000-01", periods=MONTHS, freq="MS")
    return xr.DataArray(array, {"time": months}, ("time", "y", "x"), "temperature")


def make_field() -> xr.DataArray:
    """The whole field, in the memory of whoever calls this."""
    strips = [make_strip((0, number, 0)) for number in range(ROWS // STRIP)]
    return as_field(np.concatenate(strips, axis=1))


def analyse(temperature: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Monthly climatology (month, y, x) and anomaly (year, month, y, x).

    groupby("time.month") says the same of any calendar, with a far larger graph.
    """
    years = temperature.coarsen(time=12).construct(time=("year", "month"))
    climatology = years.mean("year")
    return climatology, years - climatology


def analyse_store(path: str) -> tuple[np.ndarray, float]:
    """The whole job in one place: open, climatology, mean anomaly; no dask in it."""
    temperature = xr.open_zarr(path, chunks=None, consolidated=False)["temperature"]
    climatology, anomaly = analyse(temperature)
    return climatology.values, float(anomaly.mean())


def make_store(token: str, shared: bool) -> str:
    """Write the field to a store of this worker, on the volume if there is one."""
    folder = Path("/data" if shared else tempfile.gettempdir()) / token
    make_field().to_zarr(folder, consolidated=False)
    return str(folder)


def growth(since: float, dask_worker: "Worker") -> float:
    """By how many bytes this worker has grown since then, by its own samples.

    It takes two a second. Grown, because earlier work may have left memory behind.
    """
    samples = dask_worker.monitor.quantities
    pairs = list(zip(samples["time"], samples["memory"], strict=True))
    sizes = [size for when, size in pairs if when < since][-1:]
    sizes += [size for when, size in pairs if when >= since]
    return max(sizes) - sizes[0]


def peak_memory() -> int:
    """The most bytes of memory that this process ever had.

    getrusage() says so too, but starts with what the process had that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes


def kilobytes(size: float) -> str:
    """A number of bytes for a table; it varies a little from run to run."""
    return "n/a" if math.isnan(size) else f"~{size / 1e3:,.0f}"


def load(*modules: str) -> None:
    """Import these. In a task, since it takes seconds and a worker must answer."""
    for name in modules:
        importlib.import_module(name)


def can_connect(host: str, port: int) -> bool:
    """Whether anything accepts at this address, from where this runs."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 5):
        return True
    return False


def main() -> None:
    """Tell the story."""
    with (
        connect(meter_wire=True) as session,
        Lesson(session) as lesson,
        contextlib.ExitStack() as undo,
    ):
        client = session.client
        everyone = {worker.address for worker in session.workers()}
        costs: dict[str, Cost] = defaultdict(Cost)
        answers: dict[str, tuple[np.ndarray, float]] = {}

        def measure(what: str, job: Callable[[], Any]) -> Any:
            """Do a part of the lesson and note what it took."""
            with get_task_stream(client) as stream, session.wire.count() as wire:
                start = time.perf_counter()
                result = job()
                seconds = time.perf_counter() - start
            places = {span.worker for span in computes(stream.data)}
            tasks = len(stream.data)
            costs[what] = Cost(tasks, places, wire.sent, wire.received, seconds)
            return result

        def solve(shape: str, temperature: xr.DataArray) -> Cost:
            """Climatology and mean anomaly, computed by the cluster."""
            climatology, anomaly = analyse(temperature)
            lazy = (climatology.data, anomaly.mean().data)
            values, mean = measure(shape, lambda: dask.compute(*lazy))
            answers[shape] = values, float(mean)
            return costs[shape]

        def of_all(places: set[str]) -> str:
            return f"on {len(places)} of {len(everyone)} workers"

        start = client.run_on_scheduler(time.time)
        needed = ["xarray", "zarr"] + ["s3fs"] * lesson.can("object store")
        wait([client.submit(load, *needed, workers=[w], pure=False) for w in everyone])

        lesson.section("A path is only as good as the disk that it names")
        shared = session.kind == "compose"
        pin: dict[str, Any] = {"workers": [min(everyone)], "pure": False}
        token = uuid.uuid4().hex
        store = client.submit(make_store, token, shared, **pin).result()
        undo.callback(client.run, shutil.rmtree, store, True, workers=pin["workers"])
        if shared:
            print("A worker wrote the field to /data, the volume that workers share.")
        seen = sum(client.run(os.path.exists, store).values())
        said = "it opens"
        try:
            xr.open_zarr(store, consolidated=False)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        lesson.check(
            "all workers see the store, and the client cannot open it",
            seen == len(everyone) and said.startswith("FileNotFoundError"),
            f"{seen} of {len(everyone)} workers; here {said}",
            needs="containers",
        )

        lesson.section("Shape 1: push the whole job to where the store is")
        pushed = "1 pushed job"
        answers[pushed] = measure(
            pushed, lambda: client.submit(analyse_store, store, **pin).result()
        )
        cost = costs[pushed]
        lesson.check(
            "one task did it all, and one worker was busy",
            (cost.tasks, len(cost.workers)) == (1, 1),
            f"{cost.tasks} task, {of_all(cost.workers)}",
        )

        lesson.section("Shape 2: a graph that makes its data where its tasks run")
        recipe = as_field(da.map_blocks(make_strip, chunks=CHUNKS, dtype=float))
        size, result = recipe.nbytes, answers[pushed][0].nbytes
        cost = solve("2 recipe", recipe)
        lesson.check(
            "all workers took part",
            cost.workers == everyone,
            f"{cost.tasks} tasks, {of_all(cost.workers)}",
        )
        lesson.check(
            "the client sent a graph and received a result; the data never crossed",
            cost.sent < size / 20 and result < cost.received < size / 2,
            f"~{cost.sent / 1e3:.0f} kB sent, {cost.received / 1e6:.1f} MB received; "
            f"the data has {size / 1e6:.1f} MB, the climatology {result / 1e6:.1f}",
            needs="wire",
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cost = solve("2b client's data", make_field().chunk(y=STRIP))
        warned = re.search(
            r"large graph of size [\d.]+ \w+", " ".join(str(w.message) for w in caught)
        )
        lesson.check(
            "with data that the client made, Dask warns of a large graph",
            warned,
            f"'{warned[0] if warned else 'nothing of the kind'}' for an array of "
            f"{size / 2**20:.2f} MiB",
        )
        lesson.check(
            "all of it crossed the wire",
            cost.sent > size,
            f"{cost.sent / 1e6:.1f} MB sent",
            needs="wire",
        )

        lesson.section("Shape 3: a URL that both sides can open")
        urls = f"s3://{token}/temperature", f"s3://{token}/anomaly"
        read, write = "3 URL: solve", "3 URL: write back"
        chunks, worst, refused = 0, math.nan, 0
        opened = recipe
        if lesson.can("object store"):
            undo.enter_context(session.object_store_environment())
            files = fsspec.filesystem("s3", use_listings_cache=False)
            files.mkdir(token)  # a bucket
            undo.callback(files.rm, token, recursive=True)
            theirs = set(client.run(os.getenv, "AWS_ENDPOINT_URL").values())
            here = os.environ["AWS_ENDPOINT_URL"]
            lesson.table(
                ["side", "AWS_ENDPOINT_URL"],
                [("client", here), *(("workers", there) for there in sorted(theirs))],
            )
            host, port = urlsplit(here).hostname, urlsplit(here).port
            refused = sum(not ok for ok in client.run(can_connect, host, port).values())
            recipe.to_zarr(urls[0], consolidated=False)
            opened = measure(
                "3 URL: open",
                lambda: xr.open_zarr(urls[0], consolidated=False)["temperature"],
            )
            solve(read, opened)
            anomaly = analyse(opened)[1].rename("anomaly")
            measure(write, lambda: anomaly.to_zarr(urls[1], consolidated=False))
            chunks = sum("/anomaly/c/" in name for name in files.find(token))
            back = xr.open_zarr(urls[1], consolidated=False)["anomaly"]
            worst = float(abs(back - analyse(recipe)[1]).max())
        lesson.check(
            "the client's endpoint is of no use to workers: it must not travel",
            refused == len(everyone),
            f"refused on {refused} of {len(everyone)}",
            needs="containers" if lesson.can("object store") else "object store",
        )
        lesson.check(
            "with one string on both sides, the client opens it and reads no data",
            costs["3 URL: open"].tasks == 0 and opened.chunks == recipe.chunks,
            f"{costs['3 URL: open'].tasks} tasks for "
            f"{opened.data.npartitions} chunks that are there",
            needs="object store",
        )
        lesson.check(
            "all workers read it",
            costs[read].workers == everyone,
            f"{costs[read].tasks} tasks, {of_all(costs[read].workers)}",
            needs="object store",
        )
        lesson.check(
            "all workers wrote the anomaly back, each chunk once",
            costs[write].workers == everyone and chunks == opened.data.npartitions,
            f"{chunks} objects, {of_all(costs[write].workers)}",
            needs="object store",
        )
        lesson.check(
            "what was written reads back the same, to 1e-9",
            worst < 1e-9,
            f"differences of at most {worst:.12f} degrees",
            needs="object store",
        )

        lesson.section("What each shape took")
        print("One run of each: 1 reads a store that a worker made before, 2 makes its")
        print("data, 2b sends them, 3 fetches them.")
        lesson.table(
            ["shape", "tasks", "workers", "kB sent", "kB received", "time"],
            [
                (
                    what,
                    cost.tasks,
                    len(cost.workers),
                    kilobytes(cost.sent),
                    kilobytes(cost.received),
                    f"{cost.seconds * 1e3:,.0f} ms",
                )
                for what, cost in costs.items()
                if cost.seconds > 0
            ],
        )
        first = answers[pushed][0]
        apart = max(float(abs(values - first).max()) for values, _ in answers.values())
        lesson.check(
            "all shapes give the same climatology, to 1e-9",
            apart < 1e-9,
            f"{len(answers)} shapes, at most {apart:.12f} degrees apart",
        )
        mean = max(abs(mean) for _, mean in answers.values())
        lesson.check(
            "the mean anomaly is 0, to 1e-9",
            mean < 1e-9,
            f"at most {mean:.12f} degrees",
        )
        peak = peak_memory()
        lesson.check(
            f"the client never had more than {CLIENT_LIMIT / 1e6:.0f} MB of memory",
            peak < CLIENT_LIMIT,
            f"its peak is ~{peak / 1e6:.0f} MB",
            needs="processes",
        )
        grown = max(client.run(growth, start).values())
        limit = min(worker.memory_limit or math.inf for worker in session.workers())
        lesson.check(
            "no worker grew by a quarter of its limit",
            0 < grown < limit / 4,
            f"by at most ~{grown / 1e6:.0f} MB; the limit is {limit / 1e6:.0f} MB",
            needs="processes",
        )


if __name__ == "__main__":
    run(main)
