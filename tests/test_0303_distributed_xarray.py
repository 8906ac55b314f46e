"""Lesson 0303: its functions, and its facts as the cluster itself tells them."""

import inspect
import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import dask.array as da
import fsspec
import numpy as np
import pytest
import xarray as xr
from compose_cluster import ROOT, ComposeCluster, docker
from lesson_runs import assert_passed, passes_on_the_cluster
from support import eventually, load_lesson

from dask_cluster_lab.cluster import connect
from dask_cluster_lab.commands.catalogue import find_lesson
from dask_cluster_lab.commands.runner import run_lesson
from dask_cluster_lab.wire import WireMeter

# Functions of this file travel to the cluster by value; it cannot import them there.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PATH = ROOT / "examples" / "0303_distributed_xarray.py"
SIZE = 120 * 96 * 180 * 8
"""Bytes of the field."""


@pytest.fixture(scope="module")
def lesson() -> ModuleType:
    return load_lesson("0303")


def recipe_of(lesson: ModuleType) -> xr.DataArray:
    array = da.map_blocks(lesson.make_strip, chunks=lesson.CHUNKS, dtype=float)
    field: xr.DataArray = lesson.as_field(array)
    return field


def test_the_field_is_the_same_made_whole_or_in_strips(lesson: ModuleType) -> None:
    whole = lesson.make_field()
    assert (whole.dims, whole.shape) == (("time", "y", "x"), (120, 96, 180))
    assert whole.nbytes == SIZE > 10 * 2**20, "large enough for Dask's warning"
    strips = recipe_of(lesson)
    assert strips.data.npartitions == 24
    assert np.array_equal(strips.compute(scheduler="synchronous"), whole)
    assert not np.array_equal(whole[:, 0], whole[:, 4]), "no strip repeats another"


def test_the_analysis_is_what_groupby_says(lesson: ModuleType) -> None:
    field = lesson.make_field()
    climatology, anomaly = lesson.analyse(field)
    months = field.groupby("time.month")
    assert climatology.dims == ("month", "y", "x")
    np.testing.assert_allclose(climatology, months.mean("time"), atol=1e-12)
    other = (months - months.mean("time")).values
    np.testing.assert_allclose(anomaly.values.reshape(other.shape), other, atol=1e-12)
    assert abs(float(anomaly.mean())) < 1e-12
    assert float(anomaly.std()) > 0.5, "it is not zero everywhere"


def test_the_graph_of_groupby_is_far_larger(lesson: ModuleType) -> None:
    field = recipe_of(lesson)
    _, anomaly = lesson.analyse(field)
    months = field.groupby("time.month")
    grouped = months - months.mean("time")
    tasks = [len(array.__dask_graph__()) for array in (anomaly, grouped)]
    assert tasks[1] > 10 * tasks[0]


