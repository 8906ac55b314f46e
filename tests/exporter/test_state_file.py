"""Totals over a restart."""

import asyncio
from pathlib import Path

import pytest

from dagster_exporter.collectors.completed_runs import CompletedRuns
from dagster_exporter.roster import Roster
from dagster_exporter.settings import SettingsError
from dagster_exporter.state_file import StateFile
from dagster_exporter.totals import Totals
from dagster_exporter.window import Window

from .fake_dagster import FakeDagster, make_run
from .samples import Samples

ENDPOINT = "http://dagster/graphql"
GOOD = {"job_name": "good", "location": "lab", "status": "success"}


def start_and_poll(fake: FakeDagster, path: Path, floor: float) -> Samples:
    """What a process sees that starts at ``floor`` and is then killed."""
    file = StateFile(path, ENDPOINT)
    totals = file.load(100.0) or Totals(Window(floor, 100.0))
    collector = CompletedRuns(fake, Roster(), 500, totals, file)
    return Samples.of(asyncio.run(collector.poll()))


def test_nothing_is_lost_or_doubled(fake: FakeDagster, tmp_path: Path) -> None:
    path = tmp_path / "state"
    fake.runs = [make_run("a", at=1010), make_run("b", at=1020)]
    before = start_and_poll(fake, path, floor=1000)
    again = start_and_poll(fake, path, floor=5000)
    assert again.series("dagster_completed_runs_total") == before.series(
        "dagster_completed_runs_total"
    )
    assert again.series("dagster_run_duration_seconds_bucket") == before.series(
        "dagster_run_duration_seconds_bucket"
    )
    # These ended while no exporter was there.
    fake.runs += [make_run("c", at=3000), make_run("d", at=1021)]
    samples = start_and_poll(fake, path, floor=5000)
    assert samples.get("dagster_completed_runs_total", **GOOD) == 4
    assert [one.name for one in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "buckets": []}', "\x00"]
)
def test_another_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with pytest.raises(SettingsError, match="cannot be used: move it away"):
        StateFile(path, ENDPOINT).load(100.0)
    assert path.read_text() == text


def test_the_file_of_another_dagster(tmp_path: Path) -> None:
    path = tmp_path / "state"
    StateFile(path, "http://other/graphql").save(Totals(Window(0.0, 1.0)))
    with pytest.raises(SettingsError, match="is about http://other/graphql"):
        StateFile(path, ENDPOINT).load(100.0)


def test_a_folder_that_is_gone(fake: FakeDagster, tmp_path: Path) -> None:
    fake.runs = [make_run("a", at=1010)]
    samples = start_and_poll(fake, tmp_path / "gone" / "state", floor=1000)
    assert samples.get("dagster_completed_runs_total", **GOOD) == 1
    assert samples.get("dagster_exporter_state_file_errors_total") == 1


def test_a_file_that_nests_too_deep(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("[" * 100_000)
    with pytest.raises(SettingsError, match="cannot be used"):
        StateFile(path, ENDPOINT).load(0)
