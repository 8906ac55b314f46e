"""The short code of concepts/futures.md."""

import dask.array as da
from distributed import Client, futures_of, wait


def main(client: Client) -> None:
    """Run it all."""

    # [submit]
    def depth_of(tile: int) -> float:
        return 10.0 + tile

    future = client.submit(depth_of, 7)
    depth = future.result()
    # [chain]
    doubled = client.submit(sum, [future, future])
    # [wait]
    wait([future, doubled], timeout=30)
    # [end]
    assert (depth, doubled.result()) == (17, 34)
    # [collections]
    survey = da.ones((400, 100), chunks=(100, 100))

    here = survey.mean().compute()  # a value, brought home
    there = client.compute(survey.mean())  # one future of that value
    kept = survey.persist()  # a collection whose chunks are on the workers
    chunks = futures_of(kept)  # the futures of these chunks
    # [end]
    assert here == there.result() == 1
    assert len(chunks) == survey.npartitions == 4
