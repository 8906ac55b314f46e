"""The short code of diagnosing.md."""

import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np
from distributed import Client, get_task_stream

from dask_cluster_lab.diagnosis import diagnose


def make_tile(number: int) -> np.ndarray:
    """One tile of a made survey, depths in metres."""
    time.sleep(0.1)
    return np.full(1_000, float(number))


def main(client: Client) -> None:
    """Run it all."""
    # [record]
    start = time.perf_counter()
    with get_task_stream(client) as stream:
        client.gather(client.map(make_tile, range(30), pure=False))
    seconds = time.perf_counter() - start

    run = diagnose(stream.data, client.nthreads())
    print(f"{seconds:.1f} s by this clock, {run.duration:.1f} s in the task stream")
    print(f"efficiency {run.efficiency:.2f}, {run.verdict}: {run.advice}")
    # [end]
    assert run.duration <= seconds + 0.1
    # [processor]
    for address, worker in client.scheduler_info()["workers"].items():
        print(address, worker["nthreads"], "threads", worker["metrics"]["cpu"])
    # [end]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # [profile]
        client.profile(filename="profile.html")
        # [end]
        assert Path("profile.html").stat().st_size > 0
