"""What the project itself costs: ``make bench`` measures and writes a table.

Each row is a figure and, where there is something to compare it with, a ratio of two
things measured in turns in the same run. Not a test: nothing fails if a row is slow,
but a row past its goal says so. Rows that need Docker are left out without it.
"""

import datetime
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dask_cluster_lab.commands import compose
from dask_cluster_lab.commands.catalogue import find_lesson, project_root
from dask_cluster_lab.commands.transcripts import NO_SCHEDULER
from dask_cluster_lab.errors import LabError, UsageError
from dask_cluster_lab.lesson import format_table
from dask_cluster_lab.probe import free_ports, parse_address, probe
from dask_cluster_lab.timing import interleave

ROUNDS = 7
PROJECT = "dask-cluster-lab-bench"
NAP_SECONDS = 0.25
NAPS_PER_SLOT = 8
SUBMITS = 12
RECORDED = 500
"""Tasks of a batch whose task stream is recorded or not."""
KILLS = 3
HEALING_LIMIT = 120.0


@dataclass(frozen=True)
class Row:
    """One measured cost."""

    what: str
    figure: float
    unit: str
    goal: str
    met: bool
    how: str


def bench() -> None:
    """Measure every row, print the table, write ``reports/bench.json`` and ``.txt``."""
    rows: list[Row] = []
    for measure in (_imports, _probes, _lesson_overhead, _exporter):
        rows += measure()
    try:
        compose.require_docker()
    except UsageError as error:
        print(f"The rows on image and cluster are left out: {error}")
    else:
        try:
            rows += _image()
            rows += _on_a_cluster()
        finally:
            with suppress(LabError):  # it was not even built
                _docker("image", "rm", PROJECT)
    headers = ["what", "figure", "unit", "goal", "met"]
    table = format_table(
        headers,
        [
            (
                r.what,
                r.figure,
                r.unit,
                r.goal,
                ("yes" if r.met else "NO") * bool(r.goal),
            )
            for r in rows
        ],
    )
    print("\n".join(table))
    _write(rows, table)


def _on_a_cluster() -> list[Row]:
    with _bench_cluster() as seconds_up:
        return [
            Row(
                "make up, image built",
                seconds_up,
                "s",
                "at most 15",
                seconds_up <= 15,
                "wall time of 'make up' until all workers are registered, once",
            ),
            *_session(),
            *_work(),
            *_metrics(),
        ]


def _python_seconds(code: str) -> Callable[[], float]:
    """A call that runs ``code`` in a fresh Python and gives the seconds it prints."""
    timed = (
        f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
    )
    return lambda: float(
        subprocess.run(
            [sys.executable, "-c", timed], capture_output=True, text=True, check=True
        ).stdout
    )


def _imports() -> list[Row]:
    how = f"fresh processes in turns, median of {ROUNDS} of the time inside"
    taken: dict[str, list[float]] = {}
    codes = {
        "distributed": "import distributed",
        "package": "import dask_cluster_lab",
        "connect": "from dask_cluster_lab import Lesson, connect, run",
    }
    for _ in range(ROUNDS):
        for name, code in codes.items():
            taken.setdefault(name, []).append(_python_seconds(code)())
    medians = {name: statistics.median(values) for name, values in taken.items()}
    share = 100 * medians["package"] / medians["distributed"]
    share_all = 100 * medians["connect"] / medians["distributed"]
    return [
        Row("import distributed", medians["distributed"] * 1e3, "ms", "", True, how),
        Row("import dask_cluster_lab", share, "% of it", "at most 5", share <= 5, how),
        Row("with connect and Lesson", share_all, "% of it", "", True, how),
    ]


