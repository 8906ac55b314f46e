"""What does a scrape miss?

What:  asks Prometheus how it found the workers; restarts one, and reads its counter in
       two ways; starts two that live shortly, and counts how often they were asked, and
       how often one that stays; then leaves a job's numbers in a Pushgateway, and takes
       them away.
Why:   Prometheus sees what runs when it asks. A worker that came and went between two
       questions did its work all the same.
Needs: the Compose cluster with Prometheus and Pushgateway: `make up
       PROFILE=monitoring`. Restarts a worker; adds two, which are gone at the end.
       Elsewhere it can show the totals only.
Run:   make run EXAMPLE=0604_ephemeral_workers
"""

import contextlib
import math
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from distributed import get_worker, wait
from prometheus_client import CollectorRegistry, Gauge

from dask_cluster_lab import Lesson, connect, run
from dask_cluster_lab.cluster import WORKER_SERVICE
from dask_cluster_lab.containers import add_worker, remove
from dask_cluster_lab.metrics.prometheus import Prometheus, scrape
from dask_cluster_lab.metrics.push import Group, groups
from dask_cluster_lab.metrics.survey import Tile, survey_tile
from dask_cluster_lab.metrics.totals import RunReader, run_totals
from dask_cluster_lab.metrics.work import worker_metrics

BEFORE, AFTER = 20, 8  # tiles of a worker before and after its restart
EACH = 10  # tiles of a worker that lives shortly
MARGIN = 2  # scrapes before and after a short life
INTERVAL = 2  # seconds between scrapes, as monitoring/prometheus/prometheus.yml says
RUNS = 5
UNITS = 'survey_units_total{{stage="ingest",outcome="ok",instance="{instance}"}}'
PATIENCE = 40  # seconds for discovery and scrapes


@dataclass
class Life:
    """What is known of a worker that came and went."""

    tiles: int = 0
    """By the scheduler's totals."""
    seconds: float = 0.0
    scrapes: int = 0
    heard: int = 0
    """Tiles that Prometheus knew of last."""


def dying_tile(number: int, on: str) -> Tile:
    """Survey a tile; on one certain worker, die before anybody hears of it."""
    tile = survey_tile(number)
    if get_worker().address == on:
        os._exit(1)
    return tile


def host_of(address: str) -> str:
    """The host in the address of a worker."""
    return address.split("//")[1].rpartition(":")[0]


def scrapes_of(server: Prometheus, instance: str, since: float) -> int:
    """How often a worker answered Prometheus since then, in epoch seconds."""
    up = f'up{{job="dask-workers",instance="{instance}"}}'
    window = f"[{max(1, int(time.time() - since))}s]"
    return int(server.value(f"sum(sum_over_time({up}{window}))", default=0))


def exposed(gateway: str, run: str) -> dict[str, float]:
    """What the gateway serves of a run: sample name to value."""
    return {
        name: one.value
        for name, series in scrape(gateway).items()
        for one in series
        if one.labels.get("run", "").startswith(run)
    }


def groups_of(gateway: str, run: str) -> int:
    """How many groups the gateway has whose run begins like this."""
    return sum(key.get("run", "").startswith(run) for key in groups(gateway))


def registry_of(**values: float) -> CollectorRegistry:
    """A registry with a gauge for each value."""
    registry = CollectorRegistry()
    for name, value in values.items():
        Gauge(name, "Of a job that ended.", registry=registry).set(value)
    return registry


