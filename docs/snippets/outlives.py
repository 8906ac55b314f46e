"""The short code of concepts/outlives.md."""

import dask.array as da
from distributed import Client


def main(client: Client) -> None:
    """Run it all."""
    # [publish]
    survey = da.ones((400, 100), chunks=(100, 100)).persist()
    client.publish_dataset(survey, name="survey-2026")
    names = client.list_datasets()

    again = client.get_dataset("survey-2026")  # from any client, also later
    mean = again.mean().compute()
    client.unpublish_dataset("survey-2026")
    # [end]
    assert "survey-2026" in names
    assert mean == 1
