"""Runs as Dagster tells of them, page by page."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

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
from dagster_exporter.roster import UNKNOWN_LOCATION, Job


@dataclass(frozen=True, slots=True)
class Run:
    """One run; times are Unix seconds, ``None`` if it did not come to that."""

    run_id: str
    job: Job
    status: str
    created: float
    started: float | None
    ended: float | None
    updated: float
    tags: tuple[tuple[str, str], ...] = ()


def read_run(node: Node) -> Run:
    """A run from the answer to one of the queries about runs."""
    created = number(node, "creationTime")
    updated = optional_number(node, "updateTime")
    tags = children(node, "tags") if "tags" in node else []
    return Run(
        run_id=text(node, "runId"),
        job=(text(node, "jobName"), _location(node)),
        status=text(node, "status").lower(),
        created=created,
        started=optional_number(node, "startTime"),
        ended=optional_number(node, "endTime"),
        updated=created if updated is None else updated,
        tags=tuple((text(tag, "key"), text(tag, "value")) for tag in tags),
    )


async def pages(
    client: Asks, query: str, page_size: int, **variables: Any
) -> AsyncIterator[tuple[Node, list[Run]]]:
    """The runs that ``query`` finds, newest creation first, with the whole answer.

    Each request asks for one run more than a page holds. That one tells whether there
    is another page, so a page that is announced and then empty is a failure: Dagster
    gives an empty page, not an error, when the cursor's run has been deleted.
    """
    cursor = None
    while True:
        answer = await client.ask(
            query, limit=page_size + 1, cursor=cursor, **variables
        )
        found = children(member(answer, "runsOrError", "Runs"), "results")
        if cursor and not found:
            raise Failure("suspect_page", "an empty page where runs must follow")
        page = [read_run(node) for node in found[:page_size]]
        yield answer, page
        if len(found) <= page_size:
            return
        cursor = page[-1].run_id


def _location(node: Node) -> str:
    if node.get("repositoryOrigin", ...) is None:
        return UNKNOWN_LOCATION
    return text(child(node, "repositoryOrigin"), "repositoryLocationName")
