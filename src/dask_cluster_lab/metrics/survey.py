"""The pipeline that phase 6 watches: 400 tiles of soundings, four stages, one gate.

A tile is 100 soundings (x, y, depth in metres) of a made sea floor. ``ingest`` drops
what the sonar lost, ``grid`` fits a plane to the rest and takes its depths in cells,
``validate`` measures how far the soundings lie from that plane (root mean square,
metres) and rejects a tile above ``THRESHOLD``, ``publish`` writes the cells. All of it
follows from the tile's number: the same tiles are rejected in every run, on every
machine.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dask_cluster_lab.metrics.work import unit_of_work

TILES = 400
SOUNDINGS = 100
CELLS = 5  # along each side of a tile
THRESHOLD = 0.05  # metres
LOST_EVERY = 20  # one sounding of so many is lost


class UnreadableTile(ValueError):
    """The tile's file cannot be read."""


@dataclass(frozen=True)
class Tile:
    """What became of one tile."""

    number: int
    outcome: str
    """``ok``, or ``rejected`` by the gate."""
    residual: float
    """Metres."""
    rows: int
    """Cells that were published; 0 if it was rejected."""


def noise_of(number: int) -> float:
    """The sonar's noise on this tile, in metres: of one in 25 too much to pass."""
    return 0.07 if number % 25 == 24 else 0.03 + 0.016 * (number * 37 % 100) / 100


def ingest(number: int) -> np.ndarray:
    """Soundings (sounding, 3): x, y from 0 to 1, depth in metres or NaN if lost."""
    random = np.random.default_rng(number)
    x, y = random.uniform(size=(2, SOUNDINGS))
    depth = 20 + x - 2 * y + random.normal(scale=noise_of(number), size=SOUNDINGS)
    depth[number % LOST_EVERY :: LOST_EVERY] = np.nan
    return np.column_stack([x, y, depth])


def plane_through(soundings: np.ndarray) -> np.ndarray:
    """The plane (3,) that fits best: slopes along x and y, depth at the origin."""
    x, y, depth = soundings.T
    return np.linalg.lstsq(np.column_stack([x, y, np.ones_like(x)]), depth)[0]


def on_grid(plane: np.ndarray) -> np.ndarray:
    """Depths (CELLS, CELLS) in metres at the middle of each cell."""
    middle = (np.arange(CELLS) + 0.5) / CELLS
    return plane[2] + plane[0] * middle[None, :] + plane[1] * middle[:, None]


def residual_of(soundings: np.ndarray, plane: np.ndarray) -> float:
    """How far soundings lie from the plane: root mean square, metres."""
    off = soundings[:, 2] - soundings[:, :2] @ plane[:2] - plane[2]
    return float(np.sqrt(np.mean(off**2)))


def survey_tile(
    number: int, folder: str = "", seconds: float = 0.0, unreadable: bool = False
) -> Tile:
    """Take one tile through all stages; publish it to ``folder`` if there is one.

    ``seconds`` of sleep stand for the work of a real tile. Raises ``UnreadableTile`` in
    ``ingest`` if told to.
    """
    with unit_of_work("ingest", number) as unit:
        if unreadable:
            raise UnreadableTile(f"tile {number} ends after half of its soundings")
        soundings = ingest(number)
        unit.rows_in = len(soundings)
        soundings = soundings[~np.isnan(soundings[:, 2])]
        unit.rows_out = len(soundings)
    with unit_of_work("grid", number, rows_in=len(soundings)) as unit:
        time.sleep(seconds)
        plane = plane_through(soundings)
        grid = on_grid(plane)
        unit.rows_out = grid.size
    with unit_of_work("validate", number, rows_in=grid.size) as unit:
        residual = residual_of(soundings, plane)
        unit.residual = residual
        if residual > THRESHOLD:
            unit.outcome = "rejected"
            return Tile(number, "rejected", residual, 0)
        unit.rows_out = grid.size
    with unit_of_work("publish", number, rows_in=grid.size) as unit:
        if folder:
            publish(grid, Path(folder) / f"{number:04}.npy")
        unit.rows_out = grid.size
    return Tile(number, "ok", residual, grid.size)


def publish(grid: np.ndarray, path: Path) -> None:
    """Write the grid whole or not at all, so that doing it twice changes nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.stem}-{os.getpid()}-{time.monotonic_ns()}.part")
    with partial.open("wb") as file:
        np.save(file, grid)
    partial.replace(path)


def published(folder: str) -> int:
    """How many tiles are in a folder; half of a file, left by a death, is none."""
    return len(list(Path(folder).glob("*.npy")))


def expected(tiles: int = TILES) -> dict[str, int]:
    """How many of the first ``tiles`` tiles pass and how many are rejected.

    Computed without any cluster, metric or task: the truth that others are held to.
    """
    outcomes = [residual_of_tile(number) > THRESHOLD for number in range(tiles)]
    return {"ok": outcomes.count(False), "rejected": outcomes.count(True)}


def residual_of_tile(number: int) -> float:
    """The residual of a tile, in metres, by the shortest way."""
    soundings = ingest(number)
    soundings = soundings[~np.isnan(soundings[:, 2])]
    return residual_of(soundings, plane_through(soundings))
