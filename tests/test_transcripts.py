"""Transcripts: what is masked, what is not, and how a difference is shown."""

import contextlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dask_cluster_lab import cluster
from dask_cluster_lab.cluster import Kind
from dask_cluster_lab.commands import transcripts
from dask_cluster_lab.commands.catalogue import lessons
from dask_cluster_lab.commands.runner import Outcome, run_lesson
from dask_cluster_lab.commands.transcripts import (
    CAPTURE_AGAIN,
    NO_SCHEDULER,
    body,
    capture,
    compare_outcome,
    difference,
    header,
    kind_environment,
    mask,
    transcript_path,
    without_host,
)
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.probe import parse_address


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("at tcp://127.0.0.1:8786: 3 workers", "at <address> 3 workers"),
        ("tls://[::1]:8786 and inproc://10.0.0.2/7/1", "<address> and <address>"),
        ("tcp://scheduler:8786", "<address>"),
        ("http://127.0.0.1:8787/status", "<url>/status"),
        ("from 172.18.0.3:42 and 10.0.0.1", "from <ip> and <ip>"),
        ("pid 4711", "pid <pid>"),
        ("host 3f2b9c0d1e4a", "host <host>"),
        ("key 0123456789abcdef0123456789abcdef", "key <token>"),
        ("python  3.13.0", "python <version>"),
        ("in /tmp/dask-1/worker-x_2.y", "in <path>"),
        ("took 1.5 s, 12 ms, 1,234 us, 7 ns", "took <time>, <time>, <time>, <time>"),
        ("2.34x as fast", "<ratio> as fast"),
        ("1,234 tasks/s", "<rate>"),
        ("12.5/s and 3 calls/s", "<rate> and <rate>"),
        ("~180 kB of ~1,234.5", "<about> kB of <about>"),
        ("  one  ##########", " one #"),
        ("--------  ---", "-- --"),
        ("a\t b   c", "a b c"),
        ("ok   a claim that goes\n     on: 5", "ok a claim that goes on: 5"),
    ],
)
def test_what_is_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "3 workers, 12 tasks, 1,234 keys",
        "5.12 MB sent",
        "the answer is 18,001,543.63",
        "2 x 3 arrays",
        "python 3 and numpy 2",
        "version 2026.8.0",
        "1.5 GiB",
        "-1 or +1",
        "7 steps",
        "3f2b9c0d1e4 has eleven digits",
        "0202_scatter_gather: Publish once, use many times.",
        "ok it holds\nok it holds as well",
        "a - b",
    ],
)
def test_what_is_not_masked(text: str) -> None:
    assert mask(text) == text


def test_no_difference() -> None:
    assert difference("", "") == ""
    assert (
        difference(
            "took 1.2 s at tcp://127.0.0.1:1\nok   so\n  a   ##\n",
            "took 9.9 s at tcp://10.0.0.3:22\nok   so\n  a  #####\n",
        )
        == ""
    )
    assert (
        difference(
            "ok   a claim: host 0123456789ab, which is\n     long\n",
            "ok   a claim: host ba9876543210,\n     which is long\n",
        )
        == ""
    )


def test_a_difference_is_shown_masked_with_a_line_around() -> None:
    committed = "one\ntwo\nok   11 tasks in 1 s\nfour\nfive\n"
    fresh = "one\ntwo\nok   12 tasks in 2 s\nfour\nfive\n"
    assert difference(committed, fresh) == (
        "--- committed transcript\n"
        "+++ fresh run\n"
        "@@ -2,3 +2,3 @@\n"
        " two\n"
        "-ok 11 tasks in <time>\n"
        "+ok 12 tasks in <time>\n"
        " four"
    )


@pytest.mark.parametrize(
    ("committed", "fresh"),
    [
        ("a\n", "a\nb\n"),
        ("ok   a\n", "FAIL a\n"),
        ("5.12 MB\n", "5.13 MB\n"),
        ("a\n", ""),
    ],
)
def test_differences(committed: str, fresh: str) -> None:
    assert difference(committed, fresh) != ""
    assert difference(fresh, committed) != ""


def test_header_and_body() -> None:
    text = header("0101_connect", "compose")
    fields = dict(re.findall(r"^# (\w+): (.+)$", text, re.M))
    assert list(fields) == ["lesson", "session", "date", "versions", "machine"]
    assert fields["lesson"] == "0101_connect"
    assert fields["session"] == "compose"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", fields["date"])
    assert fields["versions"].startswith(f"python {sys.version.split()[0]}, dask 20")
    assert re.match(r"\d+ cores, \d+ GiB, \w+ \w+$", fields["machine"])
    assert text.count("\n") == 5
    output = "first\n\nsecond\n\n\nthird\n"
    assert body(text + "\n" + output) == output


