"""What the exporter costs: memory, poll time, and how long a scrape takes.

``python -m dagster_exporter.costs`` prints the figures; ``make bench`` can show them.
Exporters and stand-ins for Dagster run as processes of their own.
"""

import http.client
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

SETTLED = 5
"""Polls after the first one that are measured."""

SCRAPES = 1500
PAUSE = 0.01
"""Seconds between scrapes, which so go on for several polls."""

LIMIT = 300.0
"""Seconds for each step, on a machine that is busy with other things."""


@dataclass(frozen=True)
class ExporterCosts:
    """Plain figures; times in seconds, sizes in bytes."""

    scrape_median: dict[str, float]
    """Of ``/metrics``, with Dagster ``healthy``, ``frozen`` and ``gone``."""
    scrape_p99: dict[str, float]
    resident: dict[int, int]
    """Memory after some polls, by the number of finished runs."""
    first_poll: dict[int, float]
    """The look-back over all of them, once."""
    later_poll: dict[int, float]
    """The median of those after it."""


def exporter_costs(
    scrapes: int = SCRAPES, histories: Sequence[int] = (1_000, 100_000)
) -> ExporterCosts:
    """Measure; takes about a minute.

    The three states of Dagster are scraped in turns, so that what else the machine
    does falls upon all of them alike.
    """
    resident, first, later = {}, {}, {}
    for finished in histories:
        with ExitStack() as stack:
            _, exporter = _watched_stand_in(stack, finished, interval=1)
            first[finished] = exporter.poll_seconds()
            polls = [exporter.next_poll_seconds() for _ in range(SETTLED)]
            later[finished] = statistics.median(polls)
            resident[finished] = exporter.resident()
    taken = _scrape_in_turns(scrapes)
    return ExporterCosts(
        {state: statistics.median(all_) for state, all_ in taken.items()},
        {state: statistics.quantiles(all_, n=100)[98] for state, all_ in taken.items()},
        resident,
        first,
        later,
    )


def _scrape_in_turns(scrapes: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {"healthy": [], "frozen": [], "gone": []}
    with ExitStack() as stack:
        watched = {
            state: _watched_stand_in(stack, 1_000, interval=5) for state in taken
        }
        watched["frozen"][0].send_signal(signal.SIGSTOP)
        watched["gone"][0].kill()
        for state in ("frozen", "gone"):
            watched[state][1].wait_for_failure()
        for _ in range(scrapes):
            for state, (_, exporter) in watched.items():
                start = time.perf_counter()
                exporter.get("/metrics")
                taken[state].append(time.perf_counter() - start)
            time.sleep(PAUSE)
    return taken


class _Exporter:
    """A running exporter, as seen from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stderr
        self._port = json.loads(process.stderr.readline())["port"]
        _wait_for(lambda: self.get("/readyz")[0] == 200)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def value(self, series: str) -> float:
        """The number behind a series, written as the exporter writes it."""
        found = self.get("/metrics")[1].partition(f"\n{series} ")[2].partition("\n")[0]
        return float(found)

    def poll_seconds(self) -> float:
        """How long the last poll for completed runs took."""
        return self.value(_about_runs("scrape_duration_seconds"))

    def next_poll_seconds(self) -> float:
        """The same for the next one."""
        series = _about_runs("last_success_timestamp_seconds")
        before = self.value(series)
        _wait_for(lambda: self.value(series) != before)
        return self.poll_seconds()

    def wait_for_failure(self) -> None:
        """Return once a poll has failed."""
        _wait_for(lambda: self.value(_about_runs("scrape_errors_total")) > 0)

    def resident(self) -> int:
        """Memory, as the kernel counts it."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def _about_runs(name: str) -> str:
    return f'dagster_exporter_{name}{{collector="completed_runs"}}'


def _watched_stand_in(
    stack: ExitStack, finished: int, interval: float
) -> tuple[subprocess.Popen[str], _Exporter]:
    """A stand-in for Dagster, and an exporter that has polled it, until the end."""
    stand_in = stack.enter_context(_python("dagster_exporter.stand_in", str(finished)))
    assert stand_in.stdout
    process = stack.enter_context(
        _python(
            "dagster_exporter",
            f"--endpoint={stand_in.stdout.readline().strip()}",
            "--listen=127.0.0.1:0",
            f"--interval={interval}",
            "--timeout=5",
            "--look-back=31536000",
        )
    )
    return stand_in, _Exporter(process)


@contextmanager
def _python(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"an exporter that is measured: {LIMIT:g} s")
        time.sleep(0.05)


def main() -> None:
    """Print the figures, a line each."""
    costs = exporter_costs()
    for state, median in costs.scrape_median.items():
        p99 = costs.scrape_p99[state]
        print(f"/metrics, {state}: {median * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")
    for finished, size in costs.resident.items():
        first, later = costs.first_poll[finished], costs.later_poll[finished]
        print(
            f"{finished} finished runs: {size / 2**20:.1f} MiB, first poll "
            f"{first:.2f} s, later {later * 1e3:.0f} ms"
        )


if __name__ == "__main__":
    main()
