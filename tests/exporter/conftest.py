"""Fixtures of the exporter's tests."""

import os

import pytest

from .fake_dagster import FakeDagster


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith("DAGSTER_"):
            monkeypatch.delenv(name)


@pytest.fixture
def fake() -> FakeDagster:
    """A Dagster with two jobs and no runs."""
    return FakeDagster()