def test_the_environment_of_the_stand_in() -> None:
    assert kind_environment("local") == {"DASK_SCHEDULER_ADDRESS": NO_SCHEDULER}
    assert str(parse_address(NO_SCHEDULER)) == NO_SCHEDULER
    assert kind_environment("compose") == {}


# Capture and comparison, in the small project


@pytest.fixture
def quiet_project(project: Path) -> Path:
    """Without the lesson that fails."""
    (project / "examples" / "0102_second.py").unlink()
    return project


def test_capture(quiet_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stray = transcript_path("0999_gone", "local")
    stray.parent.mkdir(parents=True)
    stray.write_text("old")
    capture(("local",))
    assert capsys.readouterr().out == (
        "wrote docs/transcripts/local/0101_first.txt\n"
        "wrote docs/transcripts/local/0201_third.txt\n"
    )
    folder = quiet_project / "docs" / "transcripts"
    assert sorted(path.name for path in folder.rglob("*.txt")) == [
        "0101_first.txt",
        "0201_third.txt",
    ]
    text = (folder / "local" / "0101_first.txt").read_text()
    assert text == header("0101_first", "local") + "\nfirst\n"
    for lesson in lessons():
        assert compare_outcome(run_lesson(lesson), "local") == ""


def test_compare(quiet_project: Path) -> None:
    lesson = lessons()[0]
    fresh = Outcome(lesson, 0, "first\n", "", 0.1)
    assert compare_outcome(fresh, "local") == (
        f"0101_first.txt (local) has no transcript; {CAPTURE_AGAIN}"
    )
    path = transcript_path(lesson.name, "local")
    path.parent.mkdir(parents=True)
    path.write_text(header(lesson.name, "local") + "\nfirst\n")
    assert compare_outcome(fresh, "local") == ""
    path.write_text(header(lesson.name, "local") + "\nelse\n")
    assert compare_outcome(fresh, "local") == (
        "--- committed transcript\n+++ fresh run\n@@ -1 +1 @@\n-else\n+first\n"
        + CAPTURE_AGAIN
    )


@pytest.mark.parametrize(
    ("code", "status", "shown"),
    [
        ("raise SystemExit('it broke')", 1, "it broke\n"),
        ("import sys; print('a warning', file=sys.stderr)", 0, "a warning\n"),
    ],
)
def test_a_lesson_that_is_not_good_is_not_written(
    code: str, status: int, shown: str, quiet_project: Path
) -> None:
    path = quiet_project / "examples" / "0101_first.py"
    path.write_text(path.read_text() + code + "\n")
    with pytest.raises(LabError) as caught:
        capture(("local",))
    assert str(caught.value) == (
        f"0101_first (local) ended with {status}; it was not written:\nfirst\n{shown}"
    )
    assert not (quiet_project / "docs").exists()


def test_a_lesson_that_waited_in_vain_is_not_written(quiet_project: Path) -> None:
    path = quiet_project / "examples" / "0101_first.py"
    path.write_text(path.read_text() + "print('(waited 60 s, in vain)')\n")
    with pytest.raises(LabError, match=r"^0101_first waited in vain, so it was not "):
        capture(("local",))
    assert not (quiet_project / "docs").exists()


def test_a_lesson_that_lacks_something_is_not_written(
    quiet_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = quiet_project / "examples" / "0101_first.py"
    path.write_text(path.read_text() + "print('3 checks: 2 ok, 0 failed, 1 n/a')\n")
    session = contextlib.nullcontext(SimpleNamespace(kind="compose"))
    monkeypatch.setattr(cluster, "connect", lambda **_: session)
    with pytest.raises(LabError, match=r"^0101_first has checks that are n/a, so it "):
        capture(("compose",))
    assert not (quiet_project / "docs").exists()


def test_the_host_name_is_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "ada.local")
    assert without_host("on ada.local, not on adaXlocal") == "on here, not on adaXlocal"
    assert without_host("ada.local  12\nworker-01  7\n") == (
        "here       12\nworker-01  7\n"
    )


def test_capture_wants_the_compose_cluster(
    quiet_project: Path, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_PORT", str(closed_port))
    with pytest.raises(LabError, match="'make up' starts the cluster"):
        capture()
    assert not (quiet_project / "docs").exists()


@pytest.mark.parametrize("kind", transcripts.KINDS)
def test_where_a_transcript_stands(kind: Kind, project: Path) -> None:
    assert transcript_path("0101_first", kind) == (
        project / "docs" / "transcripts" / kind / "0101_first.txt"
    )
