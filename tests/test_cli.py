"""``python -m dask_cluster_lab``: statuses and sentences, never a traceback."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dask_cluster_lab.__main__ import _parser, main
from dask_cluster_lab.commands import bench, compose, transcripts
from dask_cluster_lab.errors import ChecksFailed, LabError, UsageError

Capture = pytest.CaptureFixture[str]
LISTING = "  0101_first\n  0102_second\n  0201_third\n"


def lab(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as ``make`` does."""
    return subprocess.run(
        [sys.executable, "-m", "dask_cluster_lab", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(environment or {})},
    )


# As a process


def test_list(project: Path) -> None:
    done = lab("list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "0101_first   Title of 0101_first.\n"
        "0102_second  Title of 0102_second.\n"
        "0201_third   Title of 0201_third.\n"
    )


@pytest.mark.parametrize(
    ("example", "status", "stdout"),
    [
        ("0101_first", 0, "first\n"),
        ("0102", 3, ""),
        ("examples/0201_third.py", 0, None),
    ],
)
def test_run(example: str, status: int, stdout: str | None, project: Path) -> None:
    done = lab("run", example)
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout == ("third\n" if stdout is None else stdout)


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (
            ["run", "nope"],
            {},
            f"no lesson 'nope'; give one of these as EXAMPLE:\n{LISTING}",
        ),
        (["run", ""], {}, f"EXAMPLE is not set; give one of these:\n{LISTING}"),
        (
            ["run", "01"],
            {},
            "'01' fits 2 lessons; give one of these as EXAMPLE:\n"
            "  0101_first\n  0102_second\n",
        ),
        (
            ["scale", ""],
            {},
            "N='' is not a number of workers; give 0 to 64, as in N=3.\n",
        ),
        (
            ["scale", "-1"],
            {},
            "N='-1' is not a number of workers; give 0 to 64, as in N=3.\n",
        ),
        (
            ["up"],
            {"DASK_WORKERS": "few"},
            "DASK_WORKERS='few' is not a number of workers; give 0 to 64, "
            "as in DASK_WORKERS=3.\n",
        ),
        (
            ["ps"],
            {"PATH": "/nowhere"},
            "the command docker is missing; install Docker Engine with Compose; "
            "lessons run without it too ('make run'), on the in-process fallback.\n",
        ),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str], environment: dict[str, str], sentence: str, project: Path
) -> None:
    done = lab(*arguments, environment=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {sentence}"


def test_outside_of_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = lab("list")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: this is not a clone of dask-cluster-lab; go into its folder first.\n"
    )


def test_a_lesson_that_is_no_python(project: Path) -> None:
    (project / "examples" / "0301_broken.py").write_text("def broken(:\n")
    done = lab("run", "0101")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: 0301_broken.py: line 1 is no Python: invalid syntax.\n"
    )


# In this process


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["run"],
        ["run", "-x"],
        ["run", "a", "b"],
        ["scale"],
        ["list", "x"],
    ],
)
def test_wrong_arguments(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"^dask_cluster_lab[ a-z]*: error: ", err, re.M)


def test_help(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "what the make targets call" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (LabError("it is down."), 1, "error: it is down.\n"),
        (ChecksFailed("one check failed."), 1, "error: one check failed.\n"),
        (UsageError("a typo."), 2, "error: a typo.\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_statuses(
    error: BaseException,
    status: int,
    text: str,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(compose, "ps", fail)
    assert main(["ps"]) == status
    assert capsys.readouterr() == ("", text)


def test_every_command_calls_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    for name in ("up", "wait", "restart", "down", "ps", "logs", "dashboard"):
        monkeypatch.setattr(compose, name, lambda name=name: called.append(name))
        assert main([name]) == 0
    monkeypatch.setattr(compose, "scale", lambda workers: called.append(workers))
    monkeypatch.setattr(bench, "bench", lambda: called.append("bench"))
    monkeypatch.setattr(transcripts, "capture", lambda: called.append("capture"))
    for arguments in (["scale", "5"], ["bench"], ["capture"]):
        assert main(arguments) == 0
    assert called == [
        *("up", "wait", "restart", "down", "ps", "logs", "dashboard"),
        *(5, "bench", "capture"),
    ]


@pytest.mark.parametrize(
    ("keep_going", "last"),
    [("", "1 lessons not run; KEEP_GOING=1 runs them all"), ("1", "checks: ")],
)
def test_run_all(
    keep_going: str,
    last: str,
    project: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEEP_GOING", keep_going)
    assert main(["run-all"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith(last)
    assert err == "error: 0102_second did not pass.\n"


def test_the_makefile_uses_commands_that_exist() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    lines = re.findall(r"\$\(LAB\) (.+)$", makefile, re.M)
    assert len(lines) >= 12
    for line in lines:
        _parser().parse_args(shlex.split(line))
