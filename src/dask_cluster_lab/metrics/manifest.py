"""What a run did, as a file: metrics are kept for weeks, and questions come after
years.

One JSON object a run, written whole or not at all: the run, when, with which versions,
how many tasks failed, per stage the units by outcome and the rows in and out, and the
quantiles of the residuals.
"""

import datetime
import json
import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dask_cluster_lab.metrics.labels import DIRECTIONS, OUTCOMES, STAGES
from dask_cluster_lab.metrics.totals import Totals

PACKAGES = ("dask", "distributed", "numpy", "dask-cluster-lab")
QUANTILES = (0.5, 0.95, 0.99)


def manifest(totals: Totals, when: datetime.datetime | None = None) -> dict[str, Any]:
    """The manifest of a run; ``when`` it ended, now if not said.

    A task that failed is one of ``tasks`` ``failed`` and nothing else, since it reports
    no unit. ``error`` in a stage is a unit whose task went on without it.
    """
    ended = when or datetime.datetime.now(datetime.UTC)
    quantiles = {f"p{share * 100:g}": totals.quantile(share) for share in QUANTILES}
    return {
        "run": totals.run,
        "ended": ended.isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        },
        "exact": totals.exact,
        "tasks": {
            "finished": totals.tasks,
            "failed": totals.erred,
            "executions": totals.executions,
        },
        "stages": {
            stage: {
                **{
                    outcome: totals.units.get((stage, outcome), 0)
                    for outcome in OUTCOMES
                },
                **{
                    f"rows {direction}": totals.rows.get((stage, direction), 0)
                    for direction in DIRECTIONS
                },
            }
            for stage in STAGES
        },
        "residual metres": {
            name: None if math.isnan(value) else round(value, 6)
            for name, value in quantiles.items()
        },
    }


def write_manifest(totals: Totals, folder: Path) -> Path:
    """Write the manifest of a run into ``folder``, as ``RUN.json``; its path.

    A second manifest of the same run replaces the first. Raises ``ValueError`` if the
    run's name is no file name.
    """
    if totals.run in ("", ".", "..") or os.sep in totals.run:
        raise ValueError(f"{totals.run!r} cannot be the name of a file.")
    path = folder / f"{totals.run}.json"
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(manifest(totals), indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
    return path
