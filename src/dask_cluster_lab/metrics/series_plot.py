"""How the number of series grows over the nights, as a picture (Bokeh)."""

from collections.abc import Mapping
from pathlib import Path

COLOURS = ("#d55e00", "#0072b2")
"""Told apart by people with any kind of colour vision (Okabe and Ito, 2008)."""


def save_growth(growth: Mapping[str, Mapping[int, int]], page: Path) -> None:
    """Save a page that opens offline: a line for each label, series over nights."""
    from bokeh.embed import file_html
    from bokeh.models import BasicTickFormatter
    from bokeh.plotting import figure
    from bokeh.resources import INLINE

    plot = figure(
        title="Series in the registry, by the label of the metric",
        x_axis_label="nights",
        y_axis_label="series",
        width=800,
        height=400,
        output_backend="svg",
    )
    for (label, series), colour in zip(growth.items(), COLOURS, strict=True):
        nights = list(series)
        plot.line(
            nights,
            [series[night] for night in nights],
            legend_label=label,
            line_color=colour,
            line_width=3,
        )
    plot.legend.location = "top_left"
    plot.yaxis.formatter = BasicTickFormatter(use_scientific=False)
    page.write_text(file_html(plot, INLINE, "Series over a year"), encoding="utf-8")
