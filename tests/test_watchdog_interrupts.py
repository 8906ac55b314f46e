"""The watchdog goes on interrupting: a way out can be as stuck as the lesson was."""

import time
from typing import Any, cast

import pytest

from dask_cluster_lab import watchdog
from dask_cluster_lab.cluster import ClusterSession


def test_a_way_out_that_hangs_is_interrupted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "LOOK_EVERY", 0.5)
    monkeypatch.setattr(watchdog.Watchdog, "_trouble", lambda self: "it is gone")
    watch = watchdog.Watchdog(cast(ClusterSession, None), seconds=60)
    interrupts = 0
    watch.start()
    deadline = time.monotonic() + 30
    while interrupts < 2 and time.monotonic() < deadline:
        try:
            time.sleep(30)
        except KeyboardInterrupt:
            interrupts += 1
    verdict: Any = watch.stop(KeyboardInterrupt())
    watch.join(5)
    assert interrupts == 2
    assert str(verdict) == "it is gone"
    assert not watch.is_alive()
