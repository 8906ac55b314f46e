"""The short code of concepts/states.md."""

from distributed import Client, Scheduler, wait


def state_of(key: str, dask_scheduler: Scheduler) -> str:
    """Do what the function of that name in 0203 does, which the page shows."""
    task = dask_scheduler.tasks.get(key)
    return task.state if task else "forgotten"


def main(client: Client) -> None:
    """Run it all."""
    # [ask]
    future = client.submit(sum, [1, 2, 3])
    wait(future, timeout=30)
    state = client.run_on_scheduler(state_of, future.key)
    # [end]
    assert state == "memory"