def _probes() -> list[Row]:
    (closed_port,) = free_ports(1)
    closed = parse_address(f"127.0.0.1:{closed_port}")
    refused = interleave({"probe": lambda: probe(closed)}, rounds=101)["probe"].median
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = parse_address(f"127.0.0.1:{server.getsockname()[1]}")
        silence = interleave({"probe": lambda: probe(silent)}, rounds=3, warm_up=0)
    slowest = max(silence["probe"].seconds)
    return [
        Row(
            "probe of a closed port",
            refused * 1e3,
            "ms",
            "at most 5",
            refused <= 5e-3,
            "median of 101 probes on loopback",
        ),
        Row(
            "probe of a silent listener",
            slowest,
            "s",
            "at most 2",
            slowest <= 2,
            "the slowest of 3 on loopback",
        ),
    ]


def _lesson_overhead() -> list[Row]:
    """A lesson on the fallback against a bare script that makes the same Dask calls."""
    environment = {**os.environ, "DASK_SCHEDULER_ADDRESS": NO_SCHEDULER}

    def run_script(path: Path) -> None:
        subprocess.run(
            [sys.executable, str(path)],
            env=environment,
            capture_output=True,
            check=True,
        )

    timings = interleave(
        {
            "lesson": lambda: run_script(find_lesson("0101_connect").path),
            "bare": lambda: run_script(project_root() / "tests" / "bare_connect.py"),
        },
        rounds=ROUNDS,
    )
    ratio = timings["lesson"].median / timings["bare"].median
    return [
        Row(
            "0101_connect on the fallback",
            timings["lesson"].median,
            "s",
            "",
            True,
            f"whole process, median of {ROUNDS}",
        ),
        Row(
            "the same against a bare script",
            ratio,
            "times",
            "at most 1.2",
            ratio <= 1.2,
            f"tests/bare_connect.py, in turns, medians of {ROUNDS}",
        ),
    ]


def _exporter() -> list[Row]:
    """The Dagster exporter: how long a scrape takes, and what a history costs."""
    from dagster_exporter.costs import SCRAPES, exporter_costs

    few, many = 1_000, 100_000
    costs = exporter_costs(histories=(few, many))
    rows = []
    for what, taken in {
        "median": costs.scrape_median,
        "p99": costs.scrape_p99,
    }.items():
        ratio = max(taken.values()) / min(taken.values())
        rows.append(
            Row(
                f"/metrics with Dagster healthy, frozen, gone: {what}",
                ratio,
                "times",
                "at most 1.5",
                ratio <= 1.5,
                f"slowest against fastest, {SCRAPES} scrapes of each in turns: "
                + ", ".join(f"{s} {t * 1e3:.1f} ms" for s, t in taken.items()),
            )
        )
    memory = max(costs.resident.values()) / 2**20
    growth = costs.resident[many] / costs.resident[few]
    slower = costs.later_poll[many] / costs.later_poll[few]
    how = f"{many} finished runs in a stand-in for Dagster, against {few}"
    return [
        *rows,
        Row(
            "memory of the exporter",
            memory,
            "MiB",
            "less than 46",  # 48 MB
            memory < 46,
            f"resident, with {many} finished runs, after a first poll over all of them "
            f"({costs.first_poll[many]:.1f} s)",
        ),
        Row(
            "its memory by history", growth, "times", "at most 1.2", growth <= 1.2, how
        ),
        Row(
            "its later polls by history",
            slower,
            "times",
            "at most 1.2",
            slower <= 1.2,
            f"{how}, medians of 5",
        ),
    ]


def _image() -> list[Row]:
    """The image against one with ``dask[complete]`` on the same base."""
    settings = compose.build_settings()
    own = {"COMPOSE_PROJECT_NAME": PROJECT, "LAB_IMAGE": PROJECT}
    _docker("compose", "build", **own, **settings)
    complete = f"{PROJECT}-dask-complete"
    with tempfile.TemporaryDirectory() as context:
        (Path(context) / "Dockerfile").write_text(
            f"FROM {settings['PYTHON_IMAGE']}\n"
            "RUN python -m pip install --no-cache-dir --root-user-action=ignore "
            "'dask[complete]'\n"
        )
        _docker("build", "--tag", complete, context)
    try:
        sizes = {
            image: int(_docker("image", "inspect", "--format", "{{.Size}}", image))
            for image in (PROJECT, complete, settings["PYTHON_IMAGE"])
        }
    finally:
        _docker("image", "rm", complete)
    size, other, base = sizes.values()
    share = 100 * size / other
    how = "docker image inspect, both on the same base image"
    return [
        Row("image", size / 1e6, "MB", "", True, how),
        Row("image against dask[complete]", share, "%", "at most 40", share <= 40, how),
        Row(
            "what it adds to the base, against that",
            100 * (size - base) / (other - base),
            "%",
            "",
            True,
            f"the base alone has {base / 1e6:.0f} MB",
        ),
    ]


