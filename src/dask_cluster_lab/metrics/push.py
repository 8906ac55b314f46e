"""What a job leaves in a Pushgateway, and takes away again.

Prometheus asks whoever runs. A job that ends between two scrapes was never asked, so it
pushes its last numbers to a Pushgateway, which serves them as if they were current, for
ever: a group of series stays until it is deleted with exactly the key that it was
pushed with. So whoever pushes has to delete.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    delete_from_gateway,
    push_to_gateway,
    pushadd_to_gateway,
)

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

        Raises ``OSError`` if the gateway does not take it.
        """
        push_to_gateway(
            self.gateway, self.job, registry, grouping_key=dict(self.key),
            timeout=SECONDS,
        )  # fmt: skip

    def add(self, registry: CollectorRegistry) -> None:
        """Replace metrics of the same names and keep the group's others."""
        pushadd_to_gateway(
            self.gateway, self.job, registry, grouping_key=dict(self.key),
            timeout=SECONDS,
        )  # fmt: skip

    def delete(self) -> None:
        """Remove the group; it does not matter whether it was there."""
        delete_from_gateway(
            self.gateway, self.job, grouping_key=dict(self.key), timeout=SECONDS
        )


@contextmanager
def pushed(gateway: str, job: str, **key: str) -> Iterator[Group]:
    """A group for the time of a job: deleted at the end, however that comes.

    If the gateway is gone by then, the job's own error or success stays what it is.
    """
    group = Group(gateway, job, key)
    try:
        yield group
    finally:
        with suppress(OSError):
            group.delete()
