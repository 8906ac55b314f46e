"""Dagster with its exporter, and what a lesson may do to them.

The same faults in containers and in processes: frozen, gone, another server in its
place, gone on. What was done to them is undone at the end.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from dask_cluster_lab import containers
from dask_cluster_lab.cluster import (
    DAGSTER_DAEMON_SERVICE,
    DAGSTER_SERVICE,
    ClusterSession,
)
from dask_cluster_lab.metrics.prometheus import Series, scrape
from dask_cluster_lab.orchestrator import processes
from dask_cluster_lab.orchestrator.api import Dagster

PORT = 3000  # of Dagster, inside its container


class Exporter:
    """An exporter that serves at ``address``, as in ``http://127.0.0.1:9101``."""

    def __init__(self, address: str) -> None:
        self.address = address

    def scrape(self) -> dict[str, list[Series]]:
        """All series by name, as Prometheus would get them; ``LabError`` if none."""
        return scrape(self.address)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels; 0 without any."""
        return sum(
            series.value
            for series in self.scrape().get(name, [])
            if labels.items() <= series.labels.items()
        )


class Watched(Protocol):
    """Dagster and its exporter; the faults are those of Dagster's two processes."""

    label: str
    """One line for people: where they run."""
    dagster: Dagster
    exporter: Exporter

    def frozen_web(self) -> contextlib.AbstractContextManager[None]:
        """The webserver, which serves the API, neither answers nor ends."""

    def frozen_daemon(self) -> contextlib.AbstractContextManager[None]:
        """The daemon, which starts what waits in the queue, does nothing."""

    def stopped_web(self) -> contextlib.AbstractContextManager[None]:
        """The webserver is gone, at once; at the end it is back, and answers."""

    def other_server(self) -> contextlib.AbstractContextManager[None]:
        """Something else answers at the address of a webserver that is gone."""


class InContainers:
    """Those of the profile ``orchestrator``, beside a Compose cluster."""

    label = "Dagster and its exporter: containers beside the cluster"

    def __init__(self, session: ClusterSession) -> None:
        self.dagster = Dagster(f"{session.dagster}/graphql")
        self.exporter = Exporter(session.dagster_exporter)
        self._session = session
        (self._web,) = containers.service_containers(session, DAGSTER_SERVICE)
        (self._daemon,) = containers.service_containers(session, DAGSTER_DAEMON_SERVICE)

    def frozen_web(self) -> contextlib.AbstractContextManager[None]:
        """As ``Watched`` says."""
        return self._frozen(self._web)

    def frozen_daemon(self) -> contextlib.AbstractContextManager[None]:
        """As ``Watched`` says."""
        return self._frozen(self._daemon)

    @contextlib.contextmanager
    def _frozen(self, container: containers.Container) -> Iterator[None]:
        containers.pause(container)
        try:
            yield
        finally:
            containers.unpause(container)

    @contextlib.contextmanager
    def stopped_web(self) -> Iterator[None]:
        """As ``Watched`` says."""
        containers.stop(self._web)
        try:
            yield
        finally:
            containers.start(self._web)
        processes.wait_until(self.dagster.is_loaded, "Dagster's webserver")

    @contextlib.contextmanager
    def other_server(self) -> Iterator[None]:
        """As ``Watched`` says."""
        other = containers.other_server(self._session, DAGSTER_SERVICE, PORT)
        try:
            yield
        finally:
            containers.remove(other)


class InProcesses:
    """Processes of this machine, in a folder that exists already."""

    label = "Dagster and its exporter: processes of this machine, for this lesson"

    def __init__(self, local: processes.LocalDagster, exporter: str) -> None:
        self.dagster = local.dagster
        self.exporter = Exporter(exporter)
        self._local = local

    def frozen_web(self) -> contextlib.AbstractContextManager[None]:
        """As ``Watched`` says."""
        return self._local.frozen(self._local.web)

    def frozen_daemon(self) -> contextlib.AbstractContextManager[None]:
        """As ``Watched`` says."""
        return self._local.frozen(self._local.daemon)

    @contextlib.contextmanager
    def stopped_web(self) -> Iterator[None]:
        """As ``Watched`` says."""
        self._local.stop(self._local.web, patience=0)
        yield
        self._local.start_web()

    def other_server(self) -> contextlib.AbstractContextManager[None]:
        """As ``Watched`` says."""
        return processes.other_server(self._local.port)


def at_hand(session: ClusterSession) -> bool:
    """Whether ``watched`` has something to give to this session."""
    if session.kind != "compose":
        return processes.is_installed()
    there = session.dagster and session.dagster_exporter
    return bool(there) and containers.at_hand(session)


@contextlib.contextmanager
def watched(session: ClusterSession) -> Iterator[Watched]:
    """Dagster and an exporter that has polled all of it: see ``at_hand``.

    Those of a Compose session's own profile; elsewhere new ones, which end with the
    block. Raises ``LabError`` if they do not work.
    """
    with contextlib.ExitStack() as stack:
        found: Watched
        if session.kind != "compose":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            local = processes.LocalDagster(folder)
            stack.callback(local.close)
            local.start()
            address = stack.enter_context(
                processes.local_exporter(
                    local.dagster.endpoint, folder / "exporter.log"
                )
            )
            found = InProcesses(local, address)
        else:
            found = InContainers(session)
        processes.wait_until(lambda: is_ready(found.exporter), "the exporter")
        yield found


def is_ready(exporter: Exporter) -> bool:
    """Whether each collector's last poll was good."""
    last = exporter.scrape().get("dagster_exporter_last_scrape_success", [])
    return bool(last) and all(series.value for series in last)
