"""The short code of production.md."""

import contextlib
import tempfile

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client, Future, Security, SSHCluster, span


# [tls]
def connect_encrypted(address: str) -> Client:
    """Connect to a ``tls://`` address, and refuse whatever is not encrypted."""
    security = Security(
        require_encryption=True,
        tls_ca_file="ca.pem",
        tls_client_cert="client.pem",
        tls_client_key="client.key",
    )
    return Client(address, security=security, timeout=10)


# [end]


# [ssh]
def start_by_ssh() -> Client:
    """One scheduler and three workers on three hosts; ends with this process."""
    cluster = SSHCluster(
        ["host-a", "host-a", "host-b", "host-c"],  # the scheduler is on the first
        worker_options={"nthreads": 2, "memory_limit": "6GiB"},
        remote_python="/opt/lab/bin/python",
    )
    return Client(cluster)


# [end]


# [start]
def start(client: Client, job: str, cube: xr.Dataset, store: str) -> Future:
    """Let the workers write ``cube`` to ``store``; the future stands for the job."""
    writing = cube.to_zarr(store, mode="w", compute=False, consolidated=False)
    with span(job):
        return client.compute(writing, priority=-10, retries=2)


# [end]


def main(client: Client) -> None:
    """Run what needs no other hosts."""
    with contextlib.suppress(FileNotFoundError):  # there are no such certificates
        connect_encrypted("tls://127.0.0.1:1")
        raise AssertionError("connected without certificates")
    assert callable(start_by_ssh)
    depths = da.random.default_rng(0).random((40, 40), chunks=(20, 20))
    cube = xr.Dataset({"depth": (("y", "x"), depths)})
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/job-7.zarr"
        for _ in ("once", "and again after a restart"):
            start(client, "job-7", cube, store).result(timeout=60)
        with xr.open_zarr(store, consolidated=False) as back:
            assert not np.isnan(back["depth"].values).any()
