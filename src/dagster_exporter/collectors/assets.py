"""Assets: are they there, do they get made, do their checks hold."""

import time
from typing import Any

from dagster_exporter import metrics
from dagster_exporter.answers import (
    Asks,
    Node,
    asset_key,
    child,
    children,
    member,
    number,
    optional_number,
    text,
)
from dagster_exporter.failures import Failure
from dagster_exporter.metrics import Family
from dagster_exporter.window import Window

BATCH = 200
"""Assets in one request."""

PAGE = 500
"""Materialisations of one asset in one request."""


class Assets:
    """Counts materialisations since the start, of assets that have new ones only."""

    name = "asset_status"

    def __init__(self, client: Asks, window: Window[tuple[str, ...]]) -> None:
        self._client = client
        self._window = window
        self._totals: dict[str, int] = {}
        self._known: dict[str, Node] = {}

    async def poll(self) -> list[Family]:
        """One request for the definitions, and one or two for each batch of assets."""
        answer = await self._client.ask("asset_definitions")
        nodes = children(answer, "assetNodes")
        keys = {asset_key(node): child(node, "assetKey") for node in nodes}
        asked_at = time.time()
        infos: list[Node] = []
        for batch in _batches(list(keys.values())):
            found = await self._client.ask("asset_runs", assetKeys=batch)
            infos += children(found, "assetsLatestInfo")
        made = {
            asset_key(info): number(child(info, "latestMaterialization"), "timestamp")
            / 1000
            for info in infos
            if info.get("latestMaterialization") is not None
        }
        fresh = [key for key, when in made.items() if when > self._window.cutoff]
        # Assets of a location that does not load are no longer defined, and a run that
        # was under way goes on to materialise them. Dagster's storage tells of those.
        self._known |= keys
        undefined = sorted(self._known.keys() - keys.keys())
        asked = [self._known[key] for key in (*fresh, *undefined) if key in self._known]
        for batch in _batches(asked):
            await self._count(batch)
        newest = max(made.values(), default=self._window.floor)
        self._window.advance(min(newest, asked_at))
        # Definitions of a location that does not load are absent; their totals stay.
        totals = dict.fromkeys(keys, 0) | self._totals
        return [
            *_definitions(nodes),
            *_latest_runs(infos),
            metrics.ASSET_MATERIALIZED_TIME.family(
                ((key,), when) for key, when in made.items()
            ),
            metrics.ASSET_MATERIALIZATIONS.family(
                ((key,), total) for key, total in totals.items()
            ),
        ]

    async def _count(self, batch: list[Node], before: str | None = None) -> None:
        answer = await self._client.ask(
            "asset_materializations",
            assetKeys=batch,
            after=str(int(self._window.cutoff * 1000)),
            before=before,
            limit=PAGE,
        )
        found = member(answer, "assetsOrError", "AssetConnection")
        for node in children(found, "nodes"):
            key = asset_key(node)
            events = children(node, "assetMaterializations")
            for event in events:
                when = text(event, "timestamp")
                which = (key, when, text(event, "runId"), str(event.get("partition")))
                if self._window.take(which, number(event, "timestamp") / 1000):
                    self._totals[key] = self._totals.get(key, 0) + 1
            if len(events) == PAGE:
                # Newest first: the rest is older, or of the same millisecond.
                oldest = str(int(min(number(one, "timestamp") for one in events)) + 1)
                if oldest == before:
                    raise Failure("suspect_page", f"{PAGE} events in one millisecond")
                await self._count([child(node, "assetKey")], oldest)


def _batches(keys: list[Node]) -> list[list[Node]]:
    return [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]


def _definitions(nodes: list[Node]) -> list[Family]:
    """What goes with the definitions: staleness and checks."""
    stale: list[tuple[tuple[str, ...], Any]] = []
    results: list[tuple[tuple[str, ...], Any]] = []
    times: list[tuple[tuple[str, ...], Any]] = []
    for node in nodes:
        key = asset_key(node)
        if node.get("staleStatus", ...) is not None:
            stale.append(((key, text(node, "staleStatus").lower()), 1))
        found = member(node, "assetChecksOrError", "AssetChecks")
        for check in children(found, "checks"):
            if check.get("executionForLatestMaterialization", ...) is None:
                continue
            ran = child(check, "executionForLatestMaterialization")
            name = text(check, "name")
            results.append(((key, name, text(ran, "status").lower()), 1))
            times.append(((key, name), number(ran, "timestamp")))
    return [
        metrics.ASSET_STALE.family(stale),
        metrics.CHECK_STATUS.family(results),
        metrics.CHECK_TIME.family(times),
    ]


def _latest_runs(infos: list[Node]) -> list[Family]:
    statuses, times = [], []
    for info in infos:
        if info.get("latestRun", ...) is None:
            continue
        run = child(info, "latestRun")
        statuses.append(((asset_key(info), text(run, "status").lower()), 1))
        ended = optional_number(run, "endTime")
        if ended is not None:
            times.append(((asset_key(info),), ended))
    return [
        metrics.ASSET_LAST_RUN.family(statuses),
        metrics.ASSET_LAST_RUN_TIME.family(times),
    ]