def _docker(*arguments: str, **environment: str) -> str:
    """Output of a docker command; ``LabError`` with its last line if it fails."""
    done = subprocess.run(
        ["docker", *arguments],
        cwd=project_root(),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason"]
        raise LabError(f"'docker {' '.join(arguments)}' failed: {said[-1]}")
    return done.stdout


@contextmanager
def _bench_cluster() -> Iterator[float]:
    """A cluster of its own on free ports; yields the seconds that its start took."""
    ports = free_ports(2)
    os.environ.update(
        COMPOSE_PROJECT_NAME=PROJECT,
        LAB_IMAGE=PROJECT,
        COMPOSE_PROFILES="",
        DASK_WORKERS="3",
        DASK_SCHEDULER_PORT=str(ports[0]),
        DASK_DASHBOARD_PORT=str(ports[1]),
    )
    os.environ.pop("DASK_SCHEDULER_ADDRESS", None)
    start = time.monotonic()
    try:
        compose.up()
        yield time.monotonic() - start
    finally:
        compose.down()


def _session() -> list[Row]:
    """Connecting and the wire meter, against a bare client."""
    from distributed import Client

    from dask_cluster_lab.cluster import connect
    from dask_cluster_lab.probe import scheduler_address

    address = str(scheduler_address())

    def bare_client() -> None:
        with Client(address, timeout=20) as client:
            client.scheduler_info()

    def session() -> None:
        connect(allow_fallback=False, quiet=True).close()

    opening = interleave({"bare": bare_client, "session": session}, rounds=ROUNDS)
    extra = opening["session"].median - opening["bare"].median
    with (
        Client(address, timeout=20, set_as_default=False) as direct,
        connect(meter_wire=True, allow_fallback=False, quiet=True) as metered,
    ):
        trips = interleave(
            {
                "direct": lambda: direct.submit(int, pure=False).result(),
                "metered": lambda: metered.client.submit(int, pure=False).result(),
            },
            rounds=201,
            warm_up=20,
        )
    ratio = trips["metered"].median / trips["direct"].median
    return [
        Row(
            "connect() beyond a bare Client",
            extra * 1e3,
            "ms",
            "",
            True,
            f"probe, marker and worker count; medians of {ROUNDS} in turns",
        ),
        Row(
            "round trip through the wire meter",
            ratio,
            "times",
            "",
            True,
            "one trivial task, against a direct client, medians of 201 in turns",
        ),
    ]


def _work() -> list[Row]:
    """What tasks, arguments and records cost, and how long a cluster takes to heal.

    The tasks of the ladder sleep: there may be fewer cores here than slots there.
    """
    from distributed import get_task_stream

    from dask_cluster_lab.cluster import connect

    with connect(meter_wire=True, allow_fallback=False, quiet=True) as session:
        client = session.client
        slots = sum(worker.threads for worker in session.workers())
        naps = [NAP_SECONDS] * (NAPS_PER_SLOT * slots)
        ladder = interleave(
            {"all": lambda: client.gather(client.map(time.sleep, naps, pure=False))}
        )["all"]
        efficiency = sum(naps) / slots / ladder.median

        argument = bytes(10**6)
        kilobytes = {}
        for name, given in {
            "argument": argument,
            "future": client.scatter(argument, hash=False),
        }.items():
            with session.wire.count() as traffic:
                client.gather(
                    [client.submit(len, given, pure=False) for _ in range(SUBMITS)]
                )
            kilobytes[name] = traffic.sent / SUBMITS / 1e3
        bytes_ratio = kilobytes["argument"] / kilobytes["future"]

        def batch() -> None:
            client.gather(client.map(int, range(RECORDED), pure=False))

        taken: dict[str, list[float]] = {"recorded": [], "bare": []}
        for _ in range(1 + ROUNDS):  # the first round is the warm-up
            for name, seconds in taken.items():
                start = time.perf_counter()
                with get_task_stream(client) if name == "recorded" else nullcontext():
                    batch()
                seconds.append(time.perf_counter() - start)
                if name == "recorded":  # it would go on recording
                    client.unregister_scheduler_plugin("task-stream")
        recorded, bare = (statistics.median(times[1:]) for times in taken.values())

        healing = []
        for _ in range(KILLS):
            before = {worker.address for worker in session.workers()}
            victim = min(before)
            start = time.monotonic()
            with suppress(OSError):  # the connection ends with the worker
                client.run(os._exit, 1, workers=[victim])
            while True:
                now = {worker.address for worker in session.workers()}
                if victim not in now and len(now) == len(before):
                    break
                if time.monotonic() - start > HEALING_LIMIT:
                    raise LabError(
                        f"no worker replaced the one that was killed within "
                        f"{HEALING_LIMIT:g} s; 'make logs' says why."
                    )
                time.sleep(0.05)
            healing.append(time.monotonic() - start)
    return [
        Row(
            "ladder efficiency at all slots",
            efficiency,
            "",
            "at least 0.9",
            efficiency >= 0.9,
            f"{len(naps)} tasks that sleep {NAP_SECONDS} s on {slots} slots: time if "
            "no slot stood still, over the median of 5",
        ),
        Row(
            "time to heal after a kill",
            statistics.median(healing),
            "s",
            "",
            True,
            "os._exit on a worker until its nanny's next one is registered, median "
            f"of {KILLS}",
        ),
        Row(
            "bytes per task: an argument of 1 MB against a scattered future",
            bytes_ratio,
            "times",
            "",
            True,
            f"{kilobytes['argument']:.1f} kB against {kilobytes['future']:.2f} kB sent "
            f"by the client, {SUBMITS} submits each, the scatter not counted",
        ),
        Row(
            "the cost of recording the task stream",
            recorded / bare,
            "times",
            "",
            True,
            f"{RECORDED} trivial tasks with and without get_task_stream, in turns, "
            f"medians of {ROUNDS}",
        ),
    ]


def _metrics() -> list[Row]:
    """What counting units of work costs a worker and the scheduler."""
    from dask_cluster_lab.cluster import connect
    from dask_cluster_lab.metrics import costs

    with connect(allow_fallback=False, quiet=True) as session:
        task = costs.task_ratio(session.client)
        scheduler = costs.scheduler_ratio(session.client)
    return [
        Row(
            "counting and reporting one unit, in a task of 10 ms",
            task,
            "times",
            "at most 1.02",
            task <= 1.02,
            "work and one unit around nothing, over the work alone; without the bytes "
            "of the report on the wire, which the next row has; "
            f"in turns in one task, medians of {costs.UNITS}",
        ),
        Row(
            "the totals of a run, in the scheduler's processor time",
            scheduler,
            "times",
            "at most 1.05",
            scheduler <= 1.05,
            f"{costs.TASKS} trivial tasks, each a unit of work of a run that is "
            f"counted, over as many bare ones; median of {costs.ROUNDS} pairs",
        ),
    ]


def _write(rows: list[Row], table: list[str]) -> None:
    folder = project_root() / "reports"
    if not folder.is_dir():
        raise LabError(
            "the folder reports is missing; 'git checkout reports' restores it."
        )
    record = {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "rows": [asdict(row) for row in rows],
    }
    (folder / "bench.json").write_text(json.dumps(record, indent=2) + "\n")
    how = [f"{row.what}: {row.how}." for row in rows]
    (folder / "bench.txt").write_text("\n".join([*table, "", *how]) + "\n")
    print("Written to reports/bench.json and reports/bench.txt")