def main() -> None:
    """Tell the story."""
    with (
        connect() as session,
        Lesson(session) as lesson,
        contextlib.ExitStack() as undo,
    ):
        client = session.client
        can = lesson.can("prometheus") and lesson.can("docker")
        server = Prometheus(session.prometheus)
        everyone = [worker.address for worker in session.workers()]
        undo.enter_context(worker_metrics(client))
        reader = undo.enter_context(run_totals(client, "0604"))
        numbers = iter(range(10_000))  # of tiles, each surveyed once

        def survey(count: int, worker: str) -> None:
            """Survey so many tiles on this worker."""
            some = [next(numbers) for _ in range(count)]
            wait(client.map(survey_tile, some, workers=[worker], pure=False))

        def heard(instance: str) -> float:
            """Tiles of a target at its last scrape; -1 if it has none."""
            return server.value(UNITS.format(instance=instance), default=-1)

        lesson.section("How a worker is found")
        names: list[str] = []
        targets: dict[str, str] = {}
        if lesson.can("prometheus"):
            names = client.run_on_scheduler(socket.gethostbyname_ex, WORKER_SERVICE)[2]

            def found() -> bool:
                nonlocal targets
                targets = server.targets("dask-workers")
                return len(targets) == len(names) and set(targets.values()) == {"up"}

            lesson.until(found, "Prometheus to find the workers", PATIENCE)
        lesson.check(
            "the service's name has an address for each worker, and each is a target",
            {target.split(":")[0] for target in targets} == set(names) != set(),
            f"{len(names)} addresses, {len(targets)} targets",
            needs="prometheus",
        )

        lesson.section("A worker that starts again")
        readings = dict.fromkeys(("raw", "delta", "increase", "resets"), float("nan"))
        before, unheard = 0.0, False
        if can:
            first = everyone[0]
            host = host_of(first)
            instance = f"{host}:8790"
            units = UNITS.format(instance=instance)
            at_zero = f"max_over_time({units}[{3 * INTERVAL}s])"
            lesson.until(lambda: server.value(at_zero) == 0, "scrapes at 0", PATIENCE)
            at_zero_last = server.value(f"timestamp({units})")
            survey(BEFORE, first)
            lesson.until(lambda: heard(instance) == BEFORE, "a scrape", PATIENCE)
            before = heard(instance)
            # Pinned to the host, which the worker that starts again has as well.
            last = client.submit(
                dying_tile, next(numbers), first, workers=[host], pure=False
            )
            wait(last)
            lesson.until_workers(len(everyone), without=[first])
            again = next(
                worker.address
                for worker in session.workers()
                if worker.address not in everyone
            )
            survey(AFTER, again)
            lesson.until(lambda: heard(instance) == AFTER + 1, "a scrape", PATIENCE)
            # From a scrape at 0 until now, whenever "now" is asked about.
            now = time.time()
            window = f"[{math.ceil(now - at_zero_last) + 1}s] @ {now:.3f}"
            readings = {
                "raw": server.value(units),
                "delta": server.value(f"delta({units}{window})"),
                "increase": server.value(f"increase({units}{window})"),
                "resets": server.value(f"resets({units}{window})"),
            }
            most = server.value(f"max_over_time({units}{window})")
            unheard = most == BEFORE
        done = reader.read().tasks
        if can:
            lesson.table(
                ["the counter, read", "tiles"],
                [
                    ("as it is: raw", f"{readings['raw']:.0f}"),
                    ("as a gauge: delta()", f"~{readings['delta']:.0f}"),
                    ("as a counter: increase()", f"~{readings['increase']:.0f}"),
                    ("the scheduler's totals", done),
                ],
            )
        lesson.check(
            "the restart set it to zero, and Prometheus noticed",
            readings["raw"] == AFTER + 1 and readings["resets"] == 1,
            f"{before:.0f} before, {readings['raw']:.0f} after, "
            f"{readings['resets']:.0f} reset",
            needs="prometheus",
        )
        lesson.check(
            "increase() goes on counting across it; read as a gauge, it forgets",
            readings["increase"] > BEFORE + AFTER > BEFORE > readings["delta"],
            f"~{readings['increase']:.0f} against ~{readings['delta']:.0f}; it "
            "extrapolates to the ends of its window",
            needs="prometheus",
        )
        lesson.check(
            "its count of the last tile was never heard of; the tile was done again",
            unheard and done == BEFORE + 1 + AFTER,
            f"{BEFORE} was the most that was heard before, then 1 more and {AFTER}; "
            f"{done} tiles in the totals",
            needs="prometheus",
        )

        lesson.section("Workers that live shortly")
        lives: dict[str, Life] = {}
        if can:
            lives["until heard of"] = live(lesson, survey, reader, server, stay=True)
            # Beside the next one, a worker that was there before and stays.
            always = session.workers()[0].address
            instance = f"{host_of(always)}:8790"
            lesson.until(lambda: heard(instance) >= 0, "a scrape", PATIENCE)
            known, start = heard(instance), time.time()
            tiles = reader.read().by_worker.get(always, 0)

            def asked(times: int) -> Callable[[], bool]:
                """Whether it was scraped so often since, and heard of."""
                return lambda: (
                    scrapes_of(server, instance, start) >= times
                    and heard(instance) == known + EACH
                )

            survey(EACH, always)
            lesson.until(asked(MARGIN), "scrapes", PATIENCE)
            lives["gone at once"] = live(lesson, survey, reader, server, stay=False)
            so_far = scrapes_of(server, instance, start)
            lesson.until(asked(so_far + MARGIN), "scrapes", PATIENCE)
            lives["there all the time"] = Life(
                reader.read().by_worker[always] - tiles,
                time.time() - start,
                scrapes_of(server, instance, start),
                round(heard(instance) - known),
            )
            lesson.table(
                ["worker", "lived", "scrapes", "tiles done", "tiles heard of"],
                [
                    (name, f"{life.seconds:.0f} s", f"~{life.scrapes}", life.tiles,
                     f"~{life.heard}")
                    for name, life in lives.items()
                ],
            )  # fmt: skip
        lesson.check(
            "one that stays is asked, every two seconds; none more often",
            can
            and lives["until heard of"].scrapes >= 1
            and all(o.scrapes <= o.seconds / INTERVAL + 1 for o in lives.values()),
            ", ".join(
                f"~{o.scrapes} times in {o.seconds:.0f} s" for o in lives.values()
            ),
            needs="prometheus",
        )
        lesson.check(
            "one that lives shortly is asked less often than one that is always there",
            can and lives["gone at once"].scrapes < lives["there all the time"].scrapes,
            " against ".join(
                f"~{lives.get(name, Life()).scrapes}"
                for name in ("gone at once", "there all the time")
            )
            + " times, while both were looked at",
            needs="prometheus",
        )
        lesson.check(
            "Prometheus has what it heard, which is at most what was done",
            can
            and lives["until heard of"].heard == EACH
            and lives["there all the time"].heard == EACH
            and all(o.heard <= o.tiles == EACH for o in lives.values())
            and reader.read().tasks == done + len(lives) * EACH,
            f"{', '.join(f'~{o.heard}' for o in lives.values())} heard of, "
            f"{reader.read().tasks - done} in the totals",
            needs="prometheus",
        )
        if not can:
            survey(EACH, everyone[0])
        total = reader.read().tasks
        lesson.check(
            "what the scheduler counts does not depend on who asks when",
            total == next(numbers),
            f"{total} tiles",
        )

        lesson.section("What a job leaves in a Pushgateway")
        gate, token = session.pushgateway, uuid.uuid4().hex
        first_push: dict[str, float] = {}
        replaced: dict[str, float] = {}
        added: dict[str, float] = {}
        after_runs = after_delete = stale = kept = -1
        if gate:
            group = Group(gate, "lesson", {"run": token})
            undo.callback(group.give_up)
            group.push(registry_of(survey_tiles=100, survey_seconds=12))
            first_push = exposed(gate, token)
            group.push(registry_of(survey_tiles=50))
            replaced = exposed(gate, token)
            group.add(registry_of(survey_errors=1))
            added = exposed(gate, token)
            if lesson.can("prometheus"):
                pushed = f'survey_tiles{{run="{token}"}}'
                lesson.until(lambda: server.query(pushed), "a scrape", PATIENCE)
                # The job is over. Three more scrapes, and it is served as if it ran.
                scraped = f"count_over_time({pushed}[1m])"
                lesson.until(
                    lambda: server.value(scraped, default=0) >= 3, "scrapes", PATIENCE
                )
                stale = int(server.value(scraped, default=0))
            Group(gate, "lesson").delete()  # the job alone is another key
            kept = groups_of(gate, token)
            group.delete()  # the gateway says that it will, and does it soon
            lesson.until(lambda: groups_of(gate, token) == 0, "the gateway to delete")
            after_delete = groups_of(gate, token)
            if lesson.can("prometheus"):
                lesson.until(lambda: not server.query(pushed), "a scrape", PATIENCE)
            for number in range(RUNS):
                one = Group(gate, "lesson", {"run": f"{token}-{number}"})
                undo.callback(one.delete)
                one.push(registry_of(survey_tiles=100))
            after_runs = groups_of(gate, token)
        lesson.check(
            "pushing again replaces the group, and what it had before is gone",
            replaced.get("survey_tiles") == 50 and "survey_seconds" not in replaced,
            f"survey_tiles {first_push.get('survey_tiles', 0):.0f}, then "
            f"{replaced.get('survey_tiles', 0):.0f}; survey_seconds is "
            f"{'still there' if 'survey_seconds' in replaced else 'gone'}",
            needs="pushgateway",
        )
        lesson.check(
            "adding replaces only metrics of the same name",
            added.get("survey_tiles") == 50 and added.get("survey_errors") == 1,
            f"survey_tiles {added.get('survey_tiles', 0):.0f}, "
            f"survey_errors {added.get('survey_errors', 0):.0f}",
            needs="pushgateway",
        )
        lesson.check(
            "the job is over, and its numbers are scraped as if they were current",
            stale >= 3,
            f"~{stale} scrapes of a value that nobody updates",
            needs="prometheus",
        )
        lesson.check(
            "deleting takes the whole key: the job alone deletes nothing of the run",
            (kept, after_delete) == (1, 0),
            f"{kept} group left by the wrong key, {after_delete} by the right one",
            needs="pushgateway",
        )
        lesson.check(
            "runs that do not delete leave a group each, for good",
            after_runs == RUNS,
            f"{RUNS} runs, {after_runs} groups; this lesson deletes them now",
            needs="pushgateway",
        )


def live(
    lesson: Lesson,
    survey: Callable[[int, str], None],
    reader: RunReader,
    server: Prometheus,
    stay: bool,
) -> Life:
    """Add a worker, let it work, and end it: at once, or when it was heard of."""
    session = lesson.session
    before = {worker.address for worker in session.workers()}
    start = time.time()
    container = add_worker(session)
    try:
        lesson.until_workers(len(before) + 1)
        (address,) = {worker.address for worker in session.workers()} - before
        instance = f"{host_of(address)}:8790"
        survey(EACH, address)
        units = UNITS.format(instance=instance)
        if stay:
            lesson.until(
                lambda: server.value(units, default=0) == EACH, "a scrape", PATIENCE
            )
        tiles = reader.read().by_worker.get(address, 0)
    finally:
        remove(container)
    lesson.until_workers(len(before))
    seconds = time.time() - start
    window = f"[{max(1, int(seconds))}s]"
    return Life(
        tiles,
        seconds,
        scrapes=scrapes_of(server, instance, start),
        heard=int(server.value(f"max_over_time({units}{window})", default=0)),
    )


if __name__ == "__main__":
    run(main)
