"""Values in Dagster's answers that are no values."""

import json
from typing import Any

import pytest

from dagster_exporter.answers import asset_key, number, optional_number, text
from dagster_exporter.failures import Failure


def test_numbers() -> None:
    answer = {"a": 5, "b": "1700000000123", "c": None}
    assert number(answer, "a") == 5
    assert number(answer, "b") == 1700000000123
    assert optional_number(answer, "c") is None


@pytest.mark.parametrize(
    "written",
    ["NaN", "Infinity", "-Infinity", '"nan"', '"inf"', "1e999", "1" + 400 * "0"],
)
def test_what_is_no_finite_number(written: str) -> None:
    answer = json.loads(f'{{"a": {written}}}')
    with pytest.raises(Failure, match="and not a finite number") as caught:
        optional_number(answer, "a")
    assert caught.value.reason == "missing_field"


@pytest.mark.parametrize("wrong", [True, [], {}, "many"])
def test_what_is_no_number(wrong: Any) -> None:
    with pytest.raises(Failure, match=r"a is \w+ and not a finite number"):
        number({"a": wrong}, "a")


def test_half_of_a_character() -> None:
    answer = json.loads(r'{"a": "x\ud800", "assetKey": {"path": ["x\ud800"]}}')
    with pytest.raises(Failure, match="a is no valid text") as caught:
        text(answer, "a")
    assert caught.value.reason == "missing_field"
    with pytest.raises(Failure, match="path is no valid text"):
        asset_key(answer)
    whole = json.loads(r'{"a": "\ud83d\ude00"}')
    assert text(whole, "a") == "\N{GRINNING FACE}"
