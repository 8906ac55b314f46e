"""The short code of concepts/steps.md."""

import dask.array as da
from distributed import Client


def main(client: Client) -> None:
    """Run it all; ``client`` is the default one, so that compute() uses it."""
    # [compute]
    survey = da.random.default_rng(0).random((1_000, 1_000), chunks=(250, 1_000))
    mean = survey.mean().compute()
    # [end]
    assert 0.49 < mean < 0.51
