"""What do Dask's own metrics say before anyone writes one?

What:  scrapes scheduler and workers as Prometheus does, sorts what they expose, and
       answers five questions from it while a job runs; then two endpoints that answer
       and say nothing.
Why:   much of what people instrument by hand is there already, if somebody asks. And an
       endpoint that answers 200 is no proof that it has anything to tell.
Needs: any cluster; to spill, one that may be disturbed: fills a worker past its target.
       The questions to Prometheus need one: `make up PROFILE=monitoring`.
Run:   make run EXAMPLE=0601_builtin_metrics
"""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distributed import LocalCluster, wait
from tornado.httpclient import AsyncHTTPClient

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.metrics.prometheus import Prometheus, Series, families, samples
from dask_cluster_lab.probe import free_ports

if TYPE_CHECKING:
    from distributed import Scheduler

TOPICS = {  # the first part of a name that fits; order matters
    "tasks": ("tasks", "prefix", "task_groups"),
    "memory": ("memory",),
    "spilling": ("spill",),
    "transfers": ("transfer",),
    "workers and clients": ("workers", "client", "desired", "threads"),
    "event loop": ("tick", "latency", "last_time", "gc", "gil", "event_loop"),
    "coordination": ("stealing", "semaphore"),
    "the process": ("process", "python"),
}
TASKS_PER_SLOT, SECONDS = 4, 0.3
BLOCK = 100_000_000  # bytes
BLIND = """
import sys
sys.modules["prometheus_client"] = None  # as if it were not installed
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster:
        print(cluster.dashboard_link, flush=True)
        sys.stdin.read()
"""


def survey_tile(number: int) -> int:
    """A task that takes a while; the sleep is the work."""
    time.sleep(SECONDS)
    return number


