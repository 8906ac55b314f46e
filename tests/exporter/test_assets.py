"""Assets: state, checks, and materialisations counted once each."""

import asyncio

import pytest

from dagster_exporter.collectors.assets import PAGE, Assets
from dagster_exporter.failures import Failure
from dagster_exporter.window import Window

from .fake_dagster import FakeDagster, Node
from .samples import Samples

TOTAL = "dagster_asset_materializations_total"
KEY = {"path": ["survey", "chart"]}
NAME = "survey/chart"


def event(at: float, run: str = "r", partition: str | None = None) -> Node:
    return {"timestamp": f"{at * 1000:.0f}", "runId": run, "partition": partition}


def materialize(fake: FakeDagster, *events: Node) -> None:
    known = fake.materializations.setdefault(NAME, [])
    known.extend(events)
    newest = max(known, key=lambda one: float(one["timestamp"]))
    fake.asset_infos = [
        {
            "assetKey": KEY,
            "latestMaterialization": {"timestamp": newest["timestamp"]},
            "latestRun": {"status": "FAILURE", "endTime": 2000.0},
        }
    ]


@pytest.fixture
def assets(fake: FakeDagster) -> Assets:
    ran = {"status": "FAILED", "timestamp": 1900.0}
    checks = [
        {"name": "deep", "executionForLatestMaterialization": ran},
        {"name": "new", "executionForLatestMaterialization": None},
    ]
    fake.assets = [
        {
            "assetKey": KEY,
            "staleStatus": "FRESH",
            "assetChecksOrError": {"__typename": "AssetChecks", "checks": checks},
        }
    ]
    fake.asset_infos = [
        {"assetKey": KEY, "latestMaterialization": None, "latestRun": None}
    ]
    return Assets(fake, Window(floor=1000.0, margin=100.0))


def poll(assets: Assets) -> Samples:
    return Samples.of(asyncio.run(assets.poll()))


def test_state_checks_and_the_latest_run(fake: FakeDagster, assets: Assets) -> None:
    samples = poll(assets)
    assert samples.get(TOTAL, asset_key=NAME) == 0
    assert not samples.series("dagster_asset_last_success_timestamp_seconds")
    materialize(fake, event(1500.0))
    samples = poll(assets)
    key = {"asset_key": NAME}
    assert samples.get("dagster_asset_stale_status", **key, status="fresh") == 1
    latest = "dagster_asset_last_materialization_"
    assert samples.get(latest + "status", **key, status="failure") == 1
    assert samples.get(latest + "timestamp_seconds", **key) == 2000.0
    assert samples.get("dagster_asset_last_success_timestamp_seconds", **key) == 1500.0
    check = {**key, "check_name": "deep"}
    assert samples.get("dagster_asset_check_status", **check, status="failed") == 1
    assert samples.get("dagster_asset_check_timestamp_seconds", **check) == 1900.0
    assert len(samples.series("dagster_asset_check_status")) == 1


def test_each_materialisation_counts_once(fake: FakeDagster, assets: Assets) -> None:
    materialize(fake, event(900.0), event(1500.0), event(1500.0, partition="a"))
    for _ in range(2):
        assert poll(assets).get(TOTAL, asset_key=NAME) == 2
    materialize(fake, event(3000.0))
    assert poll(assets).get(TOTAL, asset_key=NAME) == 3


def test_assets_without_news_are_not_asked_about(
    fake: FakeDagster, assets: Assets
) -> None:
    materialize(fake, event(900.0))
    poll(assets)
    assert fake.asked["asset_materializations"] == 0


def test_materialised_while_the_location_was_broken(
    fake: FakeDagster, assets: Assets
) -> None:
    materialize(fake, event(1500.0))
    assert poll(assets).get(TOTAL, asset_key=NAME) == 1
    defined, fake.assets = fake.assets, []
    infos, fake.asset_infos = fake.asset_infos, []
    fake.materializations[NAME].append(event(2000.0))
    assert poll(assets).get(TOTAL, asset_key=NAME) == 2
    # Another asset moves the mark, far beyond the margin.
    other = {"path": ["tides"]}
    fake.assets = [{**defined[0], "assetKey": other}]
    fake.materializations["tides"] = [event(9000.0)]
    latest = {"timestamp": "9000000"}
    tides = {"assetKey": other, "latestMaterialization": latest, "latestRun": None}
    fake.asset_infos = [tides]
    assert poll(assets).get(TOTAL, asset_key=NAME) == 2
    fake.assets, fake.asset_infos = [*defined, *fake.assets], [*infos, tides]
    samples = poll(assets)
    assert samples.get(TOTAL, asset_key=NAME) == 2
    assert samples.get(TOTAL, asset_key="tides") == 1


def test_more_than_a_page(fake: FakeDagster, assets: Assets) -> None:
    many = [event(1001 + number, partition=str(number)) for number in range(2 * PAGE)]
    materialize(fake, *many)
    assert poll(assets).get(TOTAL, asset_key=NAME) == 2 * PAGE


def test_more_than_a_page_in_one_millisecond(fake: FakeDagster, assets: Assets) -> None:
    many = [event(1500.0, partition=str(number)) for number in range(2 * PAGE)]
    materialize(fake, *many)
    with pytest.raises(Failure) as caught:
        poll(assets)
    assert caught.value.reason == "suspect_page"


def test_an_instance_without_checks(fake: FakeDagster, assets: Assets) -> None:
    fake.assets[0]["assetChecksOrError"] = {
        "__typename": "AssetCheckNeedsMigrationError",
        "message": "run dagster instance migrate",
    }
    with pytest.raises(Failure, match="migrate") as caught:
        poll(assets)
    assert caught.value.reason == "unexpected_type"
