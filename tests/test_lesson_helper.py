"""What all lessons share: tables, bars, checks, the summary, the exit status."""

import contextlib
import io
import math
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from dask_cluster_lab import lesson as module
from dask_cluster_lab.cluster import ClusterSession, Kind
from dask_cluster_lab.errors import ChecksFailed, LabError, UsageError
from dask_cluster_lab.lesson import Check, Lesson, Need, fail, run, say
from dask_cluster_lab.wire import NoWire, WireMeter

if TYPE_CHECKING:
    from distributed import Client

Capture = pytest.CaptureFixture[str]
ROOM = 60.0
LONG_CLAIM = "a claim that is much longer than what fits into one line of eighty"


def session_of(kind: Kind, workers: int = 2) -> ClusterSession:
    """A session without a cluster."""
    session = ClusterSession(cast("Client", None), kind, "tcp://127.0.0.1:1", "")
    session.workers = lambda: [None] * workers  # type: ignore
    return session


@pytest.fixture
def lesson() -> Lesson:
    """A lesson that was not entered, to try its parts."""
    return Lesson(session_of("local"))


class Terminal(io.StringIO):
    """A standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def terminal() -> Iterator[Terminal]:
    # No fixture: pytest exchanges sys.stdout between a fixture and its test.
    with contextlib.redirect_stdout(Terminal()) as shown:
        yield shown


# Sections, tables, bars


def test_a_section(lesson: Lesson, capsys: Capture) -> None:
    lesson.section("Where tasks land")
    assert capsys.readouterr().out == "\nWhere tasks land\n----------------\n"


def test_a_table(lesson: Lesson, capsys: Capture) -> None:
    lesson.table(
        ["worker", "tasks", "GiB", "busy"],
        [("tcp://a:1", 1234567, 1.5, True), ("tcp://bcd:2", 3, 1234.5, False)],
    )
    assert capsys.readouterr().out == (
        "\n"
        "  worker           tasks    GiB  busy\n"
        "  -----------  ---------  -----  ----\n"
        "  tcp://a:1    1,234,567    1.5  yes\n"
        "  tcp://bcd:2          3  1,234  no\n"
        "\n"
    )


def test_a_table_of_numpy_values(lesson: Lesson, capsys: Capture) -> None:
    lesson.table(
        ["n", "mean", "small", "good"],
        [
            (np.int64(1234567), np.float64(2.0), np.float32(0.25), np.bool_(True)),
            (np.int64(5), np.float64(math.nan), np.float32(1.0), np.bool_(False)),
        ],
    )
    assert capsys.readouterr().out == (
        "\n"
        "          n  mean  small  good\n"
        "  ---------  ----  -----  ----\n"
        "  1,234,567     2   0.25  yes\n"
        "          5   n/a      1  no\n"
        "\n"
    )


def test_a_column_of_words_and_numbers_goes_left(
    lesson: Lesson, capsys: Capture
) -> None:
    lesson.table(["what", "value"], [("a", 1), ("b", "none at all")])
    assert capsys.readouterr().out.splitlines()[3:5] == [
        "  a     1",
        "  b     none at all",
    ]


def test_an_empty_table(lesson: Lesson, capsys: Capture) -> None:
    lesson.table(["who", "what"], [])
    assert capsys.readouterr().out == "\n  who  what\n  ---  ----\n\n"


def test_a_table_takes_a_generator_and_no_uneven_rows(
    lesson: Lesson, capsys: Capture
) -> None:
    lesson.table(["square"], ((n * n,) for n in range(3)))
    assert capsys.readouterr().out.split() == ["square", "------", "0", "1", "4"]
    with pytest.raises((IndexError, ValueError)):
        lesson.table(["a", "b"], [(1,)])
    with pytest.raises(ValueError, match="shorter"):
        lesson.table(["a"], [(1, 2)])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.123456, "0.123"),
        (12.0, "12"),
        (-1.5, "-1.5"),
        (99.96, "100"),
        (999.4, "999"),
        (999.5, "1,000"),
        (999.9, "1,000"),
        (-999.9, "-1,000"),
        (1000.4, "1,000"),
        (123456.7, "123,457"),
        (1e-6, "1e-06"),
        (math.nan, "n/a"),
        (math.inf, "inf"),
        (1000, "1,000"),
        (True, "yes"),
        (False, "no"),
        (None, "None"),
        ("text", "text"),
    ],
)
def test_how_values_are_written(value: object, text: str) -> None:
    assert module._cell(value) == text


def test_bars(lesson: Lesson, capsys: Capture) -> None:
    lesson.bars([("one", 10.0), ("three", 30.0), ("none", 0.0)], unit="MB")
    assert capsys.readouterr().out == (
        "\n"
        f"  one    {'#' * 10:<30}  10 MB\n"
        f"  three  {'#' * 30}  30 MB\n"
        f"  none   {'':<30}  0 MB\n"
        "\n"
    )


def test_bars_of_nothing(lesson: Lesson, capsys: Capture) -> None:
    lesson.bars([])
    assert capsys.readouterr().out == "\n\n"
    lesson.bars([("no wire", math.nan), ("zero", 0.0)])
    assert capsys.readouterr().out.splitlines()[1:3] == [
        f"  no wire  {'':<30}  n/a",
        f"  zero     {'':<30}  0",
    ]
    lesson.bars([("no wire", math.nan), ("some", 5)])
    assert capsys.readouterr().out.splitlines()[2] == f"  some     {'#' * 30}  5"


# Checks


def test_a_check_that_holds(lesson: Lesson, capsys: Capture) -> None:
    lesson.check("the sum is the same", np.bool_(True), "10 and 10")
    lesson.check("no evidence", True)
    assert capsys.readouterr().out == (
        "ok   the sum is the same: 10 and 10\nok   no evidence\n"
    )
    assert lesson.checks == [
        Check("ok", "the sum is the same", "10 and 10"),
        Check("ok", "no evidence", ""),
    ]


def test_a_check_that_does_not_hold(lesson: Lesson, capsys: Capture) -> None:
    falsy: list[object] = [False, 0, "", [], np.bool_(False)]
    for nothing in falsy:
        lesson.check("the sum is the same", nothing, "10 and 11")
    assert capsys.readouterr().out == "FAIL the sum is the same: 10 and 11\n" * 5
    assert {check.mark for check in lesson.checks} == {"FAIL"}


@pytest.mark.parametrize(
    ("need", "kind", "workers", "reason"),
    [
        ("processes", "local", 2, "needs separate processes"),
        ("processes", "remote", 2, None),
        ("processes", "compose", 2, None),
        ("containers", "local", 2, "needs the Compose cluster"),
        ("containers", "remote", 2, "needs the Compose cluster"),
        ("containers", "compose", 2, None),
        ("two workers", "compose", 1, "needs two workers"),
        ("two workers", "local", 2, None),
        (
            "disruption",
            "remote",
            2,
            "disturbs workers: set DASK_LAB_ALLOW_DISRUPTION=1 "
            "on a cluster of your own",
        ),
        ("disruption", "compose", 2, None),
        ("wire", "compose", 2, "needs a wire to a scheduler"),
    ],
)
@pytest.mark.parametrize("holds", [True, False])
def test_needs(
    need: Need, kind: Kind, workers: int, reason: str | None, holds: bool
) -> None:
    lesson = Lesson(session_of(kind, workers))
    lesson.check("a claim", holds, "seen", needs=need)
    assert lesson.can(need) is (reason is None)
    assert lesson.checks == [
        Check("ok" if holds else "FAIL", "a claim", "seen")
        if reason is None
        else Check("n/a", "a claim", reason)
    ]


def test_needs_a_wire() -> None:
    session = session_of("compose")
    session.wire = WireMeter("127.0.0.1", 1)
    lesson = Lesson(session)
    lesson.check("bytes passed", False, "0", needs="wire")
    assert lesson.checks[0].mark == "FAIL"
    session.wire.close()
    session.wire = NoWire()
    lesson.check("bytes passed", math.nan > 5, "nan", needs="wire")
    assert lesson.checks[1].mark == "n/a"


def test_disruption_that_the_user_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_LAB_ALLOW_DISRUPTION", "1")
    assert Lesson(session_of("remote")).can("disruption") is True
    assert Lesson(session_of("local")).can("disruption") is False


@pytest.mark.parametrize("mark", ["ok", "FAIL", "n/a"])
@pytest.mark.parametrize("length", [1, 20, 70, 75, 76, 200, 1000])
def test_no_line_is_wider_than_the_page(
    mark: module.Mark, length: int, capsys: Capture
) -> None:
    words = (LONG_CLAIM + " ") * (length // len(LONG_CLAIM) + 1)
    claim = " ".join(words.split())[:length].strip()
    text = module._marked(mark, f"{claim}: {'x' * length}")
    lines = text.splitlines()
    assert lines[0].startswith(mark.ljust(5))
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith(" " * 5) for line in lines[1:])
    assert "".join(text.split()) == "".join(f"{mark}{claim}:{'x' * length}".split())
    say(text)
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())


def test_say(capsys: Capture) -> None:
    say("  one\n   two  ")
    say("word " * 30)
    assert capsys.readouterr().out == (
        "one two\n" + "word " * 15 + "word\n" + "word " * 13 + "word\n"
    )


# Colour


def test_a_terminal_shows_colours(lesson: Lesson) -> None:
    with terminal() as shown:
        lesson.check("good", True)
        lesson.check("bad", False)
        lesson.check("absent", False, needs="processes")
    assert shown.getvalue() == (
        "\033[32mok\033[0m   good\n"
        "\033[31mFAIL\033[0m bad\n"
        "\033[33mn/a\033[0m  absent: needs separate processes\n"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [("1", "ok   good\n"), ("0", "ok   good\n"), ("", "\033[32mok\033[0m   good\n")],
)
def test_no_color(
    value: str, shown: str, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    with terminal() as screen:
        lesson.check("good", True)
    assert screen.getvalue() == shown


# Waiting


def test_until_it_holds(lesson: Lesson, capsys: Capture) -> None:
    answers = iter([0, "", None, "yes"])
    assert lesson.until(lambda: next(answers), "the answer") is True
    assert capsys.readouterr().out == ""


def test_until_in_vain(lesson: Lesson, capsys: Capture) -> None:
    start = time.monotonic()
    assert lesson.until(lambda: False, "the release", seconds=0.2) is False
    assert 0.2 < time.monotonic() - start < ROOM
    assert capsys.readouterr().out == "(waited 0.2 s for the release, in vain)\n"


def test_until_workers(lesson: Lesson, capsys: Capture) -> None:
    def worker(name: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(address=name)

    states = iter([["a", "b", "c"], ["a", "b"], ["b", "d"]])
    lesson.session.workers = lambda: [*map(worker, next(states))]  # type: ignore
    assert lesson.until_workers(2, without=["a"]) is True
    assert next(states, None) is None, "three, and the one that is to go, did not do"
    lesson.session.workers = lambda: [worker("a")]  # type: ignore
    assert lesson.until_workers(2, seconds=0.2) is False


def test_until_asks_at_least_once(lesson: Lesson) -> None:
    assert lesson.until(lambda: True, "nothing", seconds=0) is True


def test_until_passes_errors_on(lesson: Lesson) -> None:
    with pytest.raises(ZeroDivisionError):
        lesson.until(lambda: 1 / 0, "nothing")


def test_until_shows_progress_on_a_terminal(
    lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def a_second_later() -> bool:
        now[0] += 1
        return now[0] > 6

    clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None)
    monkeypatch.setattr(module, "time", clock)
    with terminal() as screen:
        found = lesson.until(a_second_later, "the key", seconds=10)
        given_up = lesson.until(lambda: a_second_later() and False, "this", seconds=2)
    assert (found, given_up) == (True, False)
    assert screen.getvalue() == (
        "\r\033[Kwaiting for the key: 3 of at most 10 s"
        "\r\033[Kwaiting for the key: 4 of at most 10 s"
        "\r\033[Kwaiting for the key: 5 of at most 10 s"
        "\r\033[Kwaiting for the key: 6 of at most 10 s"
        "\r\033[K"
        "\r\033[K(waited 2 s for this, in vain)\n"
    )


# The whole lesson


@pytest.fixture
def as_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lesson's own file is the main program."""
    script = types.SimpleNamespace(
        __doc__="Publish once.\n\nWhat: more.", __file__="/x/examples/0202_scatter.py"
    )
    monkeypatch.setattr(module, "__main__", script)


