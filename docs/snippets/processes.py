"""The short code of concepts/processes.md."""

import os

from distributed import Client


def main(client: Client) -> None:
    """Run it all."""
    # [ask]
    workers = client.run(os.getpid)
    scheduler = client.run_on_scheduler(os.getpid)
    nannies = client.run(os.getpid, nanny=True)
    # [end]
    assert {*workers.values(), scheduler} == {os.getpid()}, "threads of this process"
    assert nannies == {}, "threads have none"
