"""Runs under Dagster's own Python: writes into its storage what would take long to run.

One command a line on standard input, as JSON; one answer a line. The runs are real for
Dagster: they go through its own storage and its own events.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dagster import (
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
)
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from sqlalchemy.exc import OperationalError

ENDS = {
    "SUCCESS": DagsterEventType.PIPELINE_SUCCESS,
    "FAILURE": DagsterEventType.PIPELINE_FAILURE,
    "CANCELED": DagsterEventType.PIPELINE_CANCELED,
}


def patiently(write: Callable[[], object]) -> None:
    """Write; again while the storage is locked, by a process that may be frozen."""
    while True:
        try:
            write()
        except OperationalError as error:
            if "locked" not in str(error):
                raise
            time.sleep(0.2)
        else:
            return


def make_run(instance: DagsterInstance, job: str, location: str, status: str) -> str:
    """A run in this status; if it is an end, it started and ended just now."""
    target = LoadableTargetOrigin(python_file="any.py")
    place = ManagedGrpcPythonEnvCodeLocationOrigin(target, location_name=location)
    repository = RemoteRepositoryOrigin(place, "__repository__")
    ends = status in ENDS
    run = DagsterRun(
        job_name=job,
        run_id=str(uuid.uuid4()),
        remote_job_origin=RemoteJobOrigin(repository, job),
        status=DagsterRunStatus.STARTING if ends else DagsterRunStatus[status],
    )
    patiently(lambda: instance.add_run(run))
    if ends:
        for kind in (DagsterEventType.PIPELINE_START, ENDS[status]):
            event = DagsterEvent(event_type_value=kind.value, job_name=job)
            patiently(partial(instance.report_dagster_event, event, run.run_id))
    return run.run_id


def obey(instance: DagsterInstance, command: dict[str, Any]) -> Any:
    """Do what the command says."""
    match command:
        case {"make": status, "job": job, "location": location, "times": times}:
            return [make_run(instance, job, location, status) for _ in range(times)]
        case {"tag": run_id}:
            tags = {"reviewed": str(uuid.uuid4())}
            patiently(lambda: instance.add_run_tags(run_id, tags))
        case {"delete": run_id}:
            instance.delete_run(run_id)
    return None


with DagsterInstance.from_config(str(Path(sys.argv[1]))) as ours:
    for line in sys.stdin:
        print(json.dumps(obey(ours, json.loads(line))), flush=True)
