"""The short code of concepts/mechanisms.md."""

import dask
import numpy as np
from distributed import Client


def main(client: Client) -> None:
    """Run it all."""

    # [submit]
    def depth_of(tile: int) -> float:
        return 10.0 + tile

    one = client.submit(depth_of, 7)
    many = client.map(depth_of, range(100))
    depths = client.gather(many)
    # [end]
    assert one.result() == depths[7] == 17

    # [scatter]
    def column_mean(survey: np.ndarray, column: int) -> float:
        return float(survey[:, column].mean())

    survey = np.random.default_rng(seed=0).random((400, 16))
    remote = client.scatter(survey, hash=False)
    means = client.gather([client.submit(column_mean, remote, i) for i in range(16)])
    # [end]
    assert np.allclose(means, survey.mean(axis=0))
    # [thresholds]
    pause = client.run(dask.config.get, "distributed.worker.memory.pause")
    # [end]
    assert set(pause.values()) == {0.8}
    # [retries]
    flaky = client.submit(depth_of, 8, retries=3)
    # [end]
    assert flaky.result() == 18
