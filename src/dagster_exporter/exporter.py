"""Puts the parts together: settings in, a poller and a server out."""

import asyncio
import signal
import time

from dagster_exporter import __version__, log
from dagster_exporter.client import Client
from dagster_exporter.collectors import Collector
from dagster_exporter.collectors.active_runs import ActiveRuns
from dagster_exporter.collectors.assets import Assets
from dagster_exporter.collectors.code_locations import CodeLocations
from dagster_exporter.collectors.completed_runs import CompletedRuns
from dagster_exporter.collectors.daemons import Daemons
from dagster_exporter.collectors.instigators import Instigators
from dagster_exporter.collectors.op_pools import OpPools
from dagster_exporter.poller import Poller
from dagster_exporter.roster import Roster
from dagster_exporter.server import Server
from dagster_exporter.settings import Settings, SettingsError
from dagster_exporter.state import State
from dagster_exporter.state_file import StateFile
from dagster_exporter.totals import Totals
from dagster_exporter.window import Window


class Exporter:
    """An exporter for one Dagster.

    The floor under what is counted is fixed here, when the process starts, and not
    when Dagster first answers: runs that end while it hangs are counted later.
    Raises ``SettingsError`` where the state file or the address to listen at is bad.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        margin = settings.safety_margin
        floor = time.time() - settings.look_back
        state_file, totals = None, None
        if settings.state_file:
            state_file = StateFile(settings.state_file, settings.endpoint)
            totals = state_file.load(margin)
        totals = totals or Totals(Window(floor, margin))
        self.client = Client(settings)
        roster, pages = Roster(), settings.page_size
        self.collectors: list[Collector] = [
            CodeLocations(self.client, roster),
            ActiveRuns(self.client, roster, pages),
            CompletedRuns(self.client, roster, pages, totals, state_file),
            Daemons(self.client),
            Instigators(self.client),
            OpPools(self.client),
            Assets(self.client, Window(floor, margin)),
        ]
        self.state = State(collector.name for collector in self.collectors)
        self.poller = Poller(self.collectors, self.state, settings.interval)
        try:
            self.server = Server(settings.listen, self.state)
        except (OSError, OverflowError):
            host, port = settings.listen
            raise SettingsError(f"cannot listen at {host}:{port}.") from None

    async def run(self) -> None:
        """Poll and serve until SIGTERM or SIGINT."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        self.server.serve_in_background()
        log.info(
            "started",
            version=__version__,
            endpoint=self.settings.endpoint,
            port=self.server.port,
        )
        polling = asyncio.create_task(self.poller.run())
        stopping = asyncio.create_task(stopped.wait())
        try:
            # Polling ends only by a fault of the exporter: then so does the process.
            await asyncio.wait({polling, stopping}, return_when="FIRST_COMPLETED")
        finally:
            polling.cancel()
            stopping.cancel()
            results = await asyncio.gather(polling, stopping, return_exceptions=True)
            self.server.stop()
            await self.client.close()
            log.info("stopped")
        fault = results[0]
        if isinstance(fault, Exception):
            raise fault
