"""Learn to operate a real Dask cluster: the helpers that the lessons share.

Everything is imported on first use, so that starting a lesson feels instant and
importing this package does not import ``distributed``.
"""

TYPE_CHECKING = False  # importing typing for it would cost more than a health check
if TYPE_CHECKING:
    from typing import Any

    from dask_cluster_lab.cluster import ClusterSession as ClusterSession
    from dask_cluster_lab.cluster import connect as connect
    from dask_cluster_lab.cluster import describe_workers as describe_workers
    from dask_cluster_lab.lesson import Lesson as Lesson
    from dask_cluster_lab.lesson import run as run
    from dask_cluster_lab.probe import scheduler_reachable as scheduler_reachable
    from dask_cluster_lab.probe import wait_for_scheduler as wait_for_scheduler
    from dask_cluster_lab.timing import interleave as interleave

_HOME = {
    "ClusterSession": "cluster",
    "connect": "cluster",
    "describe_workers": "cluster",
    "scheduler_reachable": "probe",
    "wait_for_scheduler": "probe",
    "Lesson": "lesson",
    "run": "lesson",
    "interleave": "timing",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> "Any":
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
