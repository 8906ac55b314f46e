"""Runs that have not ended: how many, how old, and what they wait for."""

import time
from collections import defaultdict
from collections.abc import Iterable

import yaml

from dagster_exporter import metrics
from dagster_exporter.answers import Asks, Node, child, number
from dagster_exporter.failures import Failure
from dagster_exporter.metrics import Family
from dagster_exporter.roster import Roster
from dagster_exporter.runs import Run, pages

STATUSES = (
    "QUEUED",
    "NOT_STARTED",
    "MANAGED",
    "STARTING",
    "STARTED",
    "SUSPENDED",
    "CANCELING",
)
CONCURRENCY_KEY = "dagster/concurrency_key"
MOST_VALUES = 100
"""Series for the values of limited tags, and as many for concurrency keys. A limit for
each unique value can have any number of them; what is beyond is summed up as ``OTHER``.
"""
OTHER = "__other__"

TagValue = tuple[str, str]


class ActiveRuns:
    """Asks for all of them in each poll; how many there are is what it costs."""

    name = "active_runs"

    def __init__(self, client: Asks, roster: Roster, page_size: int) -> None:
        self._client = client
        self._roster = roster
        self._page_size = page_size
        self._keys: set[str] = set()

    async def poll(self) -> list[Family]:
        """One request for each page of runs."""
        ages: dict[tuple[str, ...], list[float]] = defaultdict(list)
        waits: dict[TagValue, list[float]] = defaultdict(list)
        limits: dict[TagValue, int] = {}
        most = -1.0
        asked = pages(
            self._client, "active_runs", self._page_size, statuses=list(STATUSES)
        )
        async for answer, page in asked:
            most, limits = read_queue(answer)
            now = time.time()
            for run in page:
                age = max(0.0, now - status_since(run))
                ages[*run.job, run.status].append(age)
                for tag in run.tags if run.status == "queued" else ():
                    if _counts(tag, limits):  # runs have tags that are theirs alone
                        waits[tag].append(age)
        for job in self._roster.jobs():
            for status in STATUSES:
                ages.setdefault((*job, status.lower()), [])
        return [
            metrics.ACTIVE_RUNS.family((key, len(all_)) for key, all_ in ages.items()),
            metrics.ACTIVE_RUN_DURATION.family(
                (key, max(all_, default=0.0)) for key, all_ in ages.items()
            ),
            self._key_backlog(waits),
            *_tag_backlog(waits, limits),
            metrics.MAX_RUNS.family([((), most)]),
        ]

    def _key_backlog(self, waits: dict[TagValue, list[float]]) -> Family:
        """As the Go exporter has it; a key that was seen goes to 0, not away.

        Unless there are too many: then those at 0 go first, and new ones are summed up.
        """
        found = {
            value: len(all_)
            for (key, value), all_ in waits.items()
            if key == CONCURRENCY_KEY
        }
        known = sorted(self._keys & found.keys())
        new = sorted(found.keys() - self._keys)
        idle = sorted(self._keys - found.keys())
        self._keys = set([*known, *new, *idle][:MOST_VALUES])
        shown = {key: found.get(key, 0) for key in sorted(self._keys)}
        rest = sum(found.values()) - sum(shown.values())
        if rest:
            shown[OTHER] = shown.get(OTHER, 0) + rest
        return metrics.KEY_BACKLOG.family(((key,), n) for key, n in shown.items())


def status_since(run: Run) -> float:
    """When the run came into its status, as Unix time.

    The time of its last update says the same, until somebody tags the run.
    """
    if run.status == "queued":
        return run.created
    if run.status == "started" and run.started is not None:
        return run.started
    return run.updated


def read_queue(answer: Node) -> tuple[float, dict[TagValue, int]]:
    """The run queue's limits: of all runs, and by tag and value ("" for any value)."""
    instance = child(answer, "instance")
    if instance.get("runQueueConfig", ...) is None:  # runs are not queued at all
        return -1, {}
    config = child(instance, "runQueueConfig")
    limits = {}
    try:
        for entry in yaml.safe_load(config["tagConcurrencyLimitsYaml"] or "") or []:
            value = entry.get("value")
            name = "" if value is None or isinstance(value, dict) else str(value)
            limits[str(entry["key"]), name] = int(entry["limit"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError):
        raise Failure("missing_field", "the tag limits cannot be read") from None
    return number(config, "maxConcurrentRuns"), limits


def _limited(tag: TagValue, limits: dict[TagValue, int]) -> bool:
    return tag in limits or (tag[0], "") in limits


def _counts(tag: TagValue, limits: dict[TagValue, int]) -> bool:
    return tag[0] == CONCURRENCY_KEY or _limited(tag, limits)


def _tag_backlog(
    waits: dict[TagValue, list[float]], limits: dict[TagValue, int]
) -> Iterable[Family]:
    """Queued runs for each limited tag; fixed values are there with 0, too."""
    found: dict[TagValue, list[float]] = {tag: [] for tag in limits if tag[1]}
    for tag, all_ in sorted(waits.items()):
        key, value = tag
        if _limited(tag, limits):
            shown = tag in found or len(found) < MOST_VALUES
            found.setdefault((key, value if shown else OTHER), []).extend(all_)
    yield metrics.TAG_BACKLOG.family((tag, len(all_)) for tag, all_ in found.items())
    yield metrics.TAG_BACKLOG_AGE.family(
        (tag, max(all_, default=0.0)) for tag, all_ in found.items()
    )
    yield metrics.TAG_LIMIT.family(limits.items())
