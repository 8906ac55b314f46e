"""What ``make bench`` says when a command of Docker fails."""

from pathlib import Path

import pytest

from dask_cluster_lab.commands import bench
from dask_cluster_lab.errors import LabError


def test_a_docker_command_that_fails(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "docker"
    command.write_text("#!/bin/sh\necho step 1 >&2\necho disk full >&2\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(LabError) as caught:
        bench._docker("build", ".")
    assert str(caught.value) == "'docker build .' failed: disk full"
    command.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(LabError, match=r"^'docker image rm x' failed: no reason$"):
        bench._docker("image", "rm", "x")
    command.write_text('#!/bin/sh\necho "$1 $LAB_IMAGE"\n')
    assert bench._docker("build", LAB_IMAGE="own") == "build own\n"
