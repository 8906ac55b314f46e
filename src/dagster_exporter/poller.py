"""Polls Dagster in the background: each collector for itself, at a fixed rhythm.

A collector that hangs or fails holds up no other, and nothing here is waited for by
whoever reads ``/metrics``.
"""

import asyncio
import time
from collections.abc import Iterable

from dagster_exporter import log
from dagster_exporter.collectors import Collector
from dagster_exporter.failures import Failure
from dagster_exporter.state import State


class Poller:
    """Runs the collectors every ``interval`` seconds and writes into ``state``."""

    def __init__(
        self, collectors: Iterable[Collector], state: State, interval: float
    ) -> None:
        self._collectors = list(collectors)
        self._state = state
        self._interval = interval
        self._trouble: dict[str, str] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        async with asyncio.TaskGroup() as group:
            for collector in self._collectors:
                group.create_task(self._keep_polling(collector))

    async def _keep_polling(self, collector: Collector) -> None:
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            await self.poll(collector)
            due += self._interval
            if clock() > due:
                self._state.overrun(collector.name)
                # What was missed is not made up for: the next one in the rhythm.
                due += (clock() - due) // self._interval * self._interval
                due += self._interval
            await asyncio.sleep(due - clock())

    async def poll(self, collector: Collector) -> None:
        """One poll; whatever goes wrong in it is recorded, and ends here."""
        name, start = collector.name, time.monotonic()
        try:
            families = await collector.poll()
            # Rendering can fail, too: also that is this collector's failure alone.
            self._state.good(name, families, time.monotonic() - start)
        except Failure as failure:
            self._failed(name, failure.reason, time.monotonic() - start, failure)
        except Exception as error:
            self._failed(name, "internal", time.monotonic() - start, error)
        else:
            if self._trouble.pop(name, None):
                log.info("poll works again", collector=name)

    def _failed(self, name: str, reason: str, seconds: float, error: Exception) -> None:
        self._state.failed(name, reason, seconds)
        # Once for each trouble and not for each poll; the metrics count them all.
        if self._trouble.get(name) == reason:
            return
        self._trouble[name] = reason
        fields: dict[str, object] = {"collector": name, "reason": reason}
        if reason == "internal":
            fields |= {
                "error": type(error).__name__,
                "at": log.where(error.__traceback__),
            }
        else:
            fields |= {"detail": str(error)}
        log.warning("poll failed", **fields)
