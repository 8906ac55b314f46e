"""Masks of tables: Python's full version, and a host beside its process."""

import pytest

from dask_cluster_lab.commands.transcripts import difference, mask


@pytest.mark.parametrize(
    "version", ["3.13.0.final.0", "3.12.11.final.0", "3.14.0.candidate.2"]
)
def test_every_cell_of_a_row_is_masked(version: str) -> None:
    row = f"  python            {version}  {version}  {version}"
    assert mask(row) == " python <version> <version> <version>"


def test_other_versions_stay() -> None:
    assert mask("numpy 2.5.5 distributed 2026.8.0") == (
        "numpy 2.5.5 distributed 2026.8.0"
    )


def test_another_python_is_no_difference_and_another_package_is_one() -> None:
    committed = "  python  3.13.0.final.0  3.13.0.final.0\n  numpy   2.5.5  2.5.5"
    other_python = committed.replace("3.13.0.final.0", "3.12.11.final.0")
    assert difference(committed, other_python) == ""
    assert "2.5.6" in difference(committed, committed.replace("2.5.5", "2.5.6"))


def test_a_host_of_any_name_is_masked_in_the_cell_before_its_process() -> None:
    assert mask("  vm    pid 6604  ~8  4") == " <host> pid <pid> <about> 4"
    assert mask("  3f9a01c2d4e5  pid 19  2") == " <host> pid <pid> 2"
    assert mask("it ran as pid 19") == "it ran as pid <pid>"
