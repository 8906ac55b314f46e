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
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from dask_cluster_lab.commands import compose
from dask_cluster_lab.commands.catalogue import find_lesson, project_root
from dask_cluster_lab.commands.transcripts import NO_SCHEDULER
from dask_cluster_lab.errors import LabError, UsageError
from dask_cluster_lab.lesson import format_table
from dask_cluster_lab.probe import parse_address, probe
from dask_cluster_lab.timing import interleave

ROUNDS = 7
PROJECT = "dask-cluster-lab-bench"


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
    """Measure every row, print the table, write ``reports/bench.json`` and ``.md``."""
    rows: list[Row] = []
    for measure in (_imports, _probes, _lesson_overhead):
        rows += measure()
    try:
        compose.require_docker()
    except UsageError as error:
        print(f"The rows on image and cluster are left out: {error}")
    else:
        rows += _image()
        with _bench_cluster() as seconds_up:
            rows.append(
                Row(
                    "make up, image built",
                    seconds_up,
                    "s",
                    "at most 15",
                    seconds_up <= 15,
                    "wall time of 'make up' until all workers are registered, once",
                )
            )
            rows += _session()
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
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed_port = server.getsockname()[1]
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


def _image() -> list[Row]:
    """The image against one with ``dask[complete]`` on the same base."""
    settings = compose.build_settings()
    _docker("compose", "build", COMPOSE_PROJECT_NAME=PROJECT, **settings)
    complete = f"{PROJECT}-dask-complete"
    with tempfile.TemporaryDirectory() as context:
        (Path(context) / "Dockerfile").write_text(
            f"FROM {settings['PYTHON_IMAGE']}\n"
            "RUN python -m pip install --no-cache-dir --root-user-action=ignore "
            "'dask[complete]'\n"
        )
        _docker("build", "--tag", complete, context)
    sizes = {
        image: int(_docker("image", "inspect", "--format", "{{.Size}}", image))
        for image in (PROJECT, complete, settings["PYTHON_IMAGE"])
    }
    _docker("image", "rm", complete)
    own, other, base = sizes.values()
    share = 100 * own / other
    how = "docker image inspect, both on the same base image"
    return [
        Row("image", own / 1e6, "MB", "", True, how),
        Row("image against dask[complete]", share, "%", "at most 40", share <= 40, how),
        Row(
            "what it adds to the base, against that",
            100 * (own - base) / (other - base),
            "%",
            "",
            True,
            f"the base alone has {base / 1e6:.0f} MB",
        ),
    ]


def _docker(*arguments: str, **environment: str) -> str:
    """Output of a docker command that must work."""
    return subprocess.run(
        ["docker", *arguments],
        cwd=project_root(),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@contextmanager
def _bench_cluster() -> Iterator[float]:
    """A cluster of its own on free ports; yields the seconds that its start took."""
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ports.append(server.getsockname()[1])
    os.environ.update(
        COMPOSE_PROJECT_NAME=PROJECT,
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
        _docker("image", "rm", PROJECT)


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
