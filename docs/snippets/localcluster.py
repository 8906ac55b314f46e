"""The short code of localcluster.md."""

import numpy as np
from distributed import Client


# [function]
def lower_by_tide(depths: np.ndarray) -> float:
    """Mean depth at low tide, metres; wrong, since it changes what it was given."""
    depths -= 1.5
    return float(depths.mean())


# [end]


def main(client: Client) -> None:
    """Run it all."""
    # [call]
    survey = np.full(1_000, 10.0)
    client.submit(lower_by_tide, survey, pure=False).result()
    first = survey[0]
    # [end]
    in_process = client.scheduler_info()["address"].startswith("inproc://")
    assert first == (8.5 if in_process else 10.0)
