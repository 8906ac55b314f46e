"""Grafana's dashboards as typed code; ``make dashboards`` writes them as JSON.

One function a dashboard, all of them in ``DASHBOARDS``; Grafana reads the JSON in
``dashboards/``. To add one: a function, its entry, ``make dashboards``. A panel is a
``Graph`` or a ``Number``: a title, how to read it, a unit, and what to ask Prometheus,
legend and expression.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    GraphThresholdsStyleMode,
    StackingMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DataSourceRef,
    GridPos,
    Threshold,
    ThresholdsMode,
)

from dask_cluster_lab.metrics.survey import THRESHOLD

FOLDER = Path(__file__).with_suffix("")
SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
"""As ``provisioning/datasources/prometheus.yml`` names it."""
WIDTH = 24  # of Grafana's grid
HEIGHT = {"Number": 4, "Graph": 8}

Queries = dict[str, str]
"""Legend, with labels as ``{{stage}}``, to expression."""
Limits = Sequence[tuple[float, str]]
"""From which value on which colour; below the first it is green."""


@dataclass(frozen=True)
class Graph:
    """Lines over time."""

    title: str
    description: str
    unit: str
    queries: Queries
    stacked: bool = False
    limits: Limits = ()
    """Drawn as lines across the plot."""
    top: float | None = None
    """The upper end of the axis, where a value has one by its nature."""


@dataclass(frozen=True)
class Number:
    """The last value, large, in the colour of its limits."""

    title: str
    description: str
    unit: str
    queries: Queries
    limits: Limits = ()


def targets(panel: Graph | Number) -> list[Dataquery]:
    """The queries of a panel, named A, B, C."""
    return [
        Dataquery()
        .ref_id(name)
        .datasource(SOURCE)
        .expr(expr)
        .range()
        .legend_format(legend)
        for name, (legend, expr) in zip(
            ascii_uppercase, panel.queries.items(), strict=False
        )
    ]


def limits(panel: Graph | Number) -> build.ThresholdsConfig:
    """The colours of a panel."""
    steps = [Threshold(value=None, color="green")]
    steps += [Threshold(value=value, color=color) for value, color in panel.limits]
    return build.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def graph(panel: Graph) -> timeseries.Panel:
    """A ``Graph`` as Grafana's own panel."""
    built = (
        timeseries.Panel()
        .legend(common.VizLegendOptions().show_legend(True))
        .tooltip(common.VizTooltipOptions())
        .show_points(VisibilityMode.NEVER)
        .min(0)
    )
    if panel.top is not None:
        built.max(panel.top)
    if panel.stacked:
        built.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
        built.fill_opacity(30)
    if panel.limits:
        line = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.LINE)
        built.thresholds_style(line)
    return built


def number(panel: Number) -> stat.Panel:
    """A ``Number`` as Grafana's own panel."""
    return stat.Panel().reduce_options(
        common.ReduceDataOptions().calcs(["lastNotNull"])
    )


def arrange(
    uid: str, title: str, description: str, rows: Sequence[Sequence[Graph | Number]]
) -> Dashboard:
    """A dashboard of these rows of panels, each as wide as its row has room for."""
    board = (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["dask-cluster-lab"])
        .time("now-15m", "now")
        .refresh("5s")
        .timezone("browser")
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    identity = y = 0
    for row in rows:
        width = WIDTH // len(row)
        height = max(HEIGHT[type(panel).__name__] for panel in row)
        for column, panel in enumerate(row):
            identity += 1
            built = graph(panel) if isinstance(panel, Graph) else number(panel)
            board.with_panel(
                built.id(identity)
                .title(panel.title)
                .description(panel.description)
                .unit(panel.unit)
                .datasource(SOURCE)
                .grid_pos(GridPos(x=column * width, y=y, w=width, h=height))
                .thresholds(limits(panel))
                .targets(list(targets(panel)))
            )
        y += height
    return board.build()


