"""The image is what the lockfile says, and the client is the same."""

import json
import platform
import tomllib

import pytest
from compose_cluster import ROOT, ComposeCluster, docker

pytestmark = pytest.mark.compose


def in_image(shared_cluster: ComposeCluster, code: str) -> str:
    """Output of Python code in a fresh container of the cluster's image."""
    scheduler = shared_cluster.containers("scheduler")[0]
    image = docker("inspect", "-f", "{{.Image}}", scheduler)
    return docker("run", "--rm", "--network", "none", image, "python", "-c", code)


def test_versions_are_those_of_the_lockfile(shared_cluster: ComposeCluster) -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    locked = {package["name"]: package["version"] for package in lock["package"]}
    installed = json.loads(
        in_image(
            shared_cluster,
            "import importlib.metadata as m, json\n"
            "print(json.dumps({d.name.lower().replace('_', '-'): d.version\n"
            "    for d in m.distributions(path=['/opt/lab/lib/python"
            f"{platform.python_version()[:4]}/site-packages'])}}))",
        )
    )
    assert {name: locked[name] for name in installed} == installed
    assert {"dask", "distributed", "xarray", "zarr", "dask-cluster-lab"} <= set(
        installed
    )
    assert not {"pytest", "ruff", "mypy"} & set(installed), "no development tools"


def test_python_is_the_clients(shared_cluster: ComposeCluster) -> None:
    version = in_image(
        shared_cluster, "import platform; print(platform.python_version())"
    )
    assert version == platform.python_version()


def test_runs_as_an_ordinary_user_who_owns_data(shared_cluster: ComposeCluster) -> None:
    answer = in_image(
        shared_cluster, "import os; print(os.getuid(), os.access('/data', os.W_OK))"
    )
    assert answer == "1000 True"


def test_workers_share_data_and_the_host_does_not(
    shared_cluster: ComposeCluster,
) -> None:
    first, second, _ = shared_cluster.containers("worker")
    docker("exec", first, "touch", "/data/shared-by-workers")
    try:
        assert "shared-by-workers" in docker("exec", second, "ls", "/data").split()
        mounts = json.loads(docker("inspect", "-f", "{{json .Mounts}}", first))
        assert [(m["Type"], m["Destination"]) for m in mounts] == [("volume", "/data")]
    finally:
        docker("exec", first, "rm", "/data/shared-by-workers")


def test_limits_and_policies(shared_cluster: ComposeCluster) -> None:
    worker = shared_cluster.containers("worker")[0]
    host = json.loads(docker("inspect", "-f", "{{json .HostConfig}}", worker))
    assert host["RestartPolicy"]["Name"] == "on-failure"
    assert host["Init"] is True
    assert host["Memory"] == 2 * 2**30
    with shared_cluster.client() as client:
        limits = {
            info["memory_limit"]
            for info in client.scheduler_info(n_workers=-1)["workers"].values()
        }
    assert limits == {1.5 * 2**30}, "below the container's: the kernel must not win"


def test_connecting_raises_no_version_warning(shared_cluster: ComposeCluster) -> None:
    """pytest turns warnings into errors, so a VersionMismatchWarning would raise."""
    with shared_cluster.client() as client:
        versions = client.get_versions(check=True)
    assert isinstance(versions, dict)
    assert len(versions["workers"]) == 3
