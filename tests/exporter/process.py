"""The exporter as a process, as people run it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from support import eventually

from .samples import Samples


class Process:
    """A running exporter; what it logs goes into a file."""

    def __init__(
        self, log: Path, endpoint: str, *arguments: str, environ: Mapping[str, str] = {}
    ) -> None:
        self._log = log
        command = [sys.executable, "-m", "dagster_exporter", "--endpoint", endpoint]
        command += ["--listen", "127.0.0.1:0", "--interval", "0.5", *arguments]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, env={**os.environ, **environ}
            )
        # One for all: each new one reads every certificate of the system.
        self._http = httpx.Client(timeout=30)

    def wait_until_started(self) -> None:
        """Return as soon as it listens."""
        eventually(lambda: '"started"' in self.log() or self.ended(), "its start")
        port = self.log().partition('"port": ')[2].partition("}")[0]
        assert port, self.log()
        self._http.base_url = httpx.URL(f"http://127.0.0.1:{port}")

    @property
    def url(self) -> str:
        """Where it listens."""
        return str(self._http.base_url)

    def ended(self) -> bool:
        """Whether the process is no more."""
        return self.process.poll() is not None

    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()

    def get(self, path: str) -> httpx.Response:
        """Ask the exporter."""
        return self._http.get(path)

    def samples(self) -> Samples:
        """Scrape."""
        return Samples(self.get("/metrics").text)

    def value(self, name: str, **labels: str) -> float | None:
        """One series of a new scrape."""
        return self.samples().get(name, **labels)

    def reads(self, wanted: float, name: str, **labels: str) -> None:
        """Return as soon as the series has this value."""
        what = f"{name}{labels} to be {wanted}"
        eventually(lambda: self.value(name, **labels) == wanted, what)

    def ready(self) -> None:
        """Return as soon as every collector has had a good poll."""
        eventually(lambda: self.get("/readyz").status_code == 200, "/readyz")

    def poll_again(self, *collectors: str) -> None:
        """Return after a poll of each that began after now."""
        name = "dagster_exporter_last_success_timestamp_seconds"
        for collector in collectors:
            # The first to end may have begun before; the second has not.
            for _ in range(2):
                before = self.value(name, collector=collector)

                def newer(seen: float | None = before, which: str = collector) -> bool:
                    return self.value(name, collector=which) != seen

                eventually(newer, f"another good poll of {collector}")

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        self._http.close()

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        self._http.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def exporter(
    folder: Path, endpoint: str, *arguments: str, environ: Mapping[str, str] = {}
) -> Iterator[Process]:
    """An exporter that logs into ``folder``, for the length of a block."""
    log = folder / f"exporter-{len(list(folder.iterdir()))}.log"
    process = Process(log, endpoint, *arguments, environ=environ)
    try:
        process.wait_until_started()
        yield process
    finally:
        process.close()
