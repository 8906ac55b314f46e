"""What all lessons look like: sections, tables, bars, checks, summary, exit status.

A lesson is ``with connect() as session, Lesson(session) as lesson:`` followed by plain
Dask code, and is started by ``run(main)``. The Dask code stays in the lesson; this
module holds only what would otherwise be said in each of them.
"""

import contextlib
import errno
import math
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import __main__
from dask_cluster_lab.cluster import ClusterSession
from dask_cluster_lab.containers import at_hand
from dask_cluster_lab.errors import ChecksFailed, LabError
from dask_cluster_lab.watchdog import Watchdog

WIDTH = 80
LESSON_SECONDS = 120

Mark = Literal["ok", "FAIL", "n/a"]
Need = Literal[
    "wire",
    "processes",
    "containers",
    "docker",
    "object store",
    "prometheus",
    "pushgateway",
    "dagster",
    "two workers",
    "disruption",
]


def _dagster_at_hand(session: ClusterSession) -> bool:
    from dask_cluster_lab.orchestrator.watched import at_hand

    return at_hand(session)


_NEEDS: dict[Need, tuple[Callable[[ClusterSession], bool], str]] = {
    "wire": (lambda session: session.wire.present, "needs a wire to a scheduler"),
    "processes": (lambda session: session.kind != "local", "needs separate processes"),
    "containers": (
        lambda session: session.kind == "compose",
        "needs the Compose cluster",
    ),
    "docker": (
        at_hand,
        "needs the Compose cluster and its docker command",
    ),
    "object store": (
        lambda session: bool(session.object_store),
        "needs an object store: 'make up PROFILE=storage' brings one",
    ),
    "prometheus": (
        lambda session: bool(session.prometheus),
        "needs Prometheus: 'make up PROFILE=monitoring' brings one",
    ),
    "pushgateway": (
        lambda session: bool(session.pushgateway),
        "needs Pushgateway: 'make up PROFILE=monitoring' brings one",
    ),
    "dagster": (
        _dagster_at_hand,
        "needs Dagster: 'make up PROFILE=orchestrator' brings one; without Docker "
        "'uv sync --project monitoring/dagster'",
    ),
    "two workers": (lambda session: len(session.workers()) > 1, "needs two workers"),
    "disruption": (
        lambda session: session.may_disrupt,
        "disturbs workers: set DASK_LAB_ALLOW_DISRUPTION=1 on a cluster of your own",
    ),
}
_COLOURS = {"ok": "32", "FAIL": "31", "n/a": "33"}


@dataclass(frozen=True)
class Check:
    """One claim, what became of it, and the numbers that show it."""

    mark: Mark
    claim: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.claim}: {self.evidence}" if self.evidence else self.claim


