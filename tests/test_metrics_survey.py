"""The survey: the same tiles, residuals and outcomes everywhere."""

from pathlib import Path

import numpy as np
import pytest

from dask_cluster_lab.metrics.survey import (
    CELLS,
    SOUNDINGS,
    THRESHOLD,
    TILES,
    Tile,
    expected,
    ingest,
    on_grid,
    plane_through,
    publish,
    published,
    residual_of,
    residual_of_tile,
    survey_tile,
)


def test_soundings_of_a_tile() -> None:
    soundings = ingest(3)
    assert soundings.shape == (SOUNDINGS, 3)
    assert np.isnan(soundings[:, 2]).sum() == 5
    assert np.flatnonzero(np.isnan(soundings[:, 2]))[0] == 3
    np.testing.assert_array_equal(soundings, ingest(3))


def test_a_plane_and_its_grid() -> None:
    x, y = np.meshgrid([0.0, 0.5, 1.0], [0.0, 0.5, 1.0])
    soundings = np.column_stack([x.ravel(), y.ravel(), (20 + x - 2 * y).ravel()])
    plane = plane_through(soundings)
    np.testing.assert_allclose(plane, [1, -2, 20], atol=1e-12)
    assert residual_of(soundings, plane) == pytest.approx(0, abs=1e-12)
    soundings[:, 2] += [0.1, -0.1, 0.1, -0.1, 0, 0.1, -0.1, 0.1, -0.1]
    assert residual_of(soundings, plane) == pytest.approx(0.1 * (8 / 9) ** 0.5)
    grid = on_grid(plane)
    assert grid.shape == (CELLS, CELLS)
    assert grid[0, 0] == pytest.approx(20 + 0.1 - 0.2)
    assert grid[-1, 0] == pytest.approx(20 + 0.1 - 1.8)


def test_a_tile_that_passes_and_one_that_does_not(tmp_path: Path) -> None:
    good, bad = (survey_tile(number, str(tmp_path)) for number in (0, 24))
    assert good == Tile(0, "ok", residual_of_tile(0), 25)
    assert bad == Tile(24, "rejected", residual_of_tile(24), 0)
    assert good.residual < THRESHOLD < bad.residual
    (file,) = tmp_path.iterdir()
    assert file.name == "0000.npy"
    assert np.load(file).shape == (5, 5)


def test_publishing_twice_leaves_one_whole_file(tmp_path: Path) -> None:
    for depth in (1.0, 2.0):
        publish(np.full((5, 5), depth), tmp_path / "deep" / "0001.npy")
    (file,) = (tmp_path / "deep").iterdir()
    assert np.load(file)[0, 0] == 2
    (file.parent / "0002-1-1.part").touch()
    assert published(str(file.parent)) == 1


def test_the_truth_is_the_sum_of_the_tiles() -> None:
    truth = expected()
    assert truth == {"ok": 381, "rejected": 19}
    some = [survey_tile(number).outcome for number in range(50)]
    assert {o: some.count(o) for o in truth} == expected(50)
    residuals = [residual_of_tile(number) for number in range(TILES)]
    # Near the gate, so that buckets decide on which side the quantile is.
    assert 0.9 * THRESHOLD < np.quantile(residuals, 0.95) < THRESHOLD
