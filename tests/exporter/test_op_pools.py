"""Pools of slots."""

import asyncio

import pytest

from dagster_exporter.collectors.op_pools import OpPools
from dagster_exporter.failures import Failure

from .fake_dagster import FakeDagster
from .samples import Samples


def test_a_pool(fake: FakeDagster) -> None:
    fake.pools = [
        {
            "concurrencyKey": "sonar",
            "activeSlotCount": 2,
            "assignedStepCount": 1,
            "pendingStepCount": 3,
            "limit": 2,
            "usingDefaultLimit": False,
        }
    ]
    samples = Samples.of(asyncio.run(OpPools(fake).poll()))
    start = "dagster_op_pool_concurrency_"
    assert samples.get(start + "active_slots", pool="sonar") == 2
    assert samples.get(start + "assigned_steps", pool="sonar") == 1
    assert samples.get(start + "pending_steps", pool="sonar") == 3
    limit = samples.get(start + "limit", pool="sonar", using_default_limit="false")
    assert limit == 2

    fake.pools[0]["pendingStepCount"] = None
    with pytest.raises(Failure, match="pendingStepCount is null"):
        asyncio.run(OpPools(fake).poll())
