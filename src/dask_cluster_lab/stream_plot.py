"""The task stream as a picture: a row for each thread, time to the right (Bokeh).

Computing fills a row, coloured by task prefix. What a task waited for before or after
(transfers, disk, deserialization) is a thin grey bar at the lower edge, because it can
overlap with what the same thread computes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dask_cluster_lab.task_stream import Record, prefix_of

if TYPE_CHECKING:
    from bokeh.plotting import figure

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
"""Told apart by people with any kind of colour vision (Okabe and Ito, 2008)."""
GREYS = {
    "transfer": "#000000",
    "disk-read": "#707070",
    "disk-write": "#707070",
    "deserialize": "#b0b0b0",
}
"""Everything that is not computing."""
COMPUTE_HEIGHT, WAIT_HEIGHT = 0.8, 0.2
"""Shares of a row."""
MOST_NAMES = 7
"""Prefixes with a colour of their own; the legend calls the rest ``other tasks``."""
OTHER = "other tasks"


def rows_of_threads(
    records: Iterable[Record], threads: Mapping[str, int]
) -> dict[tuple[str, object], str]:
    """Label of each thread, by worker address and thread id, in the order of the rows.

    ``threads`` says how many a worker has: one that ran nothing gets its row as well
    (its id is then ``None`` and a number), since an idle thread is what one looks for.
    """
    seen: dict[str, list[object]] = {worker: [] for worker in sorted(threads)}
    for record in sorted(
        records, key=lambda r: min(s["start"] for s in r["startstops"])
    ):
        known = seen.setdefault(record["worker"], [])
        if record.get("thread") not in known:
            known.append(record.get("thread"))
    rows = {}
    for worker, known in seen.items():
        idle = range(len(known), threads.get(worker, 0))
        for number, thread in enumerate([*known, *((None, i) for i in idle)]):
            rows[worker, thread] = f"{worker.split('://')[-1]} thread {number}"
    return rows


def stream_figure(
    records: Iterable[Record],
    title: str,
    threads: Mapping[str, int],
    marks: Mapping[str, float] | None = None,
) -> "figure":
    """A Bokeh figure of all ``records``; ``threads`` of every worker, by address.

    ``marks`` are dashed lines: a label and the seconds since the first start.
    """
    from bokeh.models import ColumnDataSource, FactorRange, HoverTool
    from bokeh.models.annotations import Label, Span
    from bokeh.plotting import figure

    records = [record for record in records if record["startstops"]]
    rows = rows_of_threads(records, threads)
    begin = min((s["start"] for r in records for s in r["startstops"]), default=0.0)
    seconds_of: dict[str, float] = defaultdict(float)
    for record in records:
        for stretch in record["startstops"]:
            if stretch["action"] == "compute":
                taken = stretch["stop"] - stretch["start"]
                seconds_of[prefix_of(record["key"])] += taken
    named = sorted(seconds_of, key=lambda name: -seconds_of[name])[:MOST_NAMES]
    colours = dict(zip(named, PALETTE, strict=False))
    # By whether it waits (drawn later, over the computing), and by name.
    groups: dict[tuple[bool, str], dict[str, list[object]]] = {}
    for record in records:
        row = rows[record["worker"], record.get("thread")]
        for stretch in record["startstops"]:
            action = stretch["action"]
            prefix = prefix_of(record["key"])
            computes = action == "compute"
            what = action if not computes else prefix if prefix in named else OTHER
            columns = groups.setdefault((not computes, what), defaultdict(list))
            # A factor with a number is a place beside the middle of its row.
            columns["row"].append((row, 0.0 if computes else -0.3))
            columns["left"].append(stretch["start"] - begin)
            columns["right"].append(stretch["stop"] - begin)
            columns["task"].append(str(record["key"]))
            columns["what"].append(action)
            columns["seconds"].append(f"{stretch['stop'] - stretch['start']:.3f}")
    picture = figure(
        title=title,
        y_range=FactorRange(factors=list(rows.values())[::-1]),
        x_axis_label="seconds since the first start",
        sizing_mode="stretch_width",
        height=130 + 30 * max(len(rows), 2),
        tools="xwheel_zoom,xpan,reset,save",
    )
    picture.ygrid.grid_line_color = None
    for (waits, what), columns in sorted(groups.items()):
        picture.hbar(
            y="row",
            left="left",
            right="right",
            height=WAIT_HEIGHT if waits else COMPUTE_HEIGHT,
            fill_color=GREYS[what] if waits else colours.get(what, "#d0d0d0"),
            line_color=None if waits else "white",
            legend_label=what,
            source=ColumnDataSource(dict(columns)),
        )
    picture.add_tools(HoverTool(tooltips=[("task", "@task"), ("@what", "@seconds s")]))
    if groups:
        picture.add_layout(picture.legend[0], "above")
        picture.legend.orientation = "horizontal"
        picture.legend.location = "top_left"
        picture.legend.click_policy = "hide"
    for label, seconds in (marks or {}).items():
        line = Span(location=seconds, dimension="height", line_dash="dashed")
        text = Label(x=seconds, y=4, y_units="screen", x_offset=4, text=label)
        text.background_fill_color = "white"
        text.text_font_size = "12px"
        picture.add_layout(line)
        picture.add_layout(text)
    return picture


def save_stream(
    records: Iterable[Record],
    title: str,
    path: Path,
    threads: Mapping[str, int],
    marks: Mapping[str, float] | None = None,
) -> None:
    """Write the picture as one HTML file that opens offline."""
    from bokeh.embed import file_html
    from bokeh.resources import INLINE

    figure = stream_figure(records, title, threads, marks)
    path.write_text(file_html(figure, INLINE, title), encoding="utf-8")
