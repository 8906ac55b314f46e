"""How does a metric of your own get on to every worker?

What:  counts tiles with a counter that the first task brings, then with a plugin that
       every worker has; reads error rate and quantiles from them; refuses labels that
       grow, and shows what those would have cost.
Why:   Dask's metrics say how the framework is doing. Whether the data was right is for
       your own to say, on all workers, in few series.
Needs: any cluster whose workers have this package. Two workers; one that may be
       restarted and one that is added, on a cluster that is ours. Prometheus and
       Pushgateway for their parts: `make up PROFILE=monitoring`. Leaves a page in
       reports/ and nothing else, the same one each time.
Run:   make run EXAMPLE=0602_data_metrics
"""

import contextlib
import os
import sys
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import Client, LocalCluster, wait
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.containers import add_worker, remove
from dask_cluster_lab.logs import captured_log
from dask_cluster_lab.metrics.labels import (
    OUTCOMES,
    STAGES,
    UnboundedLabel,
    count_series,
    numbered,
    register,
)
from dask_cluster_lab.metrics.prometheus import Prometheus, value_here
from dask_cluster_lab.metrics.push import pushed
from dask_cluster_lab.metrics.series_plot import save_growth
from dask_cluster_lab.metrics.survey import THRESHOLD, TILES, expected, survey_tile
from dask_cluster_lab.metrics.work import Instruments, WorkerMetrics, remove_left_over
from dask_cluster_lab.reports import fetched_from_outside, reports_folder, save_facts

if TYPE_CHECKING:
    from distributed import Scheduler

ON_IMPORT, UNITS = "survey_on_import_tiles_total", "survey_units_total"
GENERIC_BUCKETS = (0.001, 0.01, 0.025, 0.1, 0.25, 1.0)
NIGHTS, NIGHTS_PUSHED = 365, 5
COUNTED_AFTER = (1, 30, 100, 200, NIGHTS)
RUNS = 5


def count_on_import(number: int) -> int:
    """A task whose module brings the counter with it."""
    from dask_cluster_lab.metrics.on_import import count

    return count(number)


def forget_on_import() -> None:
    """Take the counter away from a process that has it."""
    if "dask_cluster_lab.metrics.on_import" in sys.modules:
        from dask_cluster_lab.metrics.on_import import forget

        forget()