def hold(size: int) -> bytes:
    """A result of so many bytes."""
    return os.urandom(1000) * (size // 1000)


async def scrape_workers(dask_scheduler: "Scheduler") -> dict[str, str]:
    """What every worker exposes, by address; asked by the scheduler, over HTTP.

    A worker without a dashboard exposes nothing and is left out.
    """
    found = {}
    for address, worker in dask_scheduler.workers.items():
        port = worker.services.get("dashboard")
        if port:
            url = f"http://{worker.host}:{port}/metrics"
            found[address] = (await AsyncHTTPClient().fetch(url)).body.decode()
    return found


def get(url: str, method: str = "GET") -> tuple[int, str]:
    """Status and text of a page."""
    try:
        request = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def topic_of(metric: str) -> str:
    """The topic that a metric belongs to."""
    name = metric.removeprefix("dask_").removeprefix("scheduler_")
    name = name.removeprefix("worker_")
    for topic, starts in TOPICS.items():
        if name.startswith(starts):
            return topic
    return "other"


def total(series: Mapping[str, list[Series]], name: str, **labels: str) -> float:
    """Sum of a metric over its series that have these labels; 0 if there is none."""
    return sum(
        one.value
        for one in series.get(name, [])
        if labels.items() <= one.labels.items()
    )


def main() -> None:
    """Tell the story."""
    with connect() as session, Lesson(session) as lesson:
        client = session.client
        workers = session.workers()
        slots = sum(worker.threads for worker in workers)
        metrics_page = f"{session.dashboard}/metrics"

        lesson.section("What is there to be asked")
        text = get(metrics_page)[1]
        texts = client.run_on_scheduler(scrape_workers)
        topics: dict[str, list[set[str]]] = defaultdict(lambda: [set(), set()])
        for name in families(text):
            topics[topic_of(name)][0].add(name)
        for name in set().union(*map(families, texts.values())):
            topics[topic_of(name)][1].add(name)
        lesson.table(
            ["metrics about", "of the scheduler", "of a worker"],
            [
                (topic, f"~{len(topics[topic][0])}", f"~{len(topics[topic][1])}")
                for topic in (*TOPICS, "other")
            ],
        )
        said = total(samples(text), "dask_scheduler_workers")
        lesson.check(
            "the scheduler exposes how many workers it has",
            said == len(workers),
            f"{said:.0f} in its metrics, {len(workers)} by its API",
        )
        threads = {
            a: total(samples(t), "dask_worker_threads") for a, t in texts.items()
        }
        lesson.check(
            "every worker exposes metrics of its own, at an address of its own",
            threads == {worker.address: worker.threads for worker in workers},
            f"{len(texts)} of {len(workers)} workers, "
            f"{sum(threads.values()):.0f} threads",
            needs="processes",
        )
        healthy = 0
        if lesson.can("prometheus"):
            server = Prometheus(session.prometheus)

            def all_are_up() -> bool:
                nonlocal healthy
                states = list(server.targets("dask-workers").values())
                healthy = states.count("up")
                return healthy == len(states) == len(workers)

            lesson.until(all_are_up, "Prometheus to find every worker", seconds=30)
        lesson.check(
            "Prometheus has found them by the name of their service, and asks them all",
            healthy == len(workers),
            f"{healthy} of {len(workers)} targets are up",
            needs="prometheus",
        )

        lesson.section("Five questions, asked while a job runs")
        number = TASKS_PER_SLOT * slots
        before, start = samples(get(metrics_page)[1]), time.monotonic()
        tiles = client.map(survey_tile, range(number), pure=False)
        waiting = running = 0.0

        def under_way() -> bool:
            nonlocal waiting, running
            now = samples(get(metrics_page)[1])
            running = total(now, "dask_scheduler_tasks", state="processing")
            waiting = total(now, "dask_scheduler_tasks", state="queued")
            return running > 0 and running + waiting < number

        lesson.until(under_way, "some tasks to be done and some not", seconds=40)
        wait(tiles)
        duration = time.monotonic() - start
        after = samples(get(metrics_page)[1])
        compute = "dask_scheduler_tasks_compute_seconds_total"
        computed = total(after, compute) - total(before, compute)
        could = slots * duration

        first = workers[0]
        spill = lesson.can("disruption") and lesson.can("processes")
        blocks = int(0.8 * first.memory_limit / BLOCK) if spill else 1
        size = BLOCK if spill else 1_000_000
        held = [
            client.submit(hold, size, workers=[first.address], pure=False)
            for _ in range(blocks)
        ]
        wait(held)
        spilled: dict[str, float] = {}

        def has_spilled() -> bool:
            texts = client.run_on_scheduler(scrape_workers)
            spilled.update(
                (a, total(samples(t), "dask_worker_memory_bytes", type="spilled"))
                for a, t in texts.items()
            )
            return max(spilled.values(), default=0) > 0

        if spill:
            lesson.until(has_spilled, "the full worker to spill", seconds=40)
        last = workers[-1]
        moved = client.submit(len, held[0], workers=[last.address], pure=False)
        wait(moved)
        outgoing = "dask_worker_transfer_outgoing_bytes_total"
        sent = 0.0

        def has_moved() -> bool:
            nonlocal sent
            now = client.run_on_scheduler(scrape_workers)[first.address]
            earlier = samples(texts[first.address])
            sent = total(samples(now), outgoing) - total(earlier, outgoing)
            return sent > 0

        if len(texts) > 1:
            lesson.until(has_moved, "the transfer to be counted", seconds=40)
        in_memory = total(samples(get(metrics_page)[1]), "dask_scheduler_tasks",
                          state="memory")  # fmt: skip
        spillers = [address for address, amount in spilled.items() if amount]
        lesson.table(
            ["question", "metric", "answer"],
            [
                (
                    "compute or overhead?",
                    "tasks_compute_seconds_total",
                    f"~{computed / could:.2f} of the slots' time",
                ),
                (
                    "what waits?",
                    "tasks{state}",
                    f"~{waiting:.0f} queued, ~{running:.0f} on workers",
                ),
                (
                    "who spills?",
                    "memory_bytes{type}",
                    f"{len(spillers)} of {len(workers)} workers" if spill else "n/a",
                ),
                (
                    "what moves?",
                    "transfer_outgoing_bytes_total",
                    f"~{sent / 1e6:.0f} MB sent" if len(texts) > 1 else "n/a",
                ),
                (
                    "what is held?",
                    "tasks{state}",
                    f"{in_memory:.0f} results in memory",
                ),
            ],
        )
        lesson.check(
            "compute time is what the tasks took, and at most what the slots had",
            number * SECONDS <= computed <= could * 1.02,
            f"{computed:.1f} s computed, of {could:.1f} s that {slots} slots had",
        )
        lesson.check(
            "while the job ran, it counted what was on workers and what waited",
            running > 0 and running + waiting < number,
            f"~{running:.0f} on workers and ~{waiting:.0f} queued, of {number}",
        )
        lesson.check(
            "the one full worker spills, and its metrics say which one it is",
            spillers == [first.address],
            f"{len(spillers)} of {len(workers)} workers, "
            f"~{spilled.get(first.address, 0) / 1e6:.0f} MB on its disk",
            needs="disruption" if lesson.can("processes") else "processes",
        )
        lesson.check(
            "a worker counts the bytes that it sends to others",
            sent >= size,
            f"{sent / size:.1f} blocks of {size / 1e6:.0f} MB",
            needs="two workers" if lesson.can("processes") else "processes",
        )
        lesson.check(
            "what is held are the results that somebody wants",
            in_memory == number + blocks + 1,
            f"{in_memory:.0f} in its metrics; {number + blocks + 1} futures here",
        )
        by_prometheus = -1.0
        if lesson.can("prometheus"):
            wanted = 'sum(dask_scheduler_tasks{state="memory"})'

            def prometheus_knows() -> bool:
                nonlocal by_prometheus
                by_prometheus = server.value(wanted, default=-1)
                return by_prometheus == in_memory

            lesson.until(prometheus_knows, "the next scrapes", seconds=30)
        lesson.check(
            "Prometheus says the same, at most one scrape late",
            by_prometheus == in_memory,
            f"{by_prometheus:.0f} results in memory",
            needs="prometheus",
        )
        del tiles, held, moved

        lesson.section("Two workers, one port for their metrics")
        (port,) = free_ports(1)
        one_for_both = dashboard_ports(f"127.0.0.1:{port}")
        any_free = dashboard_ports("127.0.0.1:0")
        lesson.table(
            ["told to use", "workers", "ports", "at the port that was told"],
            [
                ("one port", len(one_for_both), len(set(one_for_both)),
                 one_for_both.count(port)),
                ("any free port", len(any_free), len(set(any_free)), "n/a"),
            ],
        )  # fmt: skip
        lesson.check(
            "told to use one port, the second worker moves away, where nobody asks",
            one_for_both.count(port) == 1 and len(set(one_for_both)) == 2,
            f"{one_for_both.count(port)} of {len(one_for_both)} workers at the port",
        )
        print("On this cluster each container has one worker: one port does for all.")

        lesson.section("An endpoint that answers and says nothing")
        with subprocess.Popen(
            [sys.executable, "-c", BLIND],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        ) as blind:  # fmt: skip
            assert blind.stdout
            page = blind.stdout.readline().strip().replace("/status", "/metrics")
            status, body = get(page)
            blind.communicate(timeout=60)
        lesson.check(
            "without the package prometheus_client it answers 200, and has no series",
            status == 200 and not samples(body),
            f"status {status}, {len(samples(body))} series",
        )
        lesson.check(
            "so look for a sample that must be there; and with GET, not with HEAD",
            total(samples(text), "dask_scheduler_workers") > 0,
            f"GET {metrics_page}: {said:.0f} workers; HEAD: status "
            f"{get(metrics_page, 'HEAD')[0]}",
        )


def dashboard_ports(address: str) -> list[int]:
    """Start two workers told to use this address; where they really serve metrics."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask warns that the port is taken
        with LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False,
            dashboard_address="127.0.0.1:0", worker_dashboard_address=address,
        ) as cluster:  # fmt: skip
            return [worker.http_server.port for worker in cluster.workers.values()]


if __name__ == "__main__":
    run(main)
