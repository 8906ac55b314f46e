"""A small file that keeps the totals over a restart, so that no run is missed.

It holds what ``totals`` has: the counts, the watermark, and the runs of the safety
margin. Writing replaces it in one step: a kill at any time leaves the old or the new.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dagster_exporter.settings import SettingsError
from dagster_exporter.totals import BUCKETS, Durations, Totals
from dagster_exporter.window import Window

FORMAT = 1


class StateFile:
    """The file at ``path``, about the Dagster at ``endpoint``."""

    def __init__(self, path: Path, endpoint: str) -> None:
        self._path = path
        self._endpoint = endpoint
        self._written = ""
        self.errors = 0

    def load(self, margin: float) -> Totals | None:
        """The totals of the last time; ``None`` if there is no file yet.

        Raises ``SettingsError`` for a file that is something else.
        """
        try:
            kept = json.loads(self._path.read_text("utf-8"))
            if kept["format"] != FORMAT or kept["buckets"] != list(BUCKETS):
                raise ValueError
            endpoint, totals = kept["endpoint"], _totals(kept, margin)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise SettingsError(
                f"the state file {self._path} cannot be used: move it away, and the "
                "totals start anew."
            ) from None
        if endpoint != self._endpoint:
            raise SettingsError(
                f"the state file {self._path} is about {endpoint}, and the endpoint is "
                f"{self._endpoint}: give each Dagster a file of its own."
            )
        return totals

    def save(self, totals: Totals) -> None:
        """Write the totals if they changed; a failure to do so is counted."""
        text = json.dumps(self._kept(totals))
        if text == self._written:
            return
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            self._written = text
        except OSError:
            self.errors += 1

    def _kept(self, totals: Totals) -> dict[str, Any]:
        window = totals.window
        return {
            "format": FORMAT,
            "endpoint": self._endpoint,
            "buckets": BUCKETS,
            "floor": window.floor,
            "watermark": window.watermark,
            "seen": [[*key, ended] for key, ended in window.seen.items()],
            "runs": [[*key, count] for key, count in totals.runs.items()],
            "durations": _histograms(totals.durations),
            "waits": _histograms(totals.waits),
        }


def _histograms(found: dict[tuple[str, str], Durations]) -> list[list[Any]]:
    return [[*job, asdict(one)] for job, one in found.items()]


def _totals(kept: dict[str, Any], margin: float) -> Totals:
    window: Window[tuple[str, str]] = Window(float(kept["floor"]), margin)
    window.watermark = float(kept["watermark"])
    window.seen = {(run, status): float(at) for run, status, at in kept["seen"]}
    return Totals(
        window=window,
        runs={(job, where, how): int(n) for job, where, how, n in kept["runs"]},
        durations={(job, at): Durations(**one) for job, at, one in kept["durations"]},
        waits={(job, at): Durations(**one) for job, at, one in kept["waits"]},
    )
