"""The Dask calls of 0101_connect without the helper; `make bench` times both."""

import os
import socket
import tempfile
import urllib.request

import dask
from distributed import Client, LocalCluster, get_worker


def where_am_i() -> tuple[str, int, bool]:
    """Host name, process id, and whether a Dask worker runs this."""
    try:
        on_worker = bool(get_worker())
    except ValueError:
        on_worker = False
    return socket.gethostname(), os.getpid(), on_worker


def main() -> None:
    """Make the calls."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalCluster(
            processes=False,
            n_workers=2,
            threads_per_worker=2,
            memory_limit="1.5GiB",
            dashboard_address="127.0.0.1:0",
            local_directory=scratch,
        ) as cluster,
    ):
        client = Client(cluster)
        info = client.scheduler_info(n_workers=-1)
        print(client.run(socket.gethostname))
        print(client.run(lambda dask_worker: dask_worker.state.nthreads))
        print(client.run(lambda dask_worker: dask_worker.memory_manager.memory_limit))
        print(client.submit(where_am_i, pure=False).result())
        health = f"http://127.0.0.1:{info['services']['dashboard']}/health"
        with urllib.request.urlopen(health, timeout=5) as response:
            print(response.read())
        task = dask.delayed(where_am_i, pure=False)
        print(task().compute())
        client.close()
        print(task().compute())


if __name__ == "__main__":
    main()