ALERTS = Number(
    "Alerts",
    "How many alerts fire. The page /alerts of Prometheus, or its API at "
    "/api/v1/alerts, says which and what to do next.",
    units.Short,
    {"firing": 'count(ALERTS{alertstate="firing"}) or vector(0)'},
    limits=[(1, "red")],
)


def cluster() -> Dashboard:
    """How scheduler and workers are."""
    return arrange(
        "cluster",
        "Cluster",
        "How the scheduler and the workers are, by Dask's own metrics.",
        [
            [
                Number(
                    "Workers",
                    "Workers that the scheduler has, and those that answer Prometheus. "
                    "If the second is smaller, every sum over workers here is too.",
                    units.Short,
                    {
                        "known to the scheduler": "cluster:dask_scheduler_workers:sum",
                        "answering": "cluster:dask_worker_targets_up:count",
                    },
                ),
                Number(
                    "Paused workers",
                    "They take no tasks before their memory falls. Anything but 0 "
                    "explains why nothing goes on.",
                    units.Short,
                    {"paused": 'sum(dask_scheduler_workers{state="paused"})'},
                    limits=[(1, "red")],
                ),
                Number(
                    "Spilled",
                    "Results that are on the workers' disks, for want of memory.",
                    units.BytesIEC,
                    {"spilled": 'sum(dask_worker_memory_bytes{type="spilled"})'},
                    limits=[(1, "orange")],
                ),
                ALERTS,
            ],
            [
                Graph(
                    "Tasks by state",
                    "All tasks that the scheduler knows. Many in processing or queued: "
                    "there is work. In no-worker: no worker may run them, and nothing "
                    "says so. In erred: read the exception. In memory: somebody holds "
                    "futures.",
                    units.Short,
                    {"{{state}}": "sum by (state) (dask_scheduler_tasks)"},
                    stacked=True,
                ),
                Graph(
                    "Busy",
                    "Which part of all threads computed or waited for a transfer, over "
                    "the last minute. Low with many tasks: they are too small, or wait "
                    "for each other. It is counted when a task ends, so that tasks of "
                    "minutes come late and in heaps, even above 100%.",
                    units.PercentUnit,
                    {
                        "computing": "cluster:dask_compute:ratio_rate1m",
                        "transferring": "sum(rate("
                        "dask_scheduler_tasks_transfer_seconds_total[$__rate_interval]"
                        ")) / sum(dask_worker_threads)",
                    },
                ),
            ],
            [
                Graph(
                    "Process memory",
                    "Memory of each worker's process. One far above the others holds "
                    "more than its part of the data. The limit is no metric: see the "
                    "worker's command in compose.yml.",
                    units.BytesIEC,
                    {"{{instance}}": "instance:dask_worker_process_memory_bytes:sum"},
                ),
                Graph(
                    "Memory by kind",
                    "Managed: results, which can be spilled or released. Unmanaged: "
                    "the rest of the processes; if it grows and stays, something "
                    "leaks. Spilled: on disk.",
                    units.BytesIEC,
                    {"{{type}}": "sum by (type) (dask_worker_memory_bytes)"},
                    stacked=True,
                ),
            ],
            [
                Graph(
                    "Sent to other workers",
                    "Bytes a second that each worker sends to others. Much of it with "
                    "little computing: the data lies in the wrong place.",
                    units.BytesPerSecondIEC,
                    {
                        "{{instance}}": "rate("
                        "dask_worker_transfer_outgoing_bytes_total[$__rate_interval])"
                    },
                ),
                Graph(
                    "Event loop",
                    "The longest time since the last scrape in which the process did "
                    "not react. Above a second: a task holds the interpreter, or the "
                    "scheduler has too many small tasks. Each scrape resets it, so two "
                    "Prometheus servers share the peaks.",
                    units.Seconds,
                    {
                        "scheduler": "dask_scheduler_tick_duration_maximum_seconds",
                        "{{instance}}": "dask_worker_tick_duration_maximum_seconds",
                    },
                    limits=[(1, "orange")],
                ),
            ],
            [
                Graph(
                    "Series by job",
                    "How many series each job brings, by the last scrape. It should "
                    "follow the number of workers and nothing else. A line that climbs "
                    "with every run has a label that names the run.",
                    units.Short,
                    {"{{job}}": "job:scrape_samples:sum"},
                    stacked=True,
                ),
                Graph(
                    "Series in Prometheus",
                    "All series that the server holds in memory; those that ended stay "
                    "for two hours or so.",
                    units.Short,
                    {"in memory": "prometheus_tsdb_head_series"},
                ),
            ],
        ],
    )


