"""The package itself: names on first use, and an import that costs nothing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dask_cluster_lab

IMPORT_ALL = """
import importlib, pkgutil, sys
import dask_cluster_lab
names = [m.name for m in pkgutil.walk_packages(dask_cluster_lab.__path__,
                                               "dask_cluster_lab.")
         if ".metrics" not in m.name]  # these are plugins of Dask
for name in ["dask_cluster_lab", "dask_cluster_lab.cluster", *names]:
    importlib.import_module(name)
    for heavy in ("distributed", "dask", "numpy"):
        assert heavy not in sys.modules, f"{name} imports {heavy}"
print(len(names))
"""


def test_no_module_imports_dask() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) >= 12


def test_every_name_is_found_on_first_use() -> None:
    from dask_cluster_lab import cluster, lesson, probe, timing

    assert dask_cluster_lab.connect is cluster.connect
    assert dask_cluster_lab.run is lesson.run
    assert dask_cluster_lab.wait_for_scheduler is probe.wait_for_scheduler
    assert dask_cluster_lab.interleave is timing.interleave
    for name in dask_cluster_lab.__all__:
        assert getattr(dask_cluster_lab, name).__name__ == name


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError) as caught:
        dask_cluster_lab.conect  # noqa: B018
    assert str(caught.value) == "module 'dask_cluster_lab' has no attribute 'conect'"


def test_dagster_computes_with_the_dask_of_the_cluster() -> None:
    """Dagster has a lockfile of its own, and one of its jobs is a client."""
    root = Path(__file__).parents[1]

    def locked(folder: Path) -> dict[str, str]:
        packages = tomllib.loads((folder / "uv.lock").read_text())["package"]
        return {
            package["name"]: package["version"]
            for package in packages
            if package["name"] in {"dask", "distributed"}
        }

    versions = locked(root)
    assert set(versions) == {"dask", "distributed"}
    assert locked(root / "monitoring" / "dagster") == versions