def test_a_lesson_from_title_to_summary(as_script: None, capsys: Capture) -> None:
    with Lesson(session_of("local")) as lesson:
        lesson.check("it holds", True, "1 and 1")
        lesson.check("it cannot be seen", True, "2", needs="containers")
    assert capsys.readouterr().out == (
        "0202_scatter: Publish once.\n"
        "ok   it holds: 1 and 1\n"
        "n/a  it cannot be seen: needs the Compose cluster\n"
        "\nSummary\n-------\n"
        "ok   it holds\n"
        "n/a  it cannot be seen\n"
        "2 checks: 1 ok, 0 failed, 1 n/a\n"
    )


def some_checks(*verdicts: bool) -> Lesson:
    with Lesson(session_of("local")) as lesson:
        for number, verdict in enumerate(verdicts):
            lesson.check(f"claim {number}", verdict, f"evidence {number}")
    return lesson


def test_a_failed_check_is_shown_again_with_its_numbers(capsys: Capture) -> None:
    with pytest.raises(ChecksFailed, match=r"^2 of 3 checks failed\.$") as caught:
        some_checks(False, True, False)
    assert caught.value.exit_status == 1
    assert capsys.readouterr().out.endswith(
        "\nSummary\n-------\n"
        "FAIL claim 0: evidence 0\n"
        "ok   claim 1\n"
        "FAIL claim 2: evidence 2\n"
        "3 checks: 1 ok, 2 failed, 0 n/a\n"
    )


