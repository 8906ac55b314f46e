"""Loaded by every worker container's nanny: choose the container's exit status.

A Dask worker leaves with status 0 both when it was retired, which should be final, and
when it lost its scheduler, after which it should come back. Docker's ``on-failure``
policy tells the two apart by the status alone, so this makes the second one a 1.
Compose names this module with ``--preload-nanny``; Dask calls the two functions.
"""

import asyncio
import atexit
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Nanny

ANSWER_SECONDS = 5.0

_joined: dict[str, str] = {}


async def _scheduler_id(nanny: "Nanny") -> str:
    """Identity of the scheduler process that answers now; empty if none does."""
    try:
        return str(
            (await asyncio.wait_for(nanny.scheduler.identity(), ANSWER_SECONDS))["id"]
        )
    except (OSError, TimeoutError):
        return ""


async def dask_setup(nanny: "Nanny") -> None:
    """Remember which scheduler this worker joins."""
    _joined[nanny.id] = await _scheduler_id(nanny)


async def dask_teardown(nanny: "Nanny") -> None:
    """Leave with status 1 if that scheduler is gone, or another has taken its place."""
    scheduler_id = await _scheduler_id(nanny)
    if not scheduler_id or scheduler_id != _joined.get(nanny.id):
        atexit.register(os._exit, 1)
