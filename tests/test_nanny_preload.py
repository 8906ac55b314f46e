"""With which status does a worker's container leave? Real nannies and schedulers."""

import asyncio
import atexit
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from dask_cluster_lab import nanny_preload
from dask_cluster_lab.nanny_preload import dask_setup, dask_teardown

if TYPE_CHECKING:
    from distributed import LocalCluster, Nanny

Exits = list[tuple[Any, ...]]


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Exits:
    """What would run when the process ends."""
    registered: Exits = []
    monkeypatch.setattr(
        nanny_preload,
        "atexit",
        SimpleNamespace(register=lambda *call: registered.append(call)),
    )
    monkeypatch.setattr(nanny_preload, "_joined", {})
    return registered


class PlayedNanny:
    """A nanny whose scheduler answers as a test wants it."""

    def __init__(self, name: str, *answers: str | Exception) -> None:
        self.id = name
        self.answers = list(answers)
        self.scheduler = self

    async def identity(self) -> dict[str, str]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"id": answer}


def live(*nannies: PlayedNanny) -> None:
    """Start all nannies, then end all of them."""

    async def story() -> None:
        steps: tuple[Callable[[Nanny], Awaitable[None]], ...]
        steps = (dask_setup, dask_teardown)
        for step in steps:
            for nanny in nannies:
                await step(cast("Nanny", nanny))

    asyncio.run(story())
    assert [nanny.answers for nanny in nannies] == [[]] * len(nannies)


GONE = OSError("Timed out trying to connect")


@pytest.mark.parametrize(
    ("at_start", "at_end", "comes_back"),
    [
        ("scheduler-1", "scheduler-1", False),  # retired, or stopped
        ("scheduler-1", "scheduler-2", True),  # the scheduler was restarted
        ("scheduler-1", GONE, True),
        ("scheduler-1", TimeoutError(), True),
        (GONE, GONE, True),
        (GONE, "scheduler-1", True),  # not known which one it joined
    ],
)
def test_who_comes_back(
    at_start: str | Exception,
    at_end: str | Exception,
    comes_back: bool,
    exits: Exits,
) -> None:
    live(PlayedNanny("nanny", at_start, at_end))
    assert exits == ([(os._exit, 1)] if comes_back else [])


def test_nannies_are_told_apart(exits: Exits) -> None:
    live(PlayedNanny("one", "a", "a"), PlayedNanny("two", "b", "b"))
    assert exits == []
    assert nanny_preload._joined == {"one": "a", "two": "b"}


def test_a_scheduler_that_hangs(exits: Exits, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(PlayedNanny):
        async def identity(self) -> dict[str, str]:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(nanny_preload, "ANSWER_SECONDS", 0.1)
    nanny_preload._joined["nanny"] = "scheduler-1"
    asyncio.run(dask_teardown(cast("Nanny", Hanging("nanny"))))
    assert exits == [(os._exit, 1)]


def test_a_real_scheduler(cluster: "LocalCluster", exits: Exits) -> None:
    from distributed import rpc

    async def story() -> None:
        async with rpc(cluster.scheduler_address) as scheduler:
            nanny = cast("Nanny", SimpleNamespace(id="nanny", scheduler=scheduler))
            await dask_setup(nanny)
            known = (await scheduler.identity())["id"]
            assert nanny_preload._joined == {"nanny": known}
            await dask_teardown(nanny)

    asyncio.run(story())
    assert exits == []


SCRIPT = """
import asyncio, sys
from types import SimpleNamespace
from dask_cluster_lab.nanny_preload import dask_setup, dask_teardown

class Scheduler:
    answers = sys.argv[1:]
    async def identity(self):
        return {"id": self.answers.pop(0)}

async def story():
    nanny = SimpleNamespace(id="nanny", scheduler=Scheduler())
    await dask_setup(nanny)
    await dask_teardown(nanny)

asyncio.run(story())
sys.exit(0)
"""


@pytest.mark.parametrize(("at_end", "status"), [("a", 0), ("b", 1)])
def test_the_status_of_the_process(at_end: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "a", at_end],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (status, "")


def test_dask_finds_both_functions() -> None:
    from distributed.preloading import process_preloads

    loaded = process_preloads(
        cast("Nanny", SimpleNamespace()), ["dask_cluster_lab.nanny_preload"], [[]]
    )
    assert [preload.module.dask_setup for preload in loaded] == [dask_setup]
    assert [preload.module.dask_teardown for preload in loaded] == [dask_teardown]
    assert nanny_preload.atexit is atexit
