"""The task stream's arithmetic, on made records and on those of a real cluster."""

from typing import Any

import pytest
from distributed import Client, LocalCluster, get_task_stream, wait

from dask_cluster_lab.task_stream import Record, computes, records_of, spans, transfers

A, B = "tcp://10.0.0.1:4001", "tcp://10.0.0.2:4002"
RECORDS: list[Record] = [
    {
        "key": "mean-1",
        "worker": A,
        "startstops": (
            {"action": "transfer", "start": 10.0, "stop": 10.5, "source": B},
            {"action": "compute", "start": 10.5, "stop": 12.0},
        ),
    },
    {
        "key": ("tile", 0, 1),
        "worker": B,
        "startstops": ({"action": "compute", "start": 9.0, "stop": 9.25},),
    },
]


def test_computes_say_what_ran_where_and_when() -> None:
    first, second = computes(RECORDS)
    assert (first.key, first.worker, first.start, first.stop) == (
        "mean-1",
        A,
        10.5,
        12.0,
    )
    assert (second.key, second.worker) == (("tile", 0, 1), B)
    assert [span.seconds for span in (first, second)] == [1.5, 0.25]
    assert first.source == ""


def test_transfers_name_their_source() -> None:
    (transfer,) = transfers(RECORDS)
    assert (transfer.key, transfer.worker, transfer.source) == ("mean-1", A, B)
    assert transfer.seconds == 0.5


def test_spans_of_an_action_that_did_not_happen() -> None:
    assert spans(RECORDS, "disk-read") == []


def test_no_records() -> None:
    assert computes([]) == []
    assert transfers([]) == []
    assert records_of([], ["mean-1"]) == []


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (["mean-1"], ["mean-1"]),
        ([("tile", 0, 1), "unknown"], [("tile", 0, 1)]),
        ([], []),
    ],
)
def test_records_of_chosen_tasks(keys: list[Any], found: list[Any]) -> None:
    assert [record["key"] for record in records_of(RECORDS, keys)] == found


def test_real_records_have_what_is_read_from_them() -> None:
    with (
        LocalCluster(
            processes=False,
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        near, far = sorted(client.scheduler_info()["workers"])
        tile = client.submit(bytes, 1000, workers=[far], pure=False)
        wait(tile)
        with get_task_stream(client) as stream:
            size = client.submit(len, tile, workers=[near], pure=False)
            assert size.result() == 1000
            client.submit(len, b"another", pure=False).result()
    records = records_of(stream.data, [size.key])
    (compute,) = computes(records)
    (transfer,) = transfers(records)
    assert (compute.key, compute.worker) == (size.key, near)
    assert (transfer.worker, transfer.source) == (near, far)
    assert compute.seconds >= 0
    assert transfer.seconds >= 0
