"""The picture of the task stream: what it draws, read back from its own document."""

from pathlib import Path
from typing import Any

import pytest

from dask_cluster_lab.reports import bokeh_objects, fetched_from_outside
from dask_cluster_lab.stream_plot import (
    GREYS,
    MOST_NAMES,
    PALETTE,
    rows_of_threads,
    save_stream,
    stream_figure,
)
from dask_cluster_lab.task_stream import Record

A, B = "tcp://10.0.0.1:4001", "tcp://10.0.0.2:4002"


def record(key: Any, worker: str, thread: object, *stretches: Any) -> Record:
    return {
        "key": key,
        "worker": worker,
        "thread": thread,
        "startstops": [
            {"action": action, "start": start, "stop": stop}
            for action, start, stop in stretches
        ],
    }


RECORDS = [
    record("tile-2", A, 77, ("compute", 11.0, 12.0)),
    record("tile-1", A, 99, ("compute", 10.0, 11.5)),
    record(("mean", 0), A, 77, ("transfer", 11.5, 12.5), ("compute", 12.5, 14.0)),
    record("tile-3", B, 99, ("compute", 10.5, 11.0), ("disk-write", 11.0, 11.1)),
]
THREADS = {A: 2, B: 3}


def bars(figure: Any) -> list[tuple[str, str, float, float, str]]:
    """Label, row, start, stop and colour of every bar, in the order of drawing."""
    labels = {
        renderer.id: item.label.value
        for item in figure.legend[0].items
        for renderer in item.renderers
    }
    return [
        (labels[renderer.id], row, left, right, renderer.glyph.fill_color)
        for renderer in figure.renderers
        for (row, _), left, right in zip(
            *(renderer.data_source.data[name] for name in ("row", "left", "right")),
            strict=True,
        )
    ]


def test_a_row_for_each_thread_also_those_that_ran_nothing() -> None:
    assert rows_of_threads(RECORDS, THREADS) == {
        (A, 99): "10.0.0.1:4001 thread 0",
        (A, 77): "10.0.0.1:4001 thread 1",
        (B, 99): "10.0.0.2:4002 thread 0",
        (B, (None, 1)): "10.0.0.2:4002 thread 1",
        (B, (None, 2)): "10.0.0.2:4002 thread 2",
    }


def test_rows_of_a_worker_that_is_gone_and_of_threads_that_came_and_went() -> None:
    more = [record(f"tile-{i}", B, i, ("compute", i, i + 1)) for i in range(3)]
    assert list(rows_of_threads([*RECORDS, *more], {A: 1}).values()) == [
        *(f"10.0.0.1:4001 thread {i}" for i in range(2)),
        *(f"10.0.0.2:4002 thread {i}" for i in range(4)),
    ]


def test_every_stretch_is_a_bar_in_the_row_of_its_thread() -> None:
    picture: Any = stream_figure(RECORDS, "Two workers", THREADS)
    first, second, other = (
        "10.0.0.1:4001 thread 0", "10.0.0.1:4001 thread 1", "10.0.0.2:4002 thread 0",
    )  # fmt: skip
    # Most time gets the first colour: three tiles have 3 s, the mean 1.5 s.
    assert bars(picture) == [
        ("mean", second, 2.5, 4.0, PALETTE[1]),
        ("tile", second, 1.0, 2.0, PALETTE[0]),
        ("tile", first, 0.0, 1.5, PALETTE[0]),
        ("tile", other, 0.5, 1.0, PALETTE[0]),
        ("disk-write", other, 1.0, pytest.approx(1.1), GREYS["disk-write"]),
        ("transfer", second, 1.5, 2.5, GREYS["transfer"]),
    ]
    assert picture.title.text == "Two workers"
    assert len(picture.y_range.factors) == 5
    assert picture.y_range.factors[-1] == first, "Bokeh draws the last factor on top"


def test_a_task_that_is_called_like_an_action_is_no_wait() -> None:
    picture = stream_figure(
        [record("transfer-1", A, 1, ("transfer", 1, 2), ("compute", 2, 3))], "", {A: 1}
    )
    assert [(label, colour) for label, *_, colour in bars(picture)] == [
        ("transfer", PALETTE[0]),
        ("transfer", GREYS["transfer"]),
    ]


def test_more_prefixes_than_colours() -> None:
    names = [f"name{letter}" for letter in "abcdefghi"]
    picture = stream_figure(
        [
            record((name, 0), A, 1, ("compute", i, i + 0.9 - i / 100))
            for i, name in enumerate(names)
        ],
        "",
        {A: 1},
    )
    drawn = {label: colour for label, *_, colour in bars(picture)}
    assert list(drawn) == [*names[:MOST_NAMES], "other tasks"]
    assert len(set(drawn.values())) == MOST_NAMES + 1
    assert len(bars(picture)) == len(names), "the others are drawn as well"


def test_marks_are_lines_with_a_label() -> None:
    from bokeh.models.annotations import Label, Span

    picture: Any = stream_figure(RECORDS, "", THREADS, {"the floor": 1.25})
    lines, labels = picture.select({"type": Span}), picture.select({"type": Label})
    assert [(line.location, line.dimension) for line in lines] == [(1.25, "height")]
    assert [(label.x, label.text) for label in labels] == [(1.25, "the floor")]


def test_no_records_draw_empty_rows() -> None:
    picture: Any = stream_figure([], "Nothing ran", {A: 2})
    assert picture.renderers == []
    assert len(picture.y_range.factors) == 2


def test_the_saved_page_holds_the_picture_and_needs_nothing_else(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stream.html"
    save_stream(RECORDS, "A <run>", path, THREADS)
    page = path.read_text(encoding="utf-8")
    names = [thing.get("name") for thing in bokeh_objects(page)]
    assert names.count("HBar") >= 4
    assert names.count("Figure") == 1
    assert fetched_from_outside(page) == []
    assert "<title>A &lt;run&gt;</title>" in page