def prefixes(dask_scheduler: "Scheduler") -> list[str]:
    """The task prefixes that this scheduler has seen; each is a value of a label."""
    return list(dask_scheduler.task_prefixes)


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session) as lesson,
        contextlib.ExitStack() as undo,
    ):
        client = session.client
        undo.enter_context(captured_log())  # of tiles that fail on purpose
        n_workers = len(session.workers())
        ok = {"stage": "publish", "outcome": "ok"}

        lesson.section("A counter that the first task brings")
        undo.callback(client.run, forget_on_import)
        first = session.workers()[0].address
        client.submit(count_on_import, 0, workers=[first], pure=False).result()
        has = sum(v is not None for v in client.run(value_here, ON_IMPORT).values())
        lesson.check(
            "it is there where a task imported its module, and nowhere else",
            has == 1,
            f"on {has} of {n_workers} workers",
            needs="two workers" if lesson.can("processes") else "processes",
        )

        lesson.section("A plugin that brings it to all")
        remove_left_over(client)  # of a lesson that was killed
        client.register_plugin(WorkerMetrics())
        undo.callback(client.unregister_worker_plugin, WorkerMetrics.name)
        zeros = list(client.run(value_here, UNITS, ok).values())
        lesson.check(
            "every worker has the metric before any task ran, at zero",
            zeros == [0.0] * n_workers,
            f"{zeros.count(0.0)} of {n_workers} workers, all at 0",
        )
        client.submit(survey_tile, 0, workers=[first], pure=False).result()
        earlier = client.run(value_here, UNITS, ok)[first]
        client.register_plugin(WorkerMetrics())
        counted = client.run(value_here, UNITS, ok)[first]
        lesson.check(
            "registered a second time, it changes nothing and loses no count",
            counted == earlier == 1,
            f"{earlier} tile counted before, {counted} after".replace(".0", ""),
        )
        restarted: float | None = None
        if lesson.can("disruption"):
            victim = session.workers()[-1].address
            with contextlib.suppress(OSError):  # the connection ends with the worker
                client.run(os._exit, 1, workers=[victim])
            lesson.until_workers(n_workers, without=[victim])
            newest = client.run(value_here, UNITS, ok)
            restarted = min(v if v is not None else -1 for v in newest.values())
        lesson.check(
            "a worker that was killed and started again has it",
            restarted is not None and restarted >= 0,
            f"on all {n_workers} workers again",
            needs="disruption" if lesson.can("processes") else "processes",
        )
        joined = 0
        if lesson.can("docker"):
            before = {worker.address for worker in session.workers()}
            late = add_worker(session)
            undo.callback(lesson.until_workers, n_workers)
            undo.callback(remove, late)
            lesson.until_workers(n_workers + 1)
            joined = sum(
                value is not None
                for address, value in client.run(value_here, UNITS, ok).items()
                if address not in before
            )
        lesson.check(
            "a worker that joins later has it as well",
            joined == 1,
            f"{joined} of 1 that joined",
            needs="docker",
        )

        lesson.section(f"{TILES} tiles, and how many went wrong")
        # One of them cannot be read, whatever is tried.
        client.unregister_worker_plugin(WorkerMetrics.name)  # start from zero
        client.register_plugin(WorkerMetrics())
        tiles = client.map(survey_tile, range(TILES), pure=False)
        broken = client.submit(survey_tile, TILES, unreadable=True, pure=False)
        wait([*tiles, broken])
        residuals = [tile.residual for tile in client.gather(tiles)]
        truth = expected()
        counts = {
            stage: {
                outcome: in_all(lesson, stage=stage, outcome=outcome)
                for outcome in OUTCOMES
            }
            for stage in STAGES
        }
        lesson.table(
            ["stage", *OUTCOMES, "share that went wrong"],
            [
                (
                    stage,
                    *(round(count) for count in of.values()),
                    f"{100 * (1 - of['ok'] / sum(of.values())):.2f} %",
                )
                for stage, of in counts.items()
            ],
        )
        lesson.check(
            "the gate rejected as many as have a residual beyond the threshold",
            counts["validate"]["rejected"] == truth["rejected"],
            f"{counts['validate']['rejected']:.0f} of {TILES}, threshold {THRESHOLD} m",
        )
        lesson.check(
            "the tile that cannot be read is an error of its stage, and of no other",
            (counts["ingest"]["error"], counts["grid"]["error"]) == (1, 0),
            f"{counts['ingest']['error']:.0f} in ingest, {broken.status} as a future",
        )
        share = float("nan")
        rate = (
            'sum(survey_units_total{stage="validate",outcome!="ok"})'
            ' / sum(survey_units_total{stage="validate"})'
        )
        wrong = truth["rejected"] / TILES
        if lesson.can("prometheus"):
            server = Prometheus(session.prometheus)
            print("PromQL:", rate.replace(" / ", "\n      / "))

            def scraped() -> bool:
                nonlocal share
                share = server.value(rate)
                return share == wrong

            lesson.until(scraped, "the next scrapes", seconds=30)
        lesson.check(
            "with the outcome as a label, one expression gives the error rate",
            share == wrong,
            f"{100 * share:.2f} %",
            needs="prometheus",
        )

        lesson.section("The 95th percentile, from two sets of buckets")
        true = float(np.quantile(residuals, 0.95))
        estimates = dict.fromkeys(("with the threshold", "generic"), float("nan"))
        token = uuid.uuid4().hex
        if lesson.can("prometheus") and lesson.can("pushgateway"):
            registry = CollectorRegistry()
            generic = register(
                Histogram, "survey_generic_metres", "The same, in generic buckets.",
                registry=registry, buckets=GENERIC_BUCKETS,
            )  # fmt: skip
            for residual in residuals:
                generic.observe(residual)
            with pushed(session.pushgateway, "lesson", run=token) as group:
                group.push(registry)
                names = {
                    "with the threshold": "sum by (le) (survey_residual_metres_bucket)",
                    "generic": f'survey_generic_metres_bucket{{run="{token}"}}',
                }

                def estimated() -> bool:
                    for name, buckets in names.items():
                        estimates[name] = server.value(
                            f"histogram_quantile(0.95, {buckets})"
                        )
                    return not any(map(np.isnan, estimates.values()))

                lesson.until(estimated, "the next scrapes", seconds=30)
        lesson.table(
            ["buckets around the threshold", "95th percentile"],
            [
                (name, "n/a" if np.isnan(value) else f"{value:.4f} m")
                for name, value in {"none: the true value": true, **estimates}.items()
            ],
        )
        needs: Any = "prometheus" if not lesson.can("prometheus") else "pushgateway"
        lesson.check(
            "with the threshold as a boundary, the quantile is on its right side",
            true < THRESHOLD and estimates["with the threshold"] < THRESHOLD,
            f"{estimates['with the threshold']:.4f} m, the true value is {true:.4f} m",
            needs=needs,
        )
        lesson.check(
            "with generic buckets it is on the wrong side, and raises a false alarm",
            estimates["generic"] > THRESHOLD,
            f"{estimates['generic']:.4f} m, from the bucket "
            f"{GENERIC_BUCKETS[2]} to {GENERIC_BUCKETS[3]}",
            needs=needs,
        )

        lesson.section("Labels that grow")
        refused = "nothing was refused"
        try:
            register(Counter, "survey_tiles", "Tiles, each by its name.", ["tile"])
        except UnboundedLabel as error:
            refused = str(error)
        lesson.check(
            "a label whose values nobody declared is refused when it is registered",
            "'tile'" in refused and value_here("survey_tiles_total") is None,
            refused,
        )
        with (
            LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0")
            as small,
            Client(small, set_as_default=False) as other,
        ):  # fmt: skip
            for number in range(RUNS):
                other.submit(int, number, key=f"run_{number}-0").result()
            grown = numbered(other.run_on_scheduler(prefixes))
        lesson.check(
            "a number in the keys of tasks is the same fault: a prefix more each run",
            len(grown) == RUNS,
            f"{', '.join(grown)}; the scheduler keeps them for good",
        )

        lesson.section("What a year of them costs")
        growth = grow(NIGHTS, TILES)
        lesson.table(
            ["nights", "tile as a label", "outcome as a label"],
            [
                (night, growth["tile"][night], growth["outcome"][night])
                for night in COUNTED_AFTER
            ],
        )
        lesson.check(
            "with the tile as a label each night adds its tiles; the other stays flat",
            growth["tile"][NIGHTS] == NIGHTS * TILES
            and len(set(growth["outcome"].values())) == 1,
            f"{growth['tile'][NIGHTS]:,} series against {growth['outcome'][NIGHTS]}, "
            "counted in a registry",
        )
        heads, counted_there = [0.0, 0.0], 0.0
        if lesson.can("prometheus") and lesson.can("pushgateway"):
            head = "prometheus_tsdb_head_series"
            heads[0] = server.value(head)
            registry = CollectorRegistry()
            by_tile = Gauge("survey_nightly", "The trap.", ["tile"], registry=registry)
            for number in range(NIGHTS_PUSHED * TILES):
                by_tile.labels(f"{token}-{number}").set(1)
            with pushed(session.pushgateway, "lesson", run=token) as group:
                group.push(registry)

                def arrived() -> bool:
                    nonlocal counted_there
                    counted_there = server.value(
                        f'count(survey_nightly{{run="{token}"}})', default=0
                    )
                    heads[1] = server.value(head)
                    return counted_there > 0 and heads[1] - heads[0] >= counted_there

                lesson.until(arrived, "the next scrapes", seconds=30)
        lesson.check(
            f"Prometheus holds every one of them: {NIGHTS_PUSHED} nights, "
            f"{NIGHTS_PUSHED * TILES:,} series more in its memory",
            counted_there == NIGHTS_PUSHED * TILES <= heads[1] - heads[0],
            f"{counted_there:,.0f} series, and its head grew by "
            f"~{heads[1] - heads[0]:,.0f}",
            needs=needs,
        )
        page = reports_folder(__file__) / "0602_data_metrics.html"
        save_growth(growth, page)
        totals = {f"series by {name}": of[NIGHTS] for name, of in growth.items()}
        save_facts(page, "0602: series over a year", session, totals)
        outside = fetched_from_outside(page.read_text(encoding="utf-8"))
        lesson.check(
            "the growth is drawn, on a page that opens offline",
            not outside,
            f"reports/{page.name}, {len(outside)} addresses outside",
        )


