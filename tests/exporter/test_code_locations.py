"""Code locations: which load, and what jobs are known."""

import asyncio

import pytest

from dagster_exporter.collectors.code_locations import CodeLocations
from dagster_exporter.failures import Failure
from dagster_exporter.roster import Roster

from .fake_dagster import FakeDagster
from .samples import Samples

ERROR = "dagster_code_location_load_error"


def poll(fake: FakeDagster, roster: Roster) -> Samples:
    return Samples.of(asyncio.run(CodeLocations(fake, roster).poll()))


def test_one_loads_and_one_does_not(fake: FakeDagster) -> None:
    fake.locations["broken"] = None
    samples = poll(fake, Roster())
    assert samples.get(ERROR, location="lab") == 0
    assert samples.get(ERROR, location="broken") == 1


def test_jobs_of_a_location_that_breaks_are_still_known(fake: FakeDagster) -> None:
    roster = Roster()
    poll(fake, roster)
    fake.locations["lab"] = None
    poll(fake, roster)
    assert roster.jobs() == {("good", "lab"), ("failing", "lab")}


def test_a_location_that_is_loading_is_neither(fake: FakeDagster) -> None:
    roster = Roster()
    poll(fake, roster)
    fake.loading.add("lab")
    samples = poll(fake, roster)
    assert samples.get(ERROR, location="lab") is None
    assert roster.jobs() == {("good", "lab"), ("failing", "lab")}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("PythonError", "python_error"), ("Surprise", "unexpected_type")],
)
def test_another_member_of_the_union(fake: FakeDagster, kind: str, reason: str) -> None:
    answer = {"workspaceOrError": {"__typename": kind, "message": "no workspace"}}
    fake.change = lambda query, _: answer
    roster = Roster()
    with pytest.raises(Failure, match="no workspace") as caught:
        poll(fake, roster)
    assert caught.value.reason == reason
    assert roster.answers == 0


def test_a_field_is_missing(fake: FakeDagster) -> None:
    fake.change = lambda query, answer: {
        "workspaceOrError": {"__typename": "Workspace"}
    }
    with pytest.raises(Failure, match="locationEntries") as caught:
        poll(fake, Roster())
    assert caught.value.reason == "missing_field"