def pipeline() -> Dashboard:
    """Whether the survey's data is right."""
    return arrange(
        "pipeline",
        "Pipeline",
        "Whether the survey's data is right, by the metrics of the pipeline itself.",
        [
            [
                Number(
                    "Published",
                    "Distinct tiles of this run that were published, by the scheduler: "
                    "exact whatever becomes of the workers. Empty between runs.",
                    units.Short,
                    {
                        "published": "sum(survey_run_units_total"
                        '{stage="publish",outcome="ok"})'
                    },
                ),
                Number(
                    "Rejected",
                    "Distinct tiles of this run that the gate rejected.",
                    units.Short,
                    {
                        "rejected": "sum(survey_run_units_total"
                        '{stage="validate",outcome="rejected"})'
                    },
                    limits=[(1, "orange")],
                ),
                Number(
                    "Residual, p95",
                    "Of the last five minutes. Red: more than one tile in twenty is "
                    "rejected. Orange: nearly so.",
                    units.Meter,
                    {"p95": "survey:residual_metres:p95_rate5m"},
                    limits=[(round(0.9 * THRESHOLD, 3), "orange"), (THRESHOLD, "red")],
                ),
                ALERTS,
            ],
            [
                Graph(
                    "Units by stage",
                    "Units a second that each stage ended, whatever their outcome. All "
                    "stages run alike, save that publish gets only what validate lets "
                    "through. One at zero while the one before it runs has stopped.",
                    units.OpsPerSecond,
                    {
                        "{{stage}}": "sum by (stage) "
                        "(rate(survey_units_total[$__rate_interval]))"
                    },
                ),
                Graph(
                    "Errors and rejections",
                    "Which part of the units of a stage raised an error or was "
                    "rejected, over five minutes. Errors are about the machine or the "
                    "code, rejections about the data. A gap: nobody works.",
                    units.PercentUnit,
                    {
                        "{{stage}}, error": "stage:survey_units_error:ratio_rate5m",
                        "{{stage}}, rejected": "stage:survey_units_rejected"
                        ':ratio_rate5m{stage="validate"}',
                    },
                    limits=[(0.05, "red")],
                    top=1,
                ),
            ],
            [
                Graph(
                    "Residuals",
                    "Quantiles over five minutes, and the gate's threshold. If all "
                    "rise, something changed for all tiles (sonar, tides, datum). If "
                    "only the highest does, look at single tiles.",
                    units.Meter,
                    {
                        f"p{share * 100:g}": f"histogram_quantile({share}, "
                        "sum by (le) (rate(survey_residual_metres_bucket[5m])))"
                        for share in (0.5, 0.95, 0.99)
                    },
                    limits=[(THRESHOLD, "red")],
                ),
                Graph(
                    "Seconds for a unit, p95",
                    "One unit in twenty takes longer than this, by stage.",
                    units.Seconds,
                    {"{{stage}}": "stage:survey_unit_seconds:p95_rate5m"},
                ),
            ],
            [
                Graph(
                    "Rows out of rows in",
                    "Which part of the rows that went into a stage came out of it. "
                    "ingest drops what the sonar lost, grid averages, validate keeps "
                    "back what it rejects. A step in a line is a change in the data.",
                    units.PercentUnit,
                    {
                        "{{stage}}": "sum by (stage) "
                        '(rate(survey_rows_total{direction="out"}[5m])) '
                        "/ sum by (stage) "
                        '(rate(survey_rows_total{direction="in"}[5m]))'
                    },
                ),
                Graph(
                    "Live workers against the run",
                    "Units of publish that the workers which live now have counted, "
                    "and the exact count of the run. Below it: a worker is gone with "
                    "its counts. Above it: units were computed again, or workers have "
                    "counts of an earlier run.",
                    units.Short,
                    {
                        "sum over workers": 'sum(survey_units_total{stage="publish"})',
                        "the scheduler": 'sum(survey_run_units_total{stage="publish"})',
                    },
                ),
            ],
        ],
    )


