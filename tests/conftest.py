"""Fixtures that several test files use."""

import os
from collections.abc import Iterator

import pytest
from compose_cluster import ComposeCluster, why_no_docker

REQUIRE_ALL = os.environ.get("LAB_REQUIRE_ALL") == "1"


def leave_out(reason: str, remedy: str) -> None:
    """Skip, with the reason and what would bring the test; in CI that is a failure."""
    message = f"{reason}; {remedy}"
    if REQUIRE_ALL:
        pytest.fail(f"{message} (LAB_REQUIRE_ALL=1: nothing may be left out)")
    pytest.skip(message)


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Leaves the test out where no Docker Engine answers."""
    reason = why_no_docker()
    if reason:
        leave_out(reason, "Docker Engine with Compose brings these tests")


@pytest.fixture(scope="session")
def cluster(docker_engine: None) -> Iterator[ComposeCluster]:
    """A Compose cluster of three workers that tests leave as they found it."""
    compose = ComposeCluster("test")
    compose.make("up")
    yield compose
    compose.make("down")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int
) -> None:
    """Say in one line what was left out and what would bring it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report.longrepr, tuple)
    }
    if skipped:
        terminalreporter.write_line(
            f"left out {len(skipped)} tests: {' | '.join(sorted(reasons))}"
        )