def test_a_lesson_without_checks(capsys: Capture) -> None:
    assert some_checks().checks == []
    assert capsys.readouterr().out.endswith("0 checks: 0 ok, 0 failed, 0 n/a\n")


def test_an_error_in_a_lesson_passes_without_summary(capsys: Capture) -> None:
    lesson = Lesson(session_of("local"))
    with pytest.raises(ZeroDivisionError), lesson:
        lesson.check("a claim", 1 / 0)
    assert "Summary" not in capsys.readouterr().out
    lesson._watchdog.join(ROOM)
    assert not lesson._watchdog.is_alive()


# Exit statuses


def raising(error: BaseException) -> Callable[[], None]:
    def main() -> None:
        raise error

    return main


def test_a_good_run_returns(capsys: Capture) -> None:
    run(lambda: None)
    run(lambda: some_checks(True).section("more"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("main", "status", "text"),
    [
        (lambda: some_checks(False), 1, "error: 1 of 1 checks failed.\n"),
        (raising(LabError("no workers.")), 1, "error: no workers.\n"),
        (raising(UsageError("a typo.")), 2, "error: a typo.\n"),
        (raising(KeyboardInterrupt()), 130, "interrupted; the client is closed.\n"),
    ],
)
def test_exit_statuses(
    main: Callable[[], Any], status: int, text: str, capsys: Capture
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(main)
    assert caught.value.code == status
    assert capsys.readouterr().err == text


def test_an_error_in_the_lessons_code_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run(raising(ZeroDivisionError()))


def test_fail_without_a_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    assert fail(UsageError("nobody reads this")) == 2


SCRIPT = '''"""A title."""
import threading
from dask_cluster_lab.cluster import ClusterSession
from dask_cluster_lab.lesson import Lesson, run

def main():
    with Lesson(ClusterSession(None, "local", "", "")) as lesson:
        lesson.check("first", True)
        {body}

run(main)
'''


def start(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # However this test itself was started, Ctrl-C reaches the lesson.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_ctrl_c() -> None:
    with start("threading.Event().wait(60)") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # Line by line as it happens, although it is a pipe.
        assert process.stdout.readline() == ": A title.\n"
        assert process.stdout.readline() == "ok   first\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(ROOM) == 130
        assert process.stderr.read() == "interrupted; the client is closed.\n"
        assert process.stdout.read() == ""


def test_a_reader_that_goes_away() -> None:
    with start("[lesson.check('more', True) for _ in range(100_000)]") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(ROOM) == 141


def test_a_good_script_exits_with_0() -> None:
    with start("pass") as process:
        out, err = process.communicate(timeout=ROOM)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("ok   first\n1 checks: 1 ok, 0 failed, 0 n/a\n")
