"""What the orchestrator of this lab runs: a job for each thing that can happen.

Each job is as small as its point allows, and runs in one process, so that the process
that Dagster starts for a run is also the one that works, waits or dies.
"""

import os
import signal
import time

import dagster as dg
from prometheus_client import CollectorRegistry, Gauge, push_to_gateway

LIMITED = {"lab/instrument": "multibeam"}
"""Two runs with this tag never run at once: see tag_concurrency_limits."""

KEYED = {"dagster/concurrency_key": "survey_db"}
"""The tag that Dagster's own examples limit; here one run at a time."""


def sleep(seconds: float) -> None:
    """Sleep, in short steps so that a cancelled run ends soon."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.1)


@dg.op
def measure() -> int:
    """Answer at once."""
    return 42


@dg.op
def stumble() -> None:
    """Fail as a task does whose input is wrong."""
    raise dg.Failure("the tile has no soundings")


@dg.op(config_schema={"seconds": dg.Field(float, default_value=20.0)})
def take_time(context: dg.OpExecutionContext) -> None:
    """Sleep."""
    sleep(context.op_config["seconds"])


@dg.op
def vanish() -> None:
    """Die as a process that the kernel ends for its memory: without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


@dg.op(
    config_schema={
        "seconds": dg.Field(float, default_value=0.0),
        "dies": dg.Field(bool, default_value=False),
    }
)
def measure_and_push(context: dg.OpExecutionContext) -> None:
    """Work, and tell the Pushgateway at PUSHGATEWAY; or die before that.

    This is how Dagster's documentation has a run report: from inside, at its end.
    """
    sleep(context.op_config["seconds"])
    registry = CollectorRegistry()
    Gauge("survey_tiles", "Tiles of this run.", registry=registry).set(42)
    if context.op_config["dies"]:
        os.kill(os.getpid(), signal.SIGKILL)
    gateway = os.environ.get("PUSHGATEWAY")
    if gateway:
        key = {"run": context.run_id}
        push_to_gateway(gateway, "dagster", registry, grouping_key=key)


@dg.op(config_schema={"tiles": dg.Field(int, default_value=20)})
def depths_on_the_cluster(context: dg.OpExecutionContext) -> None:
    """Compute on the Dask cluster at DASK_SCHEDULER_ADDRESS, and say the result.

    Dask is imported here because only this job needs it.
    """
    from distributed import Client

    address = os.environ.get("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:8786")
    with Client(address, timeout="30s") as client:
        depths = client.map(pow, range(context.op_config["tiles"]), [2] * 1000)
        context.log.info("summed depth: %d m", client.submit(sum, depths).result())


@dg.job(executor_def=dg.in_process_executor)
def good() -> None:
    """Succeeds."""
    measure()


@dg.job(executor_def=dg.in_process_executor)
def failing() -> None:
    """Fails."""
    stumble()


@dg.job(executor_def=dg.in_process_executor)
def slow() -> None:
    """Takes 20 seconds, or what it is told."""
    take_time()


@dg.job(executor_def=dg.in_process_executor, tags=LIMITED)
def limited() -> None:
    """Waits in the queue while another run uses the instrument."""
    take_time()


@dg.job(executor_def=dg.in_process_executor, tags=KEYED)
def keyed() -> None:
    """Waits in the queue while another run uses the database."""
    take_time()


@dg.job(executor_def=dg.in_process_executor)
def killed() -> None:
    """Kills its own process; nothing in it can report that."""
    vanish()


@dg.job(executor_def=dg.in_process_executor)
def pushing() -> None:
    """Tells a Pushgateway at its end, if it comes that far."""
    measure_and_push()


@dg.job(executor_def=dg.in_process_executor)
def on_dask() -> None:
    """Hands its work to the Dask cluster."""
    depths_on_the_cluster()


@dg.asset
def soundings() -> list[float]:
    """Depths in metres, as measured."""
    return [12.5, 13.0, 12.75]


@dg.asset
def chart(soundings: list[float]) -> float:
    """The shallowest depth in metres, which is what a ship must know."""
    return min(soundings)


@dg.asset_check(asset=soundings)
def depths_are_positive(soundings: list[float]) -> dg.AssetCheckResult:
    """Nothing that was measured lies above the water."""
    return dg.AssetCheckResult(passed=all(depth > 0 for depth in soundings))


survey = dg.define_asset_job(
    "survey", selection=[soundings, chart], executor_def=dg.in_process_executor
)

every_minute = dg.ScheduleDefinition(
    name="every_minute", job=good, cron_schedule="* * * * *"
)


@dg.sensor(job=good, minimum_interval_seconds=10)
def new_files() -> dg.SkipReason:
    """Looks for files that never come."""
    return dg.SkipReason("no new files")


defs = dg.Definitions(
    assets=[soundings, chart],
    asset_checks=[depths_are_positive],
    jobs=[good, failing, slow, limited, keyed, killed, pushing, on_dask, survey],
    schedules=[every_minute],
    sensors=[new_files],
)
