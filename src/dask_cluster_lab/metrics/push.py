"""What a job leaves in a Pushgateway, and takes away again.

Prometheus asks whoever runs. A job that ends between two scrapes was never asked, so it
pushes its last numbers to a Pushgateway, which serves them as if they were current, for
ever: a group of series stays until it is deleted with exactly the key that it was
pushed with. So whoever pushes has to delete.
"""

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    delete_from_gateway,
    push_to_gateway,
    pushadd_to_gateway,
)

from dask_cluster_lab.errors import LabError
from dask_cluster_lab.metrics.prometheus import scrape

SECONDS = 5.0


@dataclass(frozen=True)
class Group:
    """A group of series in a Pushgateway, and the key that names it."""

    gateway: str
    """Address, as in ``http://127.0.0.1:9091``."""
    job: str
    key: Mapping[str, str] = field(default_factory=dict)
    """Labels beside ``job``, all of which belong to the group's key."""

    def push(self, registry: CollectorRegistry) -> None:
        """Replace the group by what is in the registry: what it had before is gone.

        Raises ``LabError`` if the gateway does not take it, as ``add`` and ``delete``.
        """
        with _for_people(self.gateway):
            push_to_gateway(
                self.gateway, self.job, registry, grouping_key=dict(self.key),
                timeout=SECONDS,
            )  # fmt: skip

    def add(self, registry: CollectorRegistry) -> None:
        """Replace metrics of the same names and keep the group's others."""
        with _for_people(self.gateway):
            pushadd_to_gateway(
                self.gateway, self.job, registry, grouping_key=dict(self.key),
                timeout=SECONDS,
            )  # fmt: skip

    def delete(self) -> None:
        """Remove the group; it does not matter whether it was there."""
        with _for_people(self.gateway):
            delete_from_gateway(
                self.gateway, self.job, grouping_key=dict(self.key), timeout=SECONDS
            )

    def give_up(self) -> None:
        """Remove the group if the gateway still answers: for the way out."""
        with suppress(LabError):
            self.delete()


@contextmanager
def pushed(gateway: str, job: str, **key: str) -> Iterator[Group]:
    """A group for the time of a job: deleted at the end, however that comes.

    If the gateway is gone by then, the job's own error or success stays what it is.
    """
    group = Group(gateway, job, key)
    try:
        yield group
    finally:
        group.give_up()


def groups(gateway: str) -> list[dict[str, str]]:
    """The keys of all groups that a gateway has, ``job`` among their labels."""
    found = scrape(gateway).get("push_time_seconds", [])
    return [series.labels for series in found]


@contextmanager
def _for_people(gateway: str) -> Iterator[None]:
    """What goes wrong with a gateway as one sentence."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise LabError(
            f"the Pushgateway at {gateway} does not answer ({error}); "
            "'make up PROFILE=monitoring' starts it again."
        ) from None
