"""Schedules and sensors (Dagster calls both instigators): on or off, their ticks."""

import time
from dataclasses import dataclass

from dagster_exporter import metrics
from dagster_exporter.answers import (
    Asks,
    Node,
    child,
    children,
    member,
    number,
    optional_number,
    text,
)
from dagster_exporter.failures import Failure
from dagster_exporter.metrics import Family

LONG_AGO = 1.0
"""Ticks after this Unix time. Without a bound some versions give none for limit 1."""

Name = tuple[str, str]
"""The name of a schedule or sensor, and its location."""


@dataclass(frozen=True)
class Instigator:
    """A schedule or sensor: its status, and its last tick if there was one."""

    name: Name
    status: str
    tick_status: str | None
    tick_time: float | None


class Instigators:
    """Remembers since when a schedule has been late, which no single answer tells."""

    name = "definitions_roster"  # the Go exporter's name for who asks this

    def __init__(self, client: Asks) -> None:
        self._client = client
        self._missed: dict[Name, float] = {}

    async def poll(self) -> list[Family]:
        """One request."""
        answer = await self._client.ask("instigators", ticksAfter=LONG_AGO)
        workspace = member(answer, "workspaceOrError", "Workspace")
        schedules: list[Instigator] = []
        sensors: list[Instigator] = []
        missed: dict[Name, float] = {}
        now = time.time()
        for where, repository in _repositories(workspace):
            for node in children(repository, "schedules"):
                state = child(node, "scheduleState")
                schedule = _instigator(node, state, where)
                schedules.append(schedule)
                remembered = self._missed.get(schedule.name)
                since = first_missed(schedule, node, state, now, remembered)
                if since is not None:
                    missed[schedule.name] = since
            for node in children(repository, "sensors"):
                sensors.append(_instigator(node, child(node, "sensorState"), where))
        self._missed = missed
        return [
            *_families(
                schedules,
                metrics.SCHEDULE_STATUS,
                metrics.SCHEDULE_TICK,
                metrics.SCHEDULE_TICK_TIME,
            ),
            *_families(
                sensors,
                metrics.SENSOR_STATUS,
                metrics.SENSOR_TICK,
                metrics.SENSOR_TICK_TIME,
            ),
            metrics.SCHEDULE_MISSED.family(
                (one.name, now - missed.get(one.name, now)) for one in schedules
            ),
        ]


def _repositories(workspace: Node) -> list[tuple[str, Node]]:
    """The repositories of the locations that load, each with its location's name."""
    found = []
    for entry in children(workspace, "locationEntries"):
        if entry.get("locationOrLoadError", ...) is None:  # it loads just now
            continue
        location = child(entry, "locationOrLoadError")
        if text(location, "__typename") == "RepositoryLocation":
            for repository in children(location, "repositories"):
                found.append((text(entry, "name"), repository))
    return found


def _instigator(node: Node, state: Node, where: str) -> Instigator:
    ticks = children(state, "ticks")
    return Instigator(
        name=(text(node, "name"), where),
        status=text(state, "status").lower(),
        tick_status=text(ticks[0], "status").lower() if ticks else None,
        tick_time=number(ticks[0], "timestamp") if ticks else None,
    )


def first_missed(
    schedule: Instigator,
    node: Node,
    state: Node,
    now: float,
    remembered: float | None,
) -> float | None:
    """When the first tick was due that did not come, as Unix time; else ``None``.

    Only a schedule that is running can miss a tick, and only one that was due after
    it was turned on. A tick's time is the time at which it was due. Dagster is asked
    for the last few due times only; ``remembered`` is what was said the last time, and
    still holds unless a tick came since.
    """
    if schedule.status != "running":
        return None
    due = node.get("potentialTickTimestamps")
    if not isinstance(due, list):
        raise Failure("missing_field", "potentialTickTimestamps is not a list")
    turned_on = optional_number(child(state, "typeSpecificData"), "startTimestamp")
    known = max(schedule.tick_time or 0.0, turned_on or 0.0)
    if not known:  # on by default, and never ticked: nothing says since when it is on
        return None
    late = [float(time_) for time_ in due if known < time_ <= now]
    if late and remembered is not None and remembered > known:
        return remembered
    return min(late, default=None)


def _families(
    found: list[Instigator],
    status: metrics.Metric,
    tick_status: metrics.Metric,
    tick_time: metrics.Metric,
) -> list[Family]:
    ticked = [one for one in found if one.tick_status is not None]
    return [
        status.family(((*one.name, one.status), 1) for one in found),
        tick_status.family(((*one.name, str(one.tick_status)), 1) for one in ticked),
        tick_time.family((one.name, one.tick_time) for one in ticked),
    ]
