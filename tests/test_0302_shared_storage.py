"""Lesson 0302: its functions alone, and the file systems looked at through docker."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from compose_cluster import IMAGE, ComposeCluster, docker
from lesson_runs import passes_on_the_cluster
from support import eventually, load_lesson

from dask_cluster_lab.commands.catalogue import find_lesson
from dask_cluster_lab.commands.runner import run_lesson


@pytest.fixture(scope="module")
def lesson() -> ModuleType:
    return load_lesson("0302")


def test_read_back_finds_each_chunk_that_is_missing(
    lesson: ModuleType, tmp_path: Path
) -> None:
    store = tmp_path / "survey.zarr"
    lesson.write_survey(str(store))
    assert lesson.wrong_values(str(store)) == 0
    assert lesson.chunks_in(str(store)) == lesson.N_TILES
    (store / "depth" / "c" / "3").unlink()
    assert lesson.wrong_values(str(store)) == 1
    assert lesson.chunks_in(str(store)) == lesson.N_TILES - 1
    assert np.isnan(lesson.read_survey(str(store))[3])


def test_parts_add_up_where_the_folder_is_shared(
    lesson: ModuleType, tmp_path: Path
) -> None:
    store = str(tmp_path / "parts.zarr")
    assert lesson.chunks_in(store) == 0
    for part in (2, 0, 1):
        assert lesson.write_part(store, part, 3) == part
    assert lesson.chunks_in(store) == 3


def test_remove_takes_what_exists_and_does_not_mind_the_rest(
    lesson: ModuleType, tmp_path: Path
) -> None:
    folder, none = str(tmp_path / "some"), str(tmp_path / "none")
    lesson.write_note(f"{folder}/note.txt")
    assert lesson.look(f"{folder}/note.txt")[2]
    assert lesson.left_of([folder, none]) == 1
    lesson.remove([folder, none])
    assert lesson.left_of([folder, none]) == 0


def files_in(container: str, folder: str) -> list[str]:
    """Names of all files below ``folder`` in a container, without asking Dask."""
    code = f"test -d {folder} && cd {folder} && find . -type f || true"
    return docker("exec", container, "sh", "-c", code).split()


@pytest.mark.compose
def test_a_store_that_the_workers_wrote_elsewhere_reads_as_nan(
    shared_cluster: ComposeCluster,
) -> None:
    """The bug itself, without the lesson, and the chunks counted by `find`."""
    folder = Path("/tmp/dask-lab-test-elsewhere")
    folder.mkdir()
    names = shared_cluster.containers("worker")
    try:
        with shared_cluster.client() as client, client.as_current():
            survey = xr.Dataset({"depth": ("tile", da.ones(24, chunks=1))})
            survey.to_zarr(folder / "store", consolidated=False)
        with xr.open_zarr(folder / "store", consolidated=False, chunks=None) as back:
            assert np.isnan(back["depth"].values).sum() == 24
        assert [path.name for path in folder.rglob("[0-9]*")] == []
        chunks = [
            name for container in names for name in files_in(container, str(folder))
        ]
        assert sorted(chunks) == sorted(f"./store/depth/c/{i}" for i in range(24))
    finally:
        shutil.rmtree(folder)
        for container in names:
            docker("exec", container, "rm", "-rf", str(folder))


@pytest.mark.compose
def test_nothing_is_left_in_any_file_system(shared_cluster: ComposeCluster) -> None:
    outcome = passes_on_the_cluster("0302", shared_cluster)
    assert outcome.score == (10, 0, 0)
    for container in shared_cluster.containers():
        assert files_in(container, "/data") == []
        left = docker(
            "exec", container, "sh", "-c", "ls -d /tmp/dask-cluster-lab-* || true"
        )
        assert left == ""
    assert list(Path("/tmp").glob("dask-cluster-lab-*/note.txt")) == []


@contextlib.contextmanager
def worker_without_the_volume(cluster: ComposeCluster) -> Iterator[str]:
    """A fourth worker on the cluster's network, without its volume; its address."""
    name = f"{cluster.project}-blind"
    with cluster.client() as client:
        before = set(client.nthreads())
        command = "dask worker tcp://scheduler:8786 --no-nanny --nthreads 1"
        docker(
            "run", "--detach", "--init", "--name", name,
            "--network", f"{cluster.project}_default",
            IMAGE, *command.split(), "--memory-limit", "512MiB",
        )  # fmt: skip
        try:
            eventually(
                lambda: len(client.nthreads()) == len(before) + 1, "it joins", 150
            )
            yield (set(client.nthreads()) - before).pop()
        finally:
            docker("rm", "--force", name)
            eventually(lambda: set(client.nthreads()) == before, "it is forgotten", 150)


@pytest.mark.compose
def test_a_missing_mount_is_one_no_among_the_yes(
    shared_cluster: ComposeCluster,
) -> None:
    with worker_without_the_volume(shared_cluster) as blind:
        outcome = run_lesson(find_lesson("0302"), shared_cluster.environment)
    assert outcome.status == 1
    assert outcome.stderr == "error: 2 of 10 checks failed.\n"
    section = outcome.stdout.partition("A volume that the workers share")[2]
    seen = dict(re.findall(r"^  (tcp:\S+) +(yes|no)$", section, re.MULTILINE))
    assert len(seen) == 4
    assert [address for address, sees in seen.items() if sees == "no"] == [blind]
    summary = " ".join(section.partition("Summary")[2].split())
    assert "FAIL every worker sees the file" in summary
    assert f"3 of 4, not {blind}" in summary
