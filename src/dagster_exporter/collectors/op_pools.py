"""Pools of slots that single steps share, over all runs."""

from dagster_exporter import metrics
from dagster_exporter.answers import (
    Asks,
    child,
    children,
    number,
    optional_flag,
    optional_number,
    text,
)
from dagster_exporter.metrics import Family


class OpPools:
    """A pool is there once it was used or given a limit."""

    name = "op_pool_concurrency"

    def __init__(self, client: Asks) -> None:
        self._client = client

    async def poll(self) -> list[Family]:
        """One request."""
        answer = await self._client.ask("op_pools")
        pools = children(child(answer, "instance"), "concurrencyLimits")
        named = [((text(pool, "concurrencyKey"),), pool) for pool in pools]
        limits = []
        for key, pool in named:
            default = str(optional_flag(pool, "usingDefaultLimit") is True).lower()
            limit = optional_number(pool, "limit")
            if limit is not None:
                limits.append(((*key, default), limit))
        return [
            metrics.POOL_ACTIVE.family(
                (key, number(pool, "activeSlotCount")) for key, pool in named
            ),
            metrics.POOL_ASSIGNED.family(
                (key, number(pool, "assignedStepCount")) for key, pool in named
            ),
            metrics.POOL_PENDING.family(
                (key, number(pool, "pendingStepCount")) for key, pool in named
            ),
            metrics.POOL_LIMIT.family(limits),
        ]