def in_all(lesson: Lesson, **labels: str) -> float:
    """Units with these labels, summed over the processes of all workers."""
    values = list(lesson.session.client.run(value_here, UNITS, labels).values())
    if not lesson.can("processes"):  # all workers are threads of one
        values = values[:1]
    return sum(value or 0 for value in values)


def grow(nights: int, tiles: int) -> dict[str, dict[int, int]]:
    """Series in a registry after some nights, by the label that it has."""
    by_tile, by_outcome = CollectorRegistry(), CollectorRegistry()
    bad = Gauge("survey_tile", "One series a tile.", ["night", "tile"],
                registry=by_tile)  # fmt: skip
    good = Instruments(by_outcome)  # all that the plugin gives a worker
    found: dict[str, dict[int, int]] = {"tile": {}, "outcome": {}}
    for night in range(1, nights + 1):
        for tile in range(tiles):
            bad.labels(str(night), str(tile)).set(1)
            outcome = OUTCOMES[tile % len(OUTCOMES)]
            for stage in STAGES:
                good.units.labels(stage, outcome).inc()
            good.residual.observe(tile / tiles)
        if night in COUNTED_AFTER:
            found["tile"][night] = count_series(by_tile)
            found["outcome"][night] = count_series(by_outcome)
    return found


if __name__ == "__main__":
    run(main)
