"""How a lesson ends when its output, its worker or its time is taken away."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from compose_cluster import ROOT, read_until, running_lesson

from dask_cluster_lab.commands.transcripts import NO_SCHEDULER
from dask_cluster_lab.watchdog import Watchdog

CONNECT = ROOT / "examples" / "0101_connect.py"
WAITS = ROOT / "tests" / "lessons" / "waits.py"
FALLBACK = {"DASK_SCHEDULER_ADDRESS": NO_SCHEDULER}


@pytest.mark.parametrize(
    ("redirect", "status", "stderr"),
    [
        (">&-", 0, ""),
        (">/dev/full", 1, "error: the output cannot be written: no space left.\n"),
        ("| true; exit ${PIPESTATUS[0]}", 141, ""),
    ],
)
def test_output_that_goes_nowhere(redirect: str, status: int, stderr: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$0" "$1" {redirect}', sys.executable, str(CONNECT)],
        env={**os.environ, **FALLBACK},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, stderr)


def test_list_into_a_closed_pipe() -> None:
    command = '"$0" -m dask_cluster_lab list | true; exit ${PIPESTATUS[0]}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 141)  # the list may be written before `true` ends
    assert done.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_leaves_no_folder_behind(
    number: signal.Signals, tmp_path: Path
) -> None:
    environment = {**FALLBACK, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with running_lesson(WAITS, environment) as process:
        read_until(process, "under way")
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["FutureCancelledError", "KilledWorker"])
def test_a_lost_worker_is_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dask_cluster_lab.cluster import ClusterSession

    monkeypatch.setattr(Watchdog, "_identity", lambda self: {"workers": {}})
    session = ClusterSession(None, "compose", "tcp://127.0.0.1:1", "")  # type: ignore[arg-type]
    verdict = Watchdog(session, 60).stop(type(name, (Exception,), {})("gone"))
    assert str(verdict).startswith(f"a worker was lost during the lesson ({name}); ")


def test_a_folder_with_a_space(tmp_path: Path) -> None:
    """Without uv the Makefile makes a private one, in this folder and nowhere else."""
    folder = tmp_path / "my lab"
    folder.mkdir()
    (folder / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    done = subprocess.run(
        ["make", "--dry-run", "list", "PATH=/usr/bin:/bin"],
        cwd=folder,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f'-m venv "{folder}/.uv"' in done.stdout
    assert f'"{folder}/.uv/bin/uv" run' in done.stdout
