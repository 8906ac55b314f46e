"""The log: lines of JSON without anything secret."""

import json
import logging
from typing import Any

import pytest

from dagster_exporter.answers import member
from dagster_exporter.failures import Failure
from dagster_exporter.log import LONGEST, JsonLines, hide

SECRET = "hush-hush-4711"


def line(event: str = "poll failed", **fields: Any) -> dict[str, Any]:
    """What the log says, by a formatter that knows the secret."""
    record = logging.makeLogRecord({"msg": event, "fields": fields})
    told: dict[str, Any] = json.loads(JsonLines([f"Bearer {SECRET}"]).format(record))
    return told


@pytest.mark.parametrize("position", [290, LONGEST - 5])
def test_a_secret_where_a_message_is_cut(position: int) -> None:
    error = {"__typename": "PythonError", "message": position * "x" + SECRET}
    with pytest.raises(Failure) as caught:
        member({"runsOrError": error}, "runsOrError", "Runs")
    detail = line(detail=str(caught.value))["detail"]
    assert "x" * 290 in detail
    assert SECRET[:5] not in detail
    assert len(detail) <= LONGEST


def test_every_field_is_without_secrets() -> None:
    told = line(f"with {SECRET}", endpoint=f"http://x/{SECRET}", port=9101)
    assert told["event"] == "with ***"
    assert told["endpoint"] == "http://x/***"
    assert told["port"] == 9101


def test_a_secret_that_begins_another() -> None:
    assert hide("abcd abcdef", ["abcd", "abcdef"]) == "*** ***"