def test_a_whole_job_in_one_place(lesson: ModuleType, tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    lesson.make_field().to_zarr(path, consolidated=False)
    climatology, mean = lesson.analyse_store(path)
    expected, _ = lesson.analyse(lesson.make_field())
    np.testing.assert_allclose(climatology, expected, atol=1e-12)
    assert abs(mean) < 1e-12


@pytest.mark.parametrize(
    ("since", "expected"), [(0, 30), (2.5, 25), (3, 25), (4, 0), (9, 0)]
)
def test_growth_from_a_workers_own_samples(
    since: float, expected: int, lesson: ModuleType
) -> None:
    """Against the last sample that was taken before."""
    quantities = {"time": deque([1, 2, 3, 4]), "memory": deque([10, 15, 40, 10])}
    worker: Any = SimpleNamespace(monitor=SimpleNamespace(quantities=quantities))
    assert lesson.growth(since, dask_worker=worker) == expected


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")
def test_peak_memory_is_not_that_of_the_parent(lesson: ModuleType) -> None:
    """What getrusage says of a new process begins with what its parent had."""
    child = (
        "import resource\nfrom pathlib import Path\n"
        f"{inspect.getsource(lesson.peak_memory)}\n"
        "small = peak_memory()\n"
        "ballast = bytearray(b'x') * 100_000_000\n"
        "del ballast\n"
        "usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "print(small, peak_memory(), usage)"
    )
    parent = (
        "import subprocess, sys\n"
        "ballast = bytearray(b'x') * 300_000_000\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    answer = subprocess.check_output([sys.executable, "-c", parent], text=True)
    small, large, usage = map(int, answer.split())
    assert 1e6 < small < 80e6
    assert small + 90e6 < large < 200e6
    assert usage > 300e6


def test_can_connect(lesson: ModuleType, closed_port: int, serve: Any) -> None:
    assert lesson.can_connect("127.0.0.1", serve(lambda connection: None)) is True
    assert lesson.can_connect("127.0.0.1", closed_port) is False
    assert lesson.can_connect("name.invalid", 9000) is False


def test_kilobytes(lesson: ModuleType) -> None:
    assert lesson.kilobytes(1_660_123) == "~1,660"
    assert lesson.kilobytes(float("nan")) == "n/a"


# On a real cluster


def buckets(cluster: ComposeCluster) -> str:
    """The object store's buckets, as a worker lists them."""
    code = "import fsspec; print(*fsspec.filesystem('s3').ls(''))"
    worker = cluster.containers("worker")[0]
    return docker("exec", worker, "python", "-c", code)


@pytest.mark.compose
def test_bytes_counted_by_another_meter(shared_cluster: ComposeCluster) -> None:
    """Through a second relay: the field crosses once, in 2b; everything else is small.

    Three solved shapes return a climatology, a tenth of the field.
    """
    meter = WireMeter("127.0.0.1", shared_cluster.scheduler_port)
    try:
        address = f"tcp://127.0.0.1:{meter.local_port}"
        passes_on_the_cluster("0303", shared_cluster, DASK_SCHEDULER_ADDRESS=address)
        assert SIZE < meter.sent < 1.2 * SIZE
        assert 0.4 * SIZE < meter.received < 0.8 * SIZE
    finally:
        meter.close()
    assert buckets(shared_cluster) == "", "its bucket is gone"
    for worker in shared_cluster.containers("worker"):
        assert docker("exec", worker, "ls", "-A", "/data") == ""


@pytest.mark.compose
def test_one_string_on_both_sides(
    lesson: ModuleType, shared_cluster: ComposeCluster
) -> None:
    """Written by the workers, opened here; and with our endpoint, not by them."""
    with (
        connect(shared_cluster.address, quiet=True) as session,
        session.object_store_environment(),
    ):
        files = fsspec.filesystem("s3", skip_instance_cache=True)
        files.mkdir("both-sides")
        try:
            url = "s3://both-sides/field"
            recipe_of(lesson).to_zarr(url, consolidated=False)
            names = files.find("both-sides")
            assert sum("/temperature/c/" in name for name in names) == 24
            here = xr.open_zarr(url, consolidated=False, chunks=None)["temperature"]
            assert np.array_equal(here.values, lesson.make_field().values)
            options = {"endpoint_url": session.object_store}
            lazy = xr.open_zarr(url, consolidated=False, storage_options=options)
            row = lazy["temperature"].isel(y=0).mean()
            with pytest.raises(Exception, match="Could not connect"):
                row.compute()
        finally:
            files.rm("both-sides", recursive=True)


@pytest.mark.compose
def test_a_path_that_only_the_workers_see(
    lesson: ModuleType, shared_cluster: ComposeCluster
) -> None:
    with shared_cluster.client() as client:
        path = client.submit(lesson.make_store, "0303-test", True).result()
        try:
            assert path == "/data/0303-test"
            assert set(client.run(os.path.isdir, path).values()) == {True}
            with pytest.raises(FileNotFoundError):
                xr.open_zarr(path, consolidated=False)
            shapes = client.run(lambda: xr.open_zarr(path, consolidated=False).sizes)
            assert {tuple(sizes.values()) for sizes in shapes.values()} == {
                (120, 96, 180)
            }
        finally:
            worker = shared_cluster.containers("worker")[0]
            docker("exec", worker, "rm", "-r", path)


@pytest.mark.compose
def test_without_an_object_store_its_claims_are_not_made(
    shared_cluster: ComposeCluster,
) -> None:
    (store,) = shared_cluster.containers("object-store")
    docker("stop", "--time", "2", store)
    try:
        outcome = run_lesson(find_lesson("0303"), shared_cluster.environment)
    finally:
        docker("start", store)
        eventually(lambda: set(shared_cluster.health()) == {"healthy"}, "it is back")
    assert_passed(outcome)
    remedy = "'make up PROFILE=storage'"
    marks = [line[:4] for line in outcome.stdout.splitlines() if "needs an obj" in line]
    assert marks == ["n/a "] * len(marks)
    joined = " ".join(outcome.stdout.split())
    assert joined.count(remedy) == 5
    assert outcome.score == (10, 0, 5)