def exporter() -> Dashboard:
    """How an orchestrator's runs are, as its exporter sees them."""
    return arrange(
        "exporter",
        "Dagster",
        "Runs, queue, code and daemons of a Dagster, and how well they are seen.",
        [
            [
                Number(
                    "Active runs",
                    "Runs that have not ended, over all jobs and statuses.",
                    units.Short,
                    {"active": "sum(dagster_active_runs)"},
                ),
                Number(
                    "Jobs whose last run failed",
                    "Jobs, not runs. It goes back when the job's next run ends well.",
                    units.Short,
                    {
                        "failed": 'count(dagster_last_run_info{status="failure"})'
                        " or vector(0)"
                    },
                    limits=[(1, "red")],
                ),
                Number(
                    "Code locations that do not load",
                    "Their jobs, schedules and sensors do not run.",
                    units.Short,
                    {"broken": "sum(dagster_code_location_load_error) or vector(0)"},
                    limits=[(1, "red")],
                ),
                Number(
                    "Oldest view",
                    "Seconds since the collector that is furthest behind had a good "
                    "poll. If it grows, everything here is old.",
                    units.Seconds,
                    {"behind": "max(dagster_exporter_seconds_since_success)"},
                    limits=[(60, "orange"), (120, "red")],
                ),
                ALERTS,
            ],
            [
                Graph(
                    "Active runs by status",
                    "Queued ones wait for a limit or for the daemon; a run that stays "
                    "started may have lost its process.",
                    units.Short,
                    {"{{status}}": "sum by (status) (dagster_active_runs)"},
                    stacked=True,
                ),
                Graph(
                    "Oldest active run by job",
                    "How long the oldest run of each job has been active, in whatever "
                    "status.",
                    units.Seconds,
                    {
                        "{{job_name}}": "max by (job_name) "
                        "(dagster_active_run_duration_seconds)"
                    },
                ),
            ],
            [
                Graph(
                    "Runs that ended, by outcome",
                    "Runs a minute. A run that is killed is a failure, although its "
                    "own code never said so.",
                    units.Short,
                    {
                        "{{status}}": "sum by (status) "
                        "(rate(dagster_completed_runs_total[$__rate_interval])) * 60"
                    },
                    stacked=True,
                ),
                Graph(
                    "Seconds since a daemon's last heartbeat",
                    "A frozen daemon starts nothing, and nothing else shows it.",
                    units.Seconds,
                    {
                        "{{daemon_type}}": "time() - max by (daemon_type) "
                        "(dagster_daemon_last_heartbeat_timestamp_seconds)"
                    },
                    limits=[(120, "red")],
                ),
                Graph(
                    "Failed polls by collector",
                    "Polls a minute that failed. The exporter's log has the reason.",
                    units.Short,
                    {
                        "{{collector}}: {{reason}}": "sum by (collector, reason) "
                        "(rate(dagster_exporter_poll_failures_total[$__rate_interval]))"
                        " * 60"
                    },
                    stacked=True,
                ),
            ],
        ],
    )


DASHBOARDS: dict[str, Callable[[], Dashboard]] = {
    "cluster": cluster,
    "pipeline": pipeline,
    "exporter": exporter,
}
"""Name of the file, which is also the dashboard's uid, to what builds it."""


def render(name: str) -> str:
    """A dashboard as JSON, as its file should have it."""
    text = json.dumps(DASHBOARDS[name](), cls=JSONEncoder, indent=2, sort_keys=True)
    return text + "\n"


def main() -> None:
    """Write all dashboards, and remove the files of those that are gone."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        if path.stem not in DASHBOARDS:
            path.unlink()
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(render(name), encoding="utf-8")


if __name__ == "__main__":
    main()