class Lesson:
    """Prints a lesson and keeps the score; leaving the ``with`` block prints a summary.

    Raises ``ChecksFailed`` at the end if any check failed, and ``LabError`` if the
    cluster was lost or ``seconds`` were over before the lesson ended.
    """

    def __init__(
        self, session: ClusterSession, seconds: float = LESSON_SECONDS
    ) -> None:
        self.session = session
        self.checks: list[Check] = []
        self._watchdog = Watchdog(session, seconds)

    def __enter__(self) -> "Lesson":
        title = (__main__.__doc__ or "").partition("\n")[0]
        name = Path(getattr(__main__, "__file__", "") or "").stem
        say(f"{name}: {title}")
        self._watchdog.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        verdict = self._watchdog.stop(error)
        if verdict is not None:
            raise verdict from None
        if error is None:
            self._summarise()

    def section(self, title: str) -> None:
        """Start a section."""
        print(f"\n{title}\n{'-' * len(title)}")

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print rows in columns: numbers to the right, words to the left."""
        print("", *format_table(headers, rows), "", sep="\n")

    def bars(self, rows: Iterable[tuple[str, float]], unit: str = "") -> None:
        """Print labelled values as horizontal bars, the longest 30 characters wide."""
        items = [(label, value) for label, value in rows]
        label_width = max((len(label) for label, _ in items), default=0)
        longest = max((value for _, value in items if not math.isnan(value)), default=0)
        print()
        for label, value in items:
            filled = (
                0 if math.isnan(value) or longest <= 0 else round(30 * value / longest)
            )
            bar = f"{'#' * filled:<30}"
            print(f"  {label:<{label_width}}  {bar}  {_cell(value)} {unit}".rstrip())
        print()

    def check(
        self, claim: str, holds: object, evidence: str = "", needs: Need | None = None
    ) -> None:
        """Record and print one claim; ``needs`` names what a session may not have.

        Where it has not, the claim is neither right nor wrong but ``n/a``.
        """
        if needs is not None and not _NEEDS[needs][0](self.session):
            check = Check("n/a", claim, _NEEDS[needs][1])
        else:
            check = Check("ok" if holds else "FAIL", claim, evidence)
        self.checks.append(check)
        print(_marked(check.mark, str(check)), flush=True)

    def can(self, need: Need) -> bool:
        """Whether this session has what ``need`` names."""
        return _NEEDS[need][0](self.session)

    def until(
        self, condition: Callable[[], object], what: str, seconds: float = 15
    ) -> bool:
        """Poll until ``condition()`` holds; say what it waited for if it never does."""
        start = time.monotonic()
        while True:
            if condition():
                _progress("")
                return True
            waited = time.monotonic() - start
            if waited > seconds:
                _progress("")
                say(f"(waited {seconds:g} s for {what}, in vain)")
                return False
            if waited > 2:
                _progress(f"waiting for {what}: {waited:.0f} of at most {seconds:g} s")
            time.sleep(0.05)

    def until_workers(
        self, number: int, without: Iterable[str] = (), seconds: float = 60
    ) -> bool:
        """Wait until so many workers are registered, and none ``without`` is."""
        gone = set(without)

        def there() -> bool:
            now = {worker.address for worker in self.session.workers()}
            return len(now) == number and not now & gone

        return self.until(there, f"{number} workers", seconds)

    def _summarise(self) -> None:
        self.section("Summary")
        for check in self.checks:
            print(
                _marked(check.mark, str(check) if check.mark == "FAIL" else check.claim)
            )
        count = {mark: sum(c.mark == mark for c in self.checks) for mark in _COLOURS}
        total = f"{count['ok']} ok, {count['FAIL']} failed, {count['n/a']} n/a"
        print(f"{len(self.checks)} checks: {total}", flush=True)
        if count["FAIL"]:
            raise ChecksFailed(f"{count['FAIL']} of {len(self.checks)} checks failed.")


def format_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """The lines of a table: a header, a rule, and a line for each row."""
    body = [[_plain(value) for value in row] for row in rows]
    cells = [list(headers)] + [[_cell(value) for value in row] for row in body]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    numeric = [
        bool(body) and all(type(row[i]) in (int, float) for row in body)
        for i in range(len(headers))
    ]
    cells.insert(1, ["-" * width for width in widths])
    lines = []
    for row in cells:
        columns = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  " + "  ".join(columns).rstrip())
    return lines


def say(text: str) -> None:
    """Print a paragraph, wrapped to the width of the page."""
    print(textwrap.fill(" ".join(text.split()), WIDTH), flush=True)


def run(main: Callable[[], None]) -> None:
    """Run a lesson's ``main`` and turn errors for people into one line and a status.

    0 all checks held, 1 one did not or the cluster failed, 2 wrong use, 130 Ctrl-C,
    141 the reader of the output went away.
    """
    if sys.stdout is None:  # closed by the shell, as in `... >&-`
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115, open to the end
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        main()
    except LabError as error:
        sys.exit(fail(error))
    except KeyboardInterrupt:
        print("interrupted; the client is closed.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(reader_gone())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        reader_gone()
        sys.exit(fail(LabError("the output cannot be written: no space left.")))


def reader_gone() -> int:
    """Nobody reads stdout any more (`... | head`): write to nowhere; status 141."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def fail(error: LabError) -> int:
    """Print an error for people on stderr; its exit status."""
    with contextlib.suppress(OSError):
        print(f"error: {error}", file=sys.stderr)
    return error.exit_status


def _plain(value: Any) -> Any:
    """NumPy's numbers and truth values as Python's own; all else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def _cell(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isnan(value):
            return "n/a"
        # From 999.5 on, three digits would be written as 1e+03.
        return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _marked(mark: Mark, text: str) -> str:
    wrapped = textwrap.fill(
        text, WIDTH, initial_indent=" " * 5, subsequent_indent=" " * 5
    )
    return _colour(mark) + wrapped[len(mark) :]


def _colour(mark: Mark) -> str:
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return f"\033[{_COLOURS[mark]}m{mark}\033[0m"
    return mark


def _progress(text: str) -> None:
    """Show ``text`` on a terminal's current line in place of what stood there."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)
